# SPDX-License-Identifier: Apache-2.0
"""TorchScript programs: they are code, and run when the caller says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import torch

from leapp_policy.errors import CheckpointError, ConfigError

from ..network_policy import NetworkPolicy
from ..normalizer import EmpiricalNormalizer
from . import checkpoint
from .options import PolicyOptions
from .plain_torch import wrap_module


def load_torchscript(
    path: str | Path,
    *,
    observation_dim: int,
    action_dim: int,
    run_code: bool = False,
    squash: str = "identity",
    normalizer: EmpiricalNormalizer | None = None,
    state_buffers: Sequence[str] = (),
    **options: Unpack[PolicyOptions],
) -> NetworkPolicy:
    """Load a file of ``torch.jit.save``, such as Isaac Lab's ``policy.pt``.

    Args:
        path: The file.
        observation_dim: Number of observations, which a program does not record.
        action_dim: Number of actions, which a program does not record.
        run_code: Whether you trust the file: a TorchScript program is code, which is run.
        squash: Function of the program's output.
        normalizer: Frozen statistics that come before the program; one inside of it is part of it.
        state_buffers: Names of the program's buffers that a step changes, such as ``hidden_state`` and ``cell_state``
            of rsl_rl's recurrent policies.
        **options: See ``PolicyOptions``; bounds clip the actions.

    Raises:
        CheckpointError: The file is no TorchScript program, or is damaged.
        ConfigError: ``run_code`` is not given, or an option does not fit.
    """
    file = checkpoint.existing_file(path)
    if not checkpoint.is_torchscript(checkpoint.zip_names(file)):
        raise CheckpointError(f"Checkpoint '{file}' must be a TorchScript program, got a file of another kind.")
    if not run_code:
        raise ConfigError(
            f"Checkpoint '{file}' is a TorchScript program, which is code and would be run; pass run_code=True where "
            "you trust it, or load the weights it was made from."
        )
    try:
        program = torch.jit.load(str(file), map_location=options.get("device", "cpu")).eval()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"Checkpoint '{file}' must be a readable TorchScript program: {reason}.") from error
    facts = {"source": "TorchScript", "version": "not recorded", "assumed": ["the program is deterministic"]}
    return wrap_module(
        program,
        facts,
        options,
        squash=squash,
        observation_dim=observation_dim,
        action_dim=action_dim,
        normalizer=normalizer,
        state_buffers=state_buffers,
        pass_groups=False,
    )
