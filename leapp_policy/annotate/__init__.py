# SPDX-License-Identifier: Apache-2.0
"""Annotations: which tensors enter and leave the nodes of a policy."""

from leapp_policy.annotate.api import input_tensors, output_tensors
from leapp_policy.specs import TensorSemantics

__all__ = ["TensorSemantics", "input_tensors", "output_tensors"]
