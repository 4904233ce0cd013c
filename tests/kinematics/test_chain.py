# SPDX-License-Identifier: Apache-2.0
import sys

import numpy as np
import pytest

from leapp_policy.errors import ConfigError
from leapp_policy.kinematics import chain_from_mjcf

pytest.importorskip("mujoco")


def model_with(joints: str, extra: str = "") -> str:
    return f"""
    <mujoco><compiler angle="radian"/><worldbody>
      {extra}
      <body name="link" pos="0 0 1">{joints}<geom size=".1"/><site name="tool" pos=".5 0 0"/></body>
    </worldbody></mujoco>"""


def test_one_hinge_is_read_as_written():
    """Fails when offset, axis, limits or tool of the simplest arm are misread."""
    chain = chain_from_mjcf(model_with('<joint name="j" axis="0 0 2" range="-1 2" limited="true"/>'))
    assert chain.joint_names == ("j",)
    np.testing.assert_allclose(chain.offset_pos, [[0, 0, 1]])
    np.testing.assert_allclose(chain.offset_quat_xyzw, [[0, 0, 0, 1]])
    np.testing.assert_allclose(chain.axis, [[0, 0, 1]])
    np.testing.assert_allclose([chain.lower, chain.upper], [[-1], [2]])
    np.testing.assert_allclose(chain.tool_pos, [0.5, 0, 0])


def test_ref_and_anchor_go_into_the_offsets():
    """Fails when a joint's ref or anchor is lost: the arm would be drawn in another place at zero."""
    chain = chain_from_mjcf(model_with(f'<joint name="j" axis="0 0 1" pos=".2 0 0" ref="{np.pi / 2}"/>'))
    np.testing.assert_allclose(chain.offset_pos, [[0.2, 0, 1]])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(chain.offset_quat_xyzw, [[0, 0, -half, half]], atol=1e-7)
    np.testing.assert_allclose(chain.tool_pos, [0.3, 0, 0])


def test_joint_without_limits_is_unlimited():
    """Fails when a continuous joint would be clipped to zero."""
    chain = chain_from_mjcf(model_with('<joint name="j"/>'))
    assert chain.lower[0] == -np.inf
    assert chain.upper[0] == np.inf
    assert chain.velocity_limit[0] == np.inf


def test_body_can_be_the_tool():
    """Fails when body= gives another frame than the body's own."""
    chain = chain_from_mjcf(model_with('<joint name="j"/>'), body="link")
    np.testing.assert_allclose(chain.tool_pos, [0, 0, 0])


def test_published_limits_of_the_arm():
    """Fails when the task's arm departs from the published limits."""
    from leapp_policy.tasks.arm_reach.env import arm_chain

    chain = arm_chain()
    np.testing.assert_allclose(chain.lower, [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
    np.testing.assert_allclose(chain.upper, [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
    np.testing.assert_allclose(chain.velocity_limit, [2.175] * 4 + [2.61] * 3)


def test_arrays_cannot_be_changed():
    """Fails when a shared chain could be edited behind the back of a device copy."""
    chain = chain_from_mjcf(model_with('<joint name="j"/>'))
    with pytest.raises(ValueError, match="read-only"):
        chain.axis[0, 0] = 1.0


@pytest.mark.parametrize("kind", ["slide", "ball", "free"])
def test_other_joints_are_refused_by_name(kind):
    """Fails when a joint that the kernels cannot follow is taken for a hinge."""
    with pytest.raises(ConfigError, match=f"Joint 'odd' .* must be a hinge joint, got a {kind} joint"):
        chain_from_mjcf(model_with(f'<joint name="odd" type="{kind}"/>'))


def test_tool_without_joint_is_refused():
    """Fails when a fixed tool gives an empty chain."""
    with pytest.raises(ConfigError, match="'tool' is fixed to the world"):
        chain_from_mjcf(model_with(""))


def test_unknown_site_lists_the_known_ones():
    """Fails when a misspelt site is not explained."""
    with pytest.raises(ConfigError, match="no site 'wrist'; it has: tool"):
        chain_from_mjcf(model_with('<joint name="j"/>'), site="wrist")


def test_mocap_body_is_refused():
    """Fails when a target marker could be taken for the tool."""
    extra = '<body name="goal" mocap="true"><site name="goal"/></body>'
    with pytest.raises(ConfigError, match="'goal' is a mocap body"):
        chain_from_mjcf(model_with('<joint name="j"/>', extra), site="goal")


def test_site_and_body_exclude_each_other():
    """Fails when one of two tools is picked without a word."""
    with pytest.raises(ConfigError, match="not both"):
        chain_from_mjcf(model_with('<joint name="j"/>'), site="tool", body="link")


@pytest.mark.parametrize("source", ["<mujoco><worldbody></mujoco>", "missing.xml"])
def test_broken_model_is_a_config_error(source):
    """Fails when MuJoCo's own error leaks without saying which model."""
    with pytest.raises(ConfigError, match=r"MJCF model .* does not compile"):
        chain_from_mjcf(source)


def test_missing_mujoco_is_explained(monkeypatch):
    """Fails when a machine without MuJoCo gets a bare ImportError."""
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ConfigError, match=r"needs the package 'mujoco'.*leapp-policy\[tasks\]"):
        chain_from_mjcf("arm.xml")
