# SPDX-License-Identifier: Apache-2.0
"""Roll policies in environments, compare original and export, and report what was found."""
