# SPDX-License-Identifier: Apache-2.0
"""What a segment becomes in the graph: the runner operator, its bundle and its metadata."""
