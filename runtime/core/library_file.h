// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace leapp_policy {

// Whether a shared library is cut off, as a broken download or a full disk leaves it. The system's
// loader maps such a file without a look at its length, and the process dies of SIGBUS at the first
// touch of what is not there: this is asked before. Returns what is wrong ("it ends at byte 10 of
// 20"), or an empty text, also for a file that is no ELF library: that the loader says well.
std::string FindMissingEnd(const std::string& path);

}  // namespace leapp_policy
