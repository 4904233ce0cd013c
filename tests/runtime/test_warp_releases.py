# SPDX-License-Identifier: Apache-2.0
"""Older releases of Warp, with the wheels that people install (docs/warp-releases.md).

They are downloaded, 130 MB each, so these tests run with LEAPP_POLICY_LONG_TESTS=1 alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.environ.get("LEAPP_POLICY_LONG_TESTS") != "1", reason="downloads Warp wheels; set LEAPP_POLICY_LONG_TESTS=1"
)

CAPTURE = """
import sys
from pathlib import Path
import captured_kernels, numpy as np, warp as wp
from leapp_policy.deploy.native_segment import NativeSegment
assert wp.config.version == sys.argv[1], wp.config.version
segment = captured_kernels.two_module_segment()
with NativeSegment(segment.bundle, segment.json) as native:
    assert native.describe()["warp"]["version"] == sys.argv[1]
    (x,) = segment.random_inputs(0)
    np.testing.assert_allclose(native.run([x])[1], (2 * x + 1) ** 2, rtol=1e-6)
Path(sys.argv[2], "bundle").write_bytes(segment.bundle)
Path(sys.argv[2], "metadata.json").write_text(segment.json)
"""

REPLAY = """
import sys
from pathlib import Path
import numpy as np
from leapp_policy.deploy.native_segment import NativeSegment
from leapp_policy.errors import BundleError
folder = Path(sys.argv[1])
try:
    with NativeSegment((folder / "bundle").read_bytes(), (folder / "metadata.json").read_text()) as native:
        print(native.describe()["warp"]["version"], *native.run([np.arange(7, dtype=np.float32)])[1])
except BundleError as e:
    print(e)
assert "warp" not in sys.modules
"""


@pytest.fixture(scope="module", params=["1.17.0", "1.18.0"])
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A release's version and the folder that holds its package."""
    folder = tmp_path_factory.mktemp(f"warp-{request.param}")
    wheel = [f"warp-lang=={request.param}", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wheel], check=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "site")
    return request.param, folder / "site"


def python(code: str, *arguments: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin", "HOME": str(Path.home()), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_captures_and_replays(release: tuple[str, Path], tmp_path: Path) -> None:
    """A policy that was exported beside a pinned Warp would not run beside it."""
    version, site = release
    parts, temporary = tmp_path / "parts", tmp_path / "temporary"
    parts.mkdir()
    temporary.mkdir()
    places = os.pathsep.join([str(site), str(Path(__file__).parent)])
    cache = str(tmp_path / "cache")
    python(CAPTURE, version, parts, PYTHONPATH=places, TMPDIR=str(temporary), WARP_CACHE_PATH=cache)
    assert not list(temporary.glob("leapp-policy-*"))

    said = python(REPLAY, parts, LEAPP_POLICY_WARP_LIBRARY_DIR=str(site / "warp" / "bin"), TMPDIR=str(temporary))
    assert said.split() == [version, *(f"{(2.0 * i + 1.0) ** 2}" for i in range(7))]
    assert not list(temporary.iterdir())

    wrong = python(REPLAY, parts)
    assert wrong.startswith(f"Segment 'arm/0' was exported with Warp {version} (.wrp format 1")
    assert f"install warp-lang {version[:4]} or export it again with Warp 1.19." in wrong
