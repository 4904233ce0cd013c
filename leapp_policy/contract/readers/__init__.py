# SPDX-License-Identifier: Apache-2.0
"""Read contracts that other tools wrote: ONNX metadata of mjlab and Isaac Lab, unitree-style ``deploy.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leapp_policy.contract.readers.deploy_yaml import read_deploy_yaml
from leapp_policy.contract.readers.onnx_metadata import read_onnx_metadata
from leapp_policy.contract.schema import Contract
from leapp_policy.errors import ContractError

__all__ = ["read_contract", "read_deploy_yaml", "read_onnx_metadata"]


def read_contract(
    path: str | Path, *, order: Sequence[str] | None = None, robot_order: Sequence[str] | None = None
) -> Contract:
    """Read a contract from a file.

    Args:
        path: An ``.onnx`` model or a ``deploy.yaml``.
        order: Names of the joints in the policy's order, for a file that does not name them.
        robot_order: Names of the joints in the robot's order, for a ``deploy.yaml`` with a ``joint_ids_map``.

    Raises:
        ContractError: It is no such file, is damaged, or names no joints and no order was given.
    """
    path = Path(path)
    if not path.is_file():
        raise ContractError(f"Contract file '{path}' does not exist; give an artifact, an .onnx or a deploy.yaml")
    if path.suffix == ".onnx":
        return read_onnx_metadata(path, order=order)
    if path.suffix in (".yaml", ".yml"):
        return read_deploy_yaml(path, order=order, robot_order=robot_order)
    raise ContractError(f"Contract file '{path}' must end in .onnx, .yaml or .yml, got '{path.suffix}'")
