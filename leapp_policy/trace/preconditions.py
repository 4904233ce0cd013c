# SPDX-License-Identifier: Apache-2.0
"""What must hold before a trace begins: its device is there, and Warp's settings let it work."""

from __future__ import annotations

import warp as wp

from leapp_policy.errors import ConfigError, TraceError


def check_device(name: str, device: str) -> None:
    """Refuse to trace on a device that this machine does not have.

    Args:
        name: Name of the trace.
        device: Its device.

    Raises:
        TraceError: There is no such device.
    """
    known = [each.alias for each in wp.get_devices()]
    if device not in known:
        raise TraceError(f"Trace '{name}' got device '{device}', expected one of {known}, which this machine has")


def check_warp_settings(name: str, device: str) -> None:
    """Refuse to trace under settings of Warp that a trace cannot work with.

    Args:
        name: Name of the trace.
        device: Its device.

    Raises:
        ConfigError: Warp verifies each launch, and the device is a GPU; or NaN ends the process.
    """
    if wp.config.verify_fp and wp.config.mode == "debug":
        # Overwrites are tried on memory full of NaN, and the last execution turns every sign.
        raise ConfigError(
            f"Trace '{name}' cannot try kernels on NaN while Warp settings 'verify_fp' and 'mode=debug' are both on, "
            "under which the first NaN ends the process; export with one of them"
        )
    if wp.config.verify_cuda and device != "cpu":
        raise ConfigError(
            f"Trace '{name}' on '{device}' cannot capture while Warp setting 'verify_cuda' is on, which waits "
            "after each launch; run the policy itself with it, and export with verify_cuda=False"
        )
