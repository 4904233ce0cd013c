# SPDX-License-Identifier: Apache-2.0
"""Turn node graphs into the files of an artifact: backends, manifest, folder."""
