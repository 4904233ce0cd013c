# SPDX-License-Identifier: Apache-2.0
"""Pieces of policies that appear in many of them."""
