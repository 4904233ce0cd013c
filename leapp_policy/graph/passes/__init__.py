# SPDX-License-Identifier: Apache-2.0
"""Passes over a recorded graph, one a file; each states what it expects and what holds afterwards."""
