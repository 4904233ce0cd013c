# SPDX-License-Identifier: Apache-2.0
"""Robot tasks: gymnasium environments with the policies that were trained on them."""
