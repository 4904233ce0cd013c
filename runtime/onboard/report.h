// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "onboard/step_log.h"

namespace leapp_policy::onboard {

// Figures of a log as JSON: step time, lateness, misses, states, processor and memory.
std::string ReportJson(const LogFile& log);

// The same as a picture: histograms of the lateness and of the step time, SVG.
std::string ReportSvg(const LogFile& log);

}  // namespace leapp_policy::onboard
