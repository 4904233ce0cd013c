# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers of this folder importable."""
