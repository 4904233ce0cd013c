# SPDX-License-Identifier: Apache-2.0
"""What an artifact is: its folder, its sealed manifest, its picture; models and graphs come from above."""
