# SPDX-License-Identifier: Apache-2.0
"""Watch one real execution: torch operations, memory provenance, Warp segments, their capture."""
