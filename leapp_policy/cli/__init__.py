# SPDX-License-Identifier: Apache-2.0
"""The command ``leapp-policy``, and what the scripts of the repository do."""
