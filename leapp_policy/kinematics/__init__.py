# SPDX-License-Identifier: Apache-2.0
"""Batched arm kinematics in Warp, from a MuJoCo model."""

from .arm import ArmKinematics
from .chain import KinematicChain, chain_from_mjcf
from .inverse import InverseKinematics

__all__ = ["ArmKinematics", "InverseKinematics", "KinematicChain", "chain_from_mjcf"]
