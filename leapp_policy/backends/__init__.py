# SPDX-License-Identifier: Apache-2.0
"""Turn node graphs into model files: ONNX, PT2."""
