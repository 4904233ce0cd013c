# SPDX-License-Identifier: Apache-2.0
"""What runs on the robot: native library, sessions, the policy runner, latency. Needs torch for PT2 models alone."""
