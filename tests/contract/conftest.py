# SPDX-License-Identifier: Apache-2.0
"""This file makes ``contracts`` importable."""
