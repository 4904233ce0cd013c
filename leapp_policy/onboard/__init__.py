# SPDX-License-Identifier: Apache-2.0
"""A policy on a robot: the deployment folder, the packets, and the runner's loop. No file imports torch or Warp."""
