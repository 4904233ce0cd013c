# SPDX-License-Identifier: Apache-2.0
"""The example of the C interface and the snippet of its page, as a newcomer uses them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import builders
import nlohmann_json
import numpy as np
import onnx
import pytest
import torch
import warp as wp
from onnx import TensorProto, helper

from leapp_policy.deploy import extract
from leapp_policy.deploy.library import runtime_library

ROOT = Path(__file__).parents[2]
INCLUDE = ROOT / "runtime" / "include"
ENVIRONMENT = {"LEAPP_POLICY_WARP_LIBRARY_DIR": str(Path(wp.__file__).parent / "bin")}


@pytest.fixture(scope="module")
def parts(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle and metadata of the segment of ``artifact``, without their suffixes."""
    folder = tmp_path_factory.mktemp("parts")
    assert extract.main([str(artifact / "linear.onnx"), str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["linear_0.json", "linear_0.wrpb"]
    return folder / "linear_0"


@pytest.fixture(scope="module")
def run_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("example") / "run_bundle"
    json_include = Path(nlohmann_json.__file__).parent / "include"
    source = ROOT / "runtime" / "example" / "run_bundle.cc"
    link = [str(runtime_library()), f"-Wl,-rpath,{runtime_library().parent}"]
    command = ["g++", "-std=c++17", f"-I{INCLUDE}", f"-I{json_include}", str(source), *link, "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)


def test_acts_as_the_original(parts: Path, run_bundle: Path, tmp_path: Path) -> None:
    """A robot without Python could not run what was exported."""
    shown = run(run_bundle, f"{parts}.wrpb", f"{parts}.json")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r'^inputs "\w+" "float32" \[2,3\]$', shown.stdout, re.MULTILINE)
    (name,) = re.findall(r'^outputs "(\w+)" "float32" \[2,3\]$', shown.stdout, re.MULTILINE)

    x = np.random.default_rng(5).random((2, 3), dtype=np.float32)
    x.tofile(tmp_path / "x.bin")
    done = run(run_bundle, f"{parts}.wrpb", f"{parts}.json", tmp_path, tmp_path / "x.bin")
    assert done.returncode == 0, done.stderr
    got = np.fromfile(tmp_path / f"{name}.bin", np.float32).reshape(2, 3)
    np.testing.assert_array_equal(got, builders.scaled(torch.from_numpy(x)).numpy())


def test_links_nothing_else(run_bundle: Path) -> None:
    """The program would need Python or ONNX Runtime on the robot after all."""
    listed = subprocess.run(["ldd", str(run_bundle)], capture_output=True, text=True, check=True).stdout
    names = {Path(line.split()[0]).name.split(".so")[0] for line in listed.splitlines()}
    system = {"linux-vdso", "ld-linux-x86-64", "libc", "libm", "libgcc_s", "libstdc++", "libdl", "libpthread"}
    assert names - system == {"libleapp_policy_runtime"}


def test_says_what_is_wrong(parts: Path, run_bundle: Path, tmp_path: Path) -> None:
    """A file too few, or of another batch, would be an exit code without a reason."""
    few = run(run_bundle, f"{parts}.wrpb", f"{parts}.json", tmp_path)
    assert (few.returncode, few.stderr) == (1, "error: Segment 'linear/0' takes 1 inputs, got 0.\n")
    np.zeros(3, np.float32).tofile(tmp_path / "x.bin")
    short = run(run_bundle, f"{parts}.wrpb", f"{parts}.json", tmp_path, tmp_path / "x.bin")
    assert short.returncode == 1
    assert "must have 24 bytes, got 12 bytes" in short.stderr
    damaged = tmp_path / "damaged.wrpb"
    damaged.write_bytes(Path(f"{parts}.wrpb").read_bytes()[:-1] + b"?")
    assert "bundle must have SHA-256" in run(run_bundle, damaged, f"{parts}.json").stderr
    assert "'/nowhere' could not be read" in run(run_bundle, "/nowhere", f"{parts}.json").stderr


C_MAIN = """
#include <stdlib.h>
static char* slurp(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  char* text = calloc(*size + 1, 1);
  if (fread(text, 1, *size, file) != *size) exit(3);
  return text;
}
int main(int argc, char** argv) {
  size_t bundle_size, metadata_size;
  char* bundle = slurp(argv[1], &bundle_size);
  char* metadata = slurp(argv[2], &metadata_size);
  const float q[6] = {0, 1, 2, 3, 4, 5};
  float tip[6];
  const uint64_t bytes = argc == 3 ? sizeof(q) : 4;
  if (run_once(bundle, bundle_size, metadata, q, bytes, tip, sizeof(tip)) != 0) return 1;
  for (int i = 0; i < 6; ++i) printf("%g ", tip[i]);
  return 0;
}
"""


def test_snippet_of_the_page(parts: Path, tmp_path: Path) -> None:
    """The code that people copy would not compile as C, or not do what it says."""
    page = (ROOT / "docs" / "native-runtime.md").read_text()
    (snippet,) = re.findall(r"```c\n(.*?)```", page, re.DOTALL)
    source, program = tmp_path / "embed.c", tmp_path / "embed"
    source.write_text(snippet + C_MAIN)
    link = [str(runtime_library()), f"-Wl,-rpath,{runtime_library().parent}"]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{INCLUDE}"]
    subprocess.run(["gcc", *flags, str(source), *link, "-o", str(program)], check=True)
    done = run(program, f"{parts}.wrpb", f"{parts}.json")
    assert (done.returncode, done.stdout.split()) == (0, ["0", "2", "4", "6", "8", "10"]), done.stderr
    wrong = run(program, f"{parts}.wrpb", f"{parts}.json", "wrong size")
    assert wrong.returncode == 1
    assert "must have 24 bytes, got 4 bytes" in wrong.stderr


def test_extract_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A mistyped path, a text or a model without Warp would be a traceback."""
    text = tmp_path / "text.onnx"
    text.write_text("no model")
    plain = tmp_path / "plain.onnx"
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", value[:1], value[1:])
    onnx.save(helper.make_model(graph), plain)
    for path, said in [
        (tmp_path / "none.onnx", "could not be read"),
        (text, "could not be read"),
        (plain, "has no WrpRunner node, so no Warp segment"),
    ]:
        assert extract.main([str(path), str(tmp_path / "out")]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"error: Model '{path}' ")
        assert said in error
        assert not (tmp_path / "out").exists()


def test_extract_of_one_node_twice(artifact: Path, tmp_path: Path) -> None:
    """The second segment of a name would overwrite the first."""
    (segment,) = extract.read_segments(artifact / "linear.onnx")
    with pytest.raises(extract.ArtifactError, match=r"\['linear/0', 'linear/0'\] would share files"):
        extract.write_segments([segment, segment], tmp_path)
