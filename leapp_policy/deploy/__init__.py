# SPDX-License-Identifier: Apache-2.0
"""What runs on the robot: native library, sessions, the policy runner, latency. Needs neither torch nor Warp."""
