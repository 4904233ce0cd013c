# SPDX-License-Identifier: Apache-2.0
"""What the scripts do with their configuration: export a policy, prove it, time it."""

from leapp_policy.cli.bench import run_bench
from leapp_policy.cli.export import export_policy
from leapp_policy.cli.matrix import prove_export
from leapp_policy.cli.opened import batch_size
from leapp_policy.cli.original import EagerPolicy, example_observation, make_env, make_policy
from leapp_policy.cli.parity import run_parity

__all__ = [
    "EagerPolicy",
    "batch_size",
    "example_observation",
    "export_policy",
    "make_env",
    "make_policy",
    "prove_export",
    "run_bench",
    "run_parity",
]
