# SPDX-License-Identifier: Apache-2.0
# MuJoCo is a native module without type information:
# pyright: reportAttributeAccessIssue=false
"""A serial chain of hinge joints as plain arrays, read from a MuJoCo model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError

if TYPE_CHECKING:
    import mujoco

Array = NDArray[np.float64]

_VELOCITY_PREFIX = "velocity_limit/"
_DEFAULT_SITE = "tool"


@dataclass(frozen=True, eq=False)
class KinematicChain:
    """Joints from the world to one tool frame, in that order.

    The frame of joint ``j`` sits at the joint's anchor and turns with it: ``frame[j] = frame[j - 1] *
    offset[j] * rotation(axis[j], joint_pos[j])``, with the world before the first joint. The tool frame is
    ``frame[-1] * tool``. All arrays are float64, read-only copies.

    Attributes:
        joint_names: Name of each joint.
        offset_pos: Offset from the frame before [m], shape ``[num_joints, 3]``.
        offset_quat_xyzw: Rotation of that offset, unit, shape ``[num_joints, 4]``.
        axis: Joint axis in the joint's own frame, unit, shape ``[num_joints, 3]``.
        lower: Lower joint limit [rad], shape ``[num_joints]``; ``-inf`` where the joint has none.
        upper: Upper joint limit [rad], shape ``[num_joints]``; ``inf`` where the joint has none.
        velocity_limit: Largest joint speed [rad/s], shape ``[num_joints]``; ``inf`` where it is not known.
        tool_pos: Tool position in the last joint's frame [m], shape ``[3]``.
        tool_quat_xyzw: Tool rotation in the last joint's frame, unit, shape ``[4]``.
    """

    joint_names: tuple[str, ...]
    offset_pos: Array
    offset_quat_xyzw: Array
    axis: Array
    lower: Array
    upper: Array
    velocity_limit: Array
    tool_pos: Array
    tool_quat_xyzw: Array

    def __post_init__(self) -> None:
        n = len(self.joint_names)
        if n == 0:
            raise ConfigError("Kinematic chain must have at least one joint, got none.")
        rows = {"offset_pos": (n, 3), "offset_quat_xyzw": (n, 4), "axis": (n, 3), "tool_pos": (3,)}
        rows |= {"tool_quat_xyzw": (4,), "lower": (n,), "upper": (n,), "velocity_limit": (n,)}
        for field in fields(self)[1:]:
            value = np.array(getattr(self, field.name), dtype=np.float64)
            if value.shape != rows[field.name]:
                raise ConfigError(
                    f"Kinematic chain array '{field.name}' must have shape {list(rows[field.name])} for {n} "
                    f"joints, got {list(value.shape)}."
                )
            if field.name in ("axis", "offset_quat_xyzw", "tool_quat_xyzw"):
                length = np.linalg.norm(value, axis=-1, keepdims=True)
                if not np.allclose(length, 1.0, atol=1e-3):
                    raise ConfigError(f"Kinematic chain array '{field.name}' must hold unit vectors.")
                value = value / length
            value.setflags(write=False)
            object.__setattr__(self, field.name, value)
        if not np.all(self.lower <= self.upper):
            raise ConfigError("Kinematic chain array 'lower' must not exceed 'upper'.")

    @property
    def num_joints(self) -> int:
        """Number of joints."""
        return len(self.joint_names)

    @property
    def offsets(self) -> Array:
        """Offsets as position and quaternion xyzw, shape ``[num_joints, 7]``."""
        return np.concatenate([self.offset_pos, self.offset_quat_xyzw], axis=1)

    @property
    def tool(self) -> Array:
        """Tool offset as position and quaternion xyzw, shape ``[7]``."""
        return np.concatenate([self.tool_pos, self.tool_quat_xyzw])


def chain_from_mjcf(
    source: str | Path | mujoco.MjModel, *, site: str | None = None, body: str | None = None
) -> KinematicChain:
    """Read the chain from the world to a site or a body of an MJCF model.

    The model may branch; only joints on the way to the tool count. Several hinges on one body, joint
    anchors (``pos``), any ``axis`` and ``ref`` are followed as MuJoCo's forward kinematics defines them.
    A joint's speed limit, which MJCF has no attribute for, is read from a custom numeric named
    ``velocity_limit/<joint>`` [rad/s].

    Args:
        source: Path of an MJCF file, the XML text itself, or a compiled model.
        site: Name of the tool site; ``tool`` when neither ``site`` nor ``body`` is given.
        body: Name of the tool body, in place of a site.

    Returns:
        The chain, with one entry per joint on the way to the tool.

    Raises:
        ConfigError: MuJoCo is not installed, the model does not compile, the name does not exist, or the
            way to it has a joint that is not a hinge, a mocap body or no joint at all.
    """
    if site is not None and body is not None:
        raise ConfigError(f"Give either site='{site}' or body='{body}' as the tool, not both.")
    mj, model = _compile(source)
    tool_body, tool_pos, tool_quat = _find_tool(mj, model, site, body)
    path = _bodies_from_world(model, tool_body)

    names: list[str] = []
    rows: dict[str, list[Any]] = {"pos": [], "quat": [], "axis": [], "lower": [], "upper": [], "speed": []}
    pos, quat = np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0])
    for b in path:
        _refuse_mocap(mj, model, b)
        pos = pos + quat_rotate(quat, model.body_pos[b])
        quat = quat_multiply(quat, _xyzw(model.body_quat[b]))
        for j in range(model.body_jntadr[b], model.body_jntadr[b] + model.body_jntnum[b]):
            name = _hinge_name(mj, model, j)
            anchor, axis = model.jnt_pos[j].copy(), model.jnt_axis[j].copy()
            ref = float(model.qpos0[model.jnt_qposadr[j]])
            limited = bool(model.jnt_limited[j])
            names.append(name)
            rows["pos"].append(pos + quat_rotate(quat, anchor))
            # MuJoCo turns by (joint_pos - ref): the constant part belongs to the offset.
            rows["quat"].append(quat_multiply(quat, _quat_about(axis, -ref)))
            rows["axis"].append(axis)
            rows["lower"].append(model.jnt_range[j, 0] if limited else -np.inf)
            rows["upper"].append(model.jnt_range[j, 1] if limited else np.inf)
            rows["speed"].append(_velocity_limit(mj, model, name))
            pos, quat = -anchor, np.array([0.0, 0.0, 0.0, 1.0])
    if not names:
        raise ConfigError(f"Tool '{site or body or _DEFAULT_SITE}' is fixed to the world: no joint moves it.")
    return KinematicChain(
        joint_names=tuple(names),
        offset_pos=np.array(rows["pos"]),
        offset_quat_xyzw=np.array(rows["quat"]),
        axis=np.array(rows["axis"]),
        lower=np.array(rows["lower"]),
        upper=np.array(rows["upper"]),
        velocity_limit=np.array(rows["speed"]),
        tool_pos=pos + quat_rotate(quat, tool_pos),
        tool_quat_xyzw=quat_multiply(quat, tool_quat),
    )


def quat_multiply(a: Array, b: Array) -> Array:
    """Hamilton product of two quaternions xyzw, shape ``[4]`` each."""
    xyz = a[3] * b[:3] + b[3] * a[:3] + np.cross(a[:3], b[:3])
    return np.append(xyz, a[3] * b[3] - a[:3] @ b[:3])


def quat_rotate(quat_xyzw: Array, vector: Array) -> Array:
    """Vector of shape ``[3]`` turned by a unit quaternion xyzw of shape ``[4]``."""
    t = 2.0 * np.cross(quat_xyzw[:3], vector)
    return vector + quat_xyzw[3] * t + np.cross(quat_xyzw[:3], t)


def _compile(source: Any) -> tuple[Any, Any]:
    try:
        import mujoco as mj
    except ImportError as e:
        raise ConfigError(
            "Reading an MJCF model needs the package 'mujoco', which is not installed; install leapp-policy[tasks]."
        ) from e
    if isinstance(source, mj.MjModel):
        return mj, source
    text = str(source)
    try:
        if isinstance(source, str) and text.lstrip().startswith("<"):
            return mj, mj.MjModel.from_xml_string(text)
        return mj, mj.MjModel.from_xml_path(text)
    except ValueError as e:
        what = "text" if text.lstrip().startswith("<") else f"'{text}'"
        raise ConfigError(f"MJCF model {what} does not compile: {e}") from e


def _find_tool(mj: Any, model: Any, site: str | None, body: str | None) -> tuple[int, Array, Array]:
    """Body that carries the tool and the tool's pose in it."""
    kind, wanted = ("body", body) if body is not None else ("site", site or _DEFAULT_SITE)
    objtype, count = (mj.mjtObj.mjOBJ_BODY, model.nbody) if kind == "body" else (mj.mjtObj.mjOBJ_SITE, model.nsite)
    index = mj.mj_name2id(model, objtype, wanted)
    if index < 0:
        known = [mj.mj_id2name(model, objtype, i) or f"#{i}" for i in range(count)]
        raise ConfigError(f"MJCF model has no {kind} '{wanted}'; it has: {', '.join(known) or 'none'}.")
    if kind == "body":
        return index, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0])
    return int(model.site_bodyid[index]), model.site_pos[index].copy(), _xyzw(model.site_quat[index])


