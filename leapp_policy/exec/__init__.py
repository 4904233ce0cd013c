# SPDX-License-Identifier: Apache-2.0
"""Execution policy of Warp producers: one body, recorded, run at once, or replayed as a graph."""

from leapp_policy.errors import CaptureError, LegacyPluginStreamError, NotCapturableError
from leapp_policy.exec.body import Part, SegmentedBody
from leapp_policy.exec.context import HostSection, LaunchContext, unrolled
from leapp_policy.exec.runner import GraphRunner, Mode
from leapp_policy.exec.warp_settings import WarpCfg, warp_settings
from leapp_policy.exec.workers import warp_worker

__all__ = [
    "CaptureError",
    "GraphRunner",
    "HostSection",
    "LaunchContext",
    "LegacyPluginStreamError",
    "Mode",
    "NotCapturableError",
    "Part",
    "SegmentedBody",
    "WarpCfg",
    "unrolled",
    "warp_settings",
    "warp_worker",
]
