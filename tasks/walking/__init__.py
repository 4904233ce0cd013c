# SPDX-License-Identifier: Apache-2.0
"""What tasks of walking robots share: the environment, the network's import, the reference run, pictures."""
