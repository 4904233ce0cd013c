# SPDX-License-Identifier: Apache-2.0
"""Models that the kinematics tests share, and MuJoCo's answers for them."""

import mujoco
import numpy as np

ODD_CHAIN = """
<mujoco>
  <compiler angle="radian" autolimits="true"/>
  <custom><numeric name="velocity_limit/a" data="1.5"/></custom>
  <worldbody>
    <body name="table" pos=".1 -.2 .3" quat=".9 .1 -.3 .2">
      <geom size=".05"/>
      <body name="first" pos=".05 .1 .2" euler=".3 -.4 .5">
        <joint name="a" axis="1 2 -1" pos=".03 -.02 .05" ref=".4" range="-2 2.5"/>
        <joint name="b" axis="0 -1 .2" pos="-.04 .06 .01"/>
        <geom size=".05"/>
        <body name="side" pos="0 .5 0"><joint name="aside" type="slide"/><geom size=".05"/></body>
        <frame pos=".1 0 .1" euler="0 .7 0">
          <body name="second" pos="-.2 .1 .15" euler="1 .2 -.6">
            <joint name="c" axis=".5 .5 -.7" pos="0 .1 0" ref="-1.1" range="-1 1"/>
            <geom size=".05"/>
            <body name="fixed" pos="0 .1 .1" euler="-.2 .1 .9">
              <geom size=".05"/>
              <body name="third" pos=".1 .1 .1">
                <joint name="d" axis="-1 0 0"/>
                <joint name="e" axis="0 1 0" ref="2"/>
                <joint name="f" axis="0 0 1" pos=".2 0 0"/>
                <geom size=".05"/>
                <site name="tool" pos=".07 -.03 .11" euler=".4 .5 .6"/>
              </body>
            </body>
          </body>
        </frame>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def joint_addresses(model, chain):
    """Columns of the chain's joints in qpos and in the Jacobian."""
    qpos = [model.joint(name).qposadr[0] for name in chain.joint_names]
    dofs = [model.joint(name).dofadr[0] for name in chain.joint_names]
    return qpos, dofs


def mujoco_poses(model, chain, joint_pos, site="tool"):
    """Site position, rotation matrix and Jacobian by MuJoCo for each row of ``joint_pos``."""
    data = mujoco.MjData(model)
    qpos, dofs = joint_addresses(model, chain)
    site_id = model.site(site).id
    positions, rotations, jacobians = [], [], []
    for row in joint_pos:
        data.qpos[:] = model.qpos0
        data.qpos[qpos] = row
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        linear, angular = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        mujoco.mj_jacSite(model, data, linear, angular, site_id)
        positions.append(data.site_xpos[site_id].copy())
        rotations.append(data.site_xmat[site_id].reshape(3, 3).copy())
        jacobians.append(np.vstack([linear, angular])[:, dofs])
    return np.array(positions), np.array(rotations), np.array(jacobians)


def rotation_matrices(quat_xyzw):
    """Rotation matrices of unit quaternions, shape ``[n, 4]`` to ``[n, 3, 3]``."""
    out = np.zeros((len(quat_xyzw), 9))
    for row, quat in zip(out, quat_xyzw, strict=True):
        mujoco.mju_quat2Mat(row, np.roll(np.asarray(quat, dtype=np.float64), 1))
    return out.reshape(-1, 3, 3)