def _bodies_from_world(model: Any, body: int) -> list[int]:
    path = []
    while body != 0:
        path.append(body)
        body = int(model.body_parentid[body])
    return path[::-1]


def _refuse_mocap(mj: Any, model: Any, body: int) -> None:
    if model.body_mocapid[body] >= 0:
        name = mj.mj_id2name(model, mj.mjtObj.mjOBJ_BODY, body) or f"#{body}"
        raise ConfigError(f"Body '{name}' is a mocap body and is moved from outside; choose a tool on the arm.")


def _hinge_name(mj: Any, model: Any, joint: int) -> str:
    name = mj.mj_id2name(model, mj.mjtObj.mjOBJ_JOINT, joint) or f"#{joint}"
    kind = mj.mjtJoint(model.jnt_type[joint])
    if kind != mj.mjtJoint.mjJNT_HINGE:
        word = kind.name.removeprefix("mjJNT_").lower()
        raise ConfigError(f"Joint '{name}' on the way to the tool must be a hinge joint, got a {word} joint.")
    return name


def _velocity_limit(mj: Any, model: Any, joint: str) -> float:
    index = mj.mj_name2id(model, mj.mjtObj.mjOBJ_NUMERIC, _VELOCITY_PREFIX + joint)
    return float(model.numeric_data[model.numeric_adr[index]]) if index >= 0 else float("inf")


def _xyzw(quat_wxyz: Array) -> Array:
    return np.roll(quat_wxyz, -1)


def _quat_about(axis: Array, angle: float) -> Array:
    return np.append(np.sin(angle / 2.0) * axis, np.cos(angle / 2.0))
