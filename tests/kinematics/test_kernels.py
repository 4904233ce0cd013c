# SPDX-License-Identifier: Apache-2.0
import mujoco
import numpy as np
import pytest
import warp as wp
from chains import ODD_CHAIN, mujoco_poses, rotation_matrices
from leapp_policy.tasks.arm_reach.env import MODEL_PATH

from leapp_policy.errors import ConfigError, ContractError
from leapp_policy.kinematics import ArmKinematics, chain_from_mjcf

NUM_CONFIGS = 1000
DAMPING = 0.05


@pytest.fixture(scope="module", params=["arm", "odd"])
def model(request):
    if request.param == "arm":
        return mujoco.MjModel.from_xml_path(str(MODEL_PATH))
    return mujoco.MjModel.from_xml_string(ODD_CHAIN)


@pytest.fixture(scope="module")
def chain(model):
    return chain_from_mjcf(model)


@pytest.fixture(scope="module")
def joint_pos(chain):
    lower, upper = np.maximum(chain.lower, -np.pi), np.minimum(chain.upper, np.pi)
    return np.random.default_rng(0).uniform(lower, upper, (NUM_CONFIGS, chain.num_joints)).astype(np.float32)


@pytest.fixture(scope="module")
def arm(chain, joint_pos):
    kinematics = ArmKinematics(chain, NUM_CONFIGS, "cpu", damping=DAMPING)
    kinematics.forward(wp.array(joint_pos, dtype=wp.float32, device="cpu"))
    kinematics.compute_jacobian()
    return kinematics


@pytest.fixture(scope="module")
def reference(model, chain, joint_pos):
    return mujoco_poses(model, chain, joint_pos)


def dls_step(jacobian, twist, chain, joint_pos, dt):
    """The kernel's formula in float64."""
    gram = jacobian @ jacobian.transpose(0, 2, 1) + DAMPING**2 * np.eye(6)
    dq = np.einsum("brj,br->bj", jacobian, np.linalg.solve(gram, (twist * dt)[..., None])[..., 0])
    ratio = np.abs(dq) / (chain.velocity_limit * dt)
    dq /= np.maximum(1.0, ratio.max(axis=1, keepdims=True))
    return np.clip(joint_pos + dq, chain.lower, chain.upper)


def vectors(values):
    return wp.array(np.asarray(values, np.float32), dtype=wp.spatial_vector, device="cpu")


def test_tool_frame_matches_mujoco(arm, reference):
    """Fails when the kinematics put the tool elsewhere than the simulator does."""
    tool = arm.tool_frame.numpy()
    np.testing.assert_allclose(tool[:, :3], reference[0], atol=1e-5)
    np.testing.assert_allclose(rotation_matrices(tool[:, 3:]), reference[1], atol=1e-5)


def test_joint_frames_match_mujoco_anchors(model, chain, arm, joint_pos):
    """Fails when a frame between base and tool is off although the tool is right."""
    data = mujoco.MjData(model)
    ids = [model.joint(name).id for name in chain.joint_names]
    adr = [model.joint(name).qposadr[0] for name in chain.joint_names]
    frames = arm.frames.numpy()
    for row in range(50):
        data.qpos[:] = model.qpos0
        data.qpos[adr] = joint_pos[row]
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(frames[row, :, :3], data.xanchor[ids], atol=1e-5)
        axes = rotation_matrices(frames[row, :, 3:]) @ chain.axis[..., None]
        np.testing.assert_allclose(axes[..., 0], data.xaxis[ids], atol=1e-5)


def test_jacobian_matches_mujoco(arm, reference):
    """Fails when a joint moves the tool in another direction than the simulator says."""
    np.testing.assert_allclose(arm.jacobian.numpy(), reference[2], atol=1e-5)


