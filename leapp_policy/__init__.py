# SPDX-License-Identifier: Apache-2.0
"""Export a whole robot policy, Warp kernels included, and run it onboard."""
