// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "leapp_policy/runtime.h"

namespace leapp_policy {

// Warp's libraries do not survive fork(): locks that another thread held stay locked for ever, and
// CUDA refuses every call. A child must learn that from a sentence, not from a hang.

// Watches for forks from now on. Idempotent, any thread; called before Warp is loaded.
void WatchForks();

// Whether this process was forked after WatchForks(). Costs one read of memory.
bool IsForkedChild();

// Throws Error(status) in such a process: `subject` says what cannot be used ("Segment 'arm/0'").
void ExpectNotForked(lp_status status, const std::string& subject);

}  // namespace leapp_policy