def test_step_matches_float64(chain, reference, joint_pos):
    """Fails when the in-kernel solve, the common shortening or the clipping departs from the formula."""
    kinematics = ArmKinematics(chain, NUM_CONFIGS, "cpu", damping=DAMPING)
    twist = np.random.default_rng(1).normal(size=(NUM_CONFIGS, 6)) * [0.5] * 6
    moved = kinematics.step(wp.array(joint_pos, dtype=wp.float32, device="cpu"), vectors(twist)).numpy()
    expected = dls_step(reference[2], twist, chain, joint_pos.astype(np.float64), kinematics.dt)
    np.testing.assert_allclose(moved, expected, atol=2e-5)


def test_twist_in_tool_axes_is_turned(chain, reference, joint_pos):
    """Fails when a twist given in the tool's axes is followed in the world's."""
    kinematics = ArmKinematics(chain, NUM_CONFIGS, "cpu", damping=DAMPING)
    twist = np.random.default_rng(2).normal(size=(NUM_CONFIGS, 6))
    world = np.einsum("bij,bkj->bki", reference[1], twist.reshape(-1, 2, 3)).reshape(-1, 6)
    q = wp.array(joint_pos, dtype=wp.float32, device="cpu")
    by_tool = kinematics.step(q, vectors(twist), in_tool_axes=True).numpy().copy()
    by_world = kinematics.step(q, vectors(world)).numpy()
    np.testing.assert_allclose(by_tool, by_world, atol=2e-5)
    assert np.abs(by_tool - kinematics.step(q, vectors(twist)).numpy()).max() > 1e-3


def test_step_stays_inside_limits(chain, joint_pos):
    """Fails when a huge twist would send a joint past its position or speed limit."""
    kinematics = ArmKinematics(chain, NUM_CONFIGS, "cpu", damping=DAMPING)
    twist = np.random.default_rng(3).normal(size=(NUM_CONFIGS, 6)) * 1000.0
    moved = kinematics.step(wp.array(joint_pos, dtype=wp.float32, device="cpu"), vectors(twist)).numpy()
    assert (moved >= chain.lower.astype(np.float32)).all()
    assert (moved <= chain.upper.astype(np.float32)).all()
    assert (np.abs(moved - joint_pos) <= chain.velocity_limit * kinematics.dt + 1e-6).all()


def test_step_is_finite_at_singular_pose(chain):
    """Fails when the stretched arm, whose Jacobian has lost rank, gives NaN or a jump."""
    kinematics = ArmKinematics(chain, 6, "cpu", damping=DAMPING)
    q = wp.zeros((6, chain.num_joints), dtype=wp.float32, device="cpu")
    moved = kinematics.step(q, vectors(np.eye(6))).numpy()
    assert np.isfinite(moved).all()
    free = np.clip(0.0, chain.lower, chain.upper)
    assert (np.abs(moved - free) <= np.minimum(chain.velocity_limit, 1e3) * kinematics.dt + 1e-6).all()


def test_steps_reach_a_target(chain, arm, joint_pos):
    """Fails when following the pose error does not bring the tool to the target."""
    n = 100
    kinematics = ArmKinematics(chain, n, "cpu", dt=0.1, damping=0.02)
    middle = 0.5 * (np.maximum(chain.lower, -1.5) + np.minimum(chain.upper, 1.5))
    rng = np.random.default_rng(4)
    start, goal = middle + rng.uniform(-0.3, 0.3, (2, n, chain.num_joints))
    target = kinematics.forward(wp.array(goal.astype(np.float32), device="cpu"))[1].numpy().copy()
    goal_frames = wp.array(target, dtype=wp.transform, device="cpu")
    q = wp.array(start.astype(np.float32), device="cpu")
    sizes = []
    for _ in range(100):
        kinematics.forward(q)
        error = kinematics.compute_error(goal_frames).numpy()
        sizes.append(np.linalg.norm(error, axis=1))
        tool = rotation_matrices(kinematics.tool_frame.numpy()[:, 3:])
        world = np.einsum("bij,bkj->bki", tool, error.reshape(-1, 2, 3)).reshape(-1, 6)
        q = wp.clone(kinematics.step(q, vectors(5.0 * world)))
    assert sizes[0].min() > 0.02
    assert (sizes[-1] < 1e-3).mean() >= 0.9
    assert np.median(sizes[-1]) < 1e-4


