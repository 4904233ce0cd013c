# SPDX-License-Identifier: Apache-2.0
"""Annotations: which tensors enter and leave the nodes of a policy, and what it keeps between steps."""

from leapp_policy.annotate.api import (
    input_tensors,
    module,
    output_tensors,
    register_buffer,
    state_tensors,
    update_state,
    warp_op,
)
from leapp_policy.annotate.method import method
from leapp_policy.specs import TensorSemantics

__all__ = [
    "TensorSemantics",
    "input_tensors",
    "method",
    "module",
    "output_tensors",
    "register_buffer",
    "state_tensors",
    "update_state",
    "warp_op",
]
