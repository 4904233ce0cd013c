# SPDX-License-Identifier: Apache-2.0
"""Robot models and policies that others publish: downloaded on demand, checked, never committed, never run."""