@pytest.mark.gpu
@pytest.mark.skipif(not wp.is_cuda_available(), reason="no CUDA device")
def test_cuda_matches_cpu(chain, joint_pos):
    """Fails when the kernels give other results on a GPU."""
    twist = np.random.default_rng(5).normal(size=(NUM_CONFIGS, 6))
    results = []
    for device in ("cpu", "cuda:0"):
        kinematics = ArmKinematics(chain, NUM_CONFIGS, device, damping=DAMPING)
        q = wp.array(joint_pos, dtype=wp.float32, device=device)
        v = wp.array(twist.astype(np.float32), dtype=wp.spatial_vector, device=device)
        moved = kinematics.step(q, v, in_tool_axes=True).numpy()
        error = kinematics.compute_error(
            wp.array(kinematics.tool_frame.numpy()[::-1].copy(), dtype=wp.transform, device=device)
        )
        results.append((kinematics.tool_frame.numpy(), kinematics.jacobian.numpy(), moved, error.numpy()))
    for on_cpu, on_gpu in zip(*results, strict=True):
        np.testing.assert_allclose(on_gpu, on_cpu, atol=2e-5)


def test_pose_error_of_known_turns(chain):
    """Fails when the error has another axis, sign or length, or takes the long way round."""
    kinematics = ArmKinematics(chain, 4, "cpu")
    kinematics.forward(wp.zeros((4, chain.num_joints), dtype=wp.float32, device="cpu"))
    tool = kinematics.tool_frame.numpy()
    rotation = rotation_matrices(tool[:1, 3:])[0]
    axis = np.array([0.6, 0.0, 0.8])
    angles = np.array([0.0, 1e-4, 1.0, 3.0])
    targets = []
    for i, angle in enumerate(angles):
        turn = np.zeros(4)
        mujoco.mju_axisAngle2Quat(turn, axis, angle)
        quat = np.zeros(4)
        mujoco.mju_mulQuat(quat, np.roll(tool[i, 3:].astype(float), 1), turn)
        sign = -1.0 if i % 2 else 1.0
        offset = rotation @ [0.1, -0.2, 0.3]
        targets.append(np.concatenate([tool[i, :3] + offset, sign * np.roll(quat, -1)]))
    goal = wp.array(np.array(targets, np.float32), dtype=wp.transform, device="cpu")
    error = kinematics.compute_error(goal).numpy()
    np.testing.assert_allclose(error[:, :3], np.tile([0.1, -0.2, 0.3], (4, 1)), atol=1e-5)
    np.testing.assert_allclose(error[:, 3:], angles[:, None] * axis, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda n: wp.zeros((2, n), dtype=wp.float64, device="cpu"), "float64"),
        (lambda n: wp.zeros((3, n), dtype=wp.float32, device="cpu"), "got float32"),
    ],
)
def test_wrong_array_is_refused(chain, make, text):
    """Fails when a kernel would read past the end of an array or misread its type."""
    kinematics = ArmKinematics(chain, 2, "cpu")
    with pytest.raises(ContractError, match=f"'joint_pos' must be float32 .*{text}"):
        kinematics.forward(make(chain.num_joints))


@pytest.mark.parametrize("setting", [{"num_envs": 0}, {"dt": 0.0}, {"damping": -1.0}])
def test_wrong_setting_is_refused(chain, setting):
    """Fails when a damping of zero or an empty batch is found only as NaN on the robot."""
    with pytest.raises(ConfigError, match=f"'{next(iter(setting))}'"):
        ArmKinematics(chain, **{"num_envs": 1, **setting})
