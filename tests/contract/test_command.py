# SPDX-License-Identifier: Apache-2.0
"""``leapp-policy contract``: tables that people read, exit codes that scripts read."""

from __future__ import annotations

from pathlib import Path

import contracts
import pytest
import yaml

from leapp_policy.cli.main import main
from leapp_policy.contract import Contract, Joint, Term
from leapp_policy.contract.diff import diff_contracts

ORDER = "FR_hip,FL_hip,FR_thigh,FL_thigh,FR_calf,FL_calf"


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["contrct", "diff"], "command 'contrct', expected one of ['contract', 'pack']; did you mean 'contract'?"),
        (["contract", "dif", "a", "b"], "leapp-policy contract has no command 'dif'"),
        (["contract", "dif", "a", "b"], "did you mean 'diff'?"),
        (["contract", "show", "nowhere.onnx"], "Contract file 'nowhere.onnx' does not exist"),
    ],
)
def test_typo(arguments: list[str], match: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The user would get a traceback, or a list of options without the right word."""
    assert main(arguments) == 2
    assert match in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody would find the commands."""
    assert main(["--help"]) == 0
    assert "contract" in capsys.readouterr().out
    assert main([]) == 2


def test_show_is_the_contract(legs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown could not be read again."""
    assert main(["contract", "show", str(legs)]) == 0
    shown = Contract.from_dict(yaml.safe_load(capsys.readouterr().out))
    assert shown.joints == contracts.legs_contract().joints


def test_show_of_an_edited_artifact(legs_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A contract that nothing would load would look like a good one."""
    contracts.edit_manifest(legs_copy, scale=0.35)
    assert main(["contract", "show", str(legs_copy)]) == 2
    assert "was changed after it was sealed" in capsys.readouterr().err


def test_diff(legs: Path, legs_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F6: a scale of .35 where training had .55 would be found on the robot."""
    assert main(["contract", "diff", str(legs), str(legs / "legs.onnx")]) == 0
    assert "equal" in capsys.readouterr().out
    contracts.edit_manifest(legs_copy, scale=0.35)
    assert main(["contract", "diff", str(legs), str(legs_copy)]) == 1
    out = capsys.readouterr().out
    assert "1 difference" in out
    assert "actions/legs/scale" in out
    assert "[2.0, 0.35, 2.0]" in out


def test_diff_of_deploy_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F6: two deploy.yaml could not be compared by joints."""
    first = contracts.DATA / "go2_deploy.yaml"
    second = tmp_path / "go2_deploy.yaml"
    second.write_text(first.read_text().replace("0.25, 0.35, 0.35", "0.25, 0.35, 0.55"))
    assert main(["contract", "diff", str(first), str(second), "--order", ORDER]) == 1
    assert "actions/JointPositionAction/scale" in capsys.readouterr().out
    assert main(["contract", "diff", str(first), str(second)]) == 2
    assert main(["contract", "diff", str(first), str(second), "--order", ORDER, "--tolerance", "0.21"]) == 0


def test_diff_matches_by_name() -> None:
    """Two orders of the same joints would look like other gains of every joint."""
    first = Contract(joints=(Joint("a", kp=1.0), Joint("b", kp=2.0)))
    second = Contract(joints=(Joint("b", kp=2.0), Joint("a", kp=1.5)))
    assert [(each.path, each.first, each.second) for each in diff_contracts(first, second)] == [
        ("joints in order", "[a, b]", "[b, a]"),
        ("joints/a/kp", "1.0", "1.5"),
    ]
    (found,) = diff_contracts(Contract(joints=(Joint("a", kp=1.0),)), Contract(joints=(Joint("a"),)))
    assert (found.path, found.second) == ("joints/a/kp", "not stated")


def test_one_number_for_all_is_that_number_for_each() -> None:
    """Two ways to write one thing would look like a difference."""
    one, each = (Contract(observations=(Term("t", 2, scale=scale),)) for scale in (0.5, (0.5, 0.5)))
    assert diff_contracts(one, each) == []
    assert diff_contracts(each, one) == []


ROBOT = """
name: biped
rate_hz: 50
signals:
- {name: pitch, dim: 1, unit: rad, frame: base}
- {name: joint_pos, dim: 3, kind: state/joint/position, unit: rad}
- {name: root_quat, dim: 4, frame: world, quat_order: xyzw}
joints: [{name: ankle}, {name: hip}, {name: knee}]
"""


def test_bind(legs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The map from policy to robot would be seen by nobody before the robot moves."""
    path = tmp_path / "robot.yaml"
    path.write_text(ROBOT)
    assert main(["contract", "bind", str(legs), str(path)]) == 0
    assert "targets, elements [2, 0, 1]  ->  ankle, hip, knee" in capsys.readouterr().out
    path.write_text(ROBOT.replace("unit: rad, frame: base", "unit: deg, frame: base"))
    assert main(["contract", "bind", str(legs), str(path)]) == 1
    assert "needs unit 'rad', signal 'pitch' has 'deg'" in capsys.readouterr().err


def test_seal_of_what_is_no_artifact_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The user would get a traceback."""
    assert main(["contract", "seal", str(tmp_path)]) == 2
    assert "must be a folder with one <name>.yaml" in capsys.readouterr().err
    (tmp_path / "p.yaml").write_text(
        yaml.safe_dump({"models": {}, "pipeline": {"data_flow": {}, "feedback_flow": {}, "outputs": {}}})
    )
    assert main(["contract", "seal", str(tmp_path)]) == 2
    assert "was not written by leapp-policy" in capsys.readouterr().err
