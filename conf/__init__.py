# SPDX-License-Identifier: Apache-2.0
"""Hydra configuration of the scripts."""
