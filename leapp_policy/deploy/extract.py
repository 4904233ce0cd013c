# SPDX-License-Identifier: Apache-2.0
"""The command ``leapp-policy-extract-segment``: write a model's Warp segments to files.

A program without ONNX Runtime opens them through the C interface; see ``docs/native-runtime.md``. Imports neither
torch nor Warp.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from leapp_policy.errors import ArtifactError, LeappPolicyError

_OP_TYPE = "WrpRunner"


@dataclass(frozen=True)
class ExtractedSegment:
    """One segment of a model.

    Attributes:
        name: Its name, ``<node>/<number>``; of a model that LEAPP wrote, ``segment/<number>``.
        bundle: WRPB archive.
        runtime_metadata: The JSON text that belongs to it.
    """

    name: str
    bundle: bytes
    runtime_metadata: str


def read_segments(model_path: Path) -> list[ExtractedSegment]:
    """Read the segments of a model.

    Args:
        model_path: The ``.onnx`` file.

    Returns:
        Its segments in the order in which they run.

    Raises:
        ArtifactError: The file is no ONNX model, has no segment, or has one without its parts.
    """
    try:
        graph = onnx.load(str(model_path)).graph
    except (OSError, DecodeError) as e:
        raise ArtifactError(f"Model '{model_path}' could not be read ({e}); name an exported '.onnx' file") from e
    constants = {tensor.name: tensor for tensor in graph.initializer}
    segments = []
    for node in graph.node:
        if node.op_type != _OP_TYPE:
            continue
        metadata = next((a.s.decode() for a in node.attribute if a.name == "runtime_metadata"), None)
        bundle = constants.get(node.input[-1]) if node.input else None
        if metadata is None or bundle is None:
            raise ArtifactError(
                f"Node '{node.name}' of model '{model_path}' lacks the attribute 'runtime_metadata' or its constant "
                "bundle; export the model again"
            )
        name = json.loads(metadata).get("leapp_policy", {}).get("segment", f"segment/{len(segments)}")
        segments.append(ExtractedSegment(name, numpy_helper.to_array(bundle).tobytes(), metadata))
    if not segments:
        raise ArtifactError(
            f"Model '{model_path}' has no {_OP_TYPE} node, so no Warp segment; name a model of a policy that calls Warp"
        )
    return segments


def write_segments(segments: Sequence[ExtractedSegment], out_dir: Path) -> list[Path]:
    """Write ``<name>.wrpb`` and ``<name>.json`` of each segment; a slash in a name becomes ``_``.

    Args:
        segments: What :func:`read_segments` gave.
        out_dir: Folder to write to; made if need be.

    Returns:
        The bundles' paths.

    Raises:
        ArtifactError: Two segments would share a file.
    """
    stems = [re.sub(r"[^\w.-]", "_", segment.name) for segment in segments]
    if len(set(stems)) != len(stems):
        raise ArtifactError(
            f"Segments {[s.name for s in segments]} would share files; rename their nodes and export again"
        )
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = []
    for stem, segment in zip(stems, segments, strict=True):
        paths.append(out_dir / f"{stem}.wrpb")
        paths[-1].write_bytes(segment.bundle)
        (out_dir / f"{stem}.json").write_text(segment.runtime_metadata)
    return paths


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        Exit code: 0, or 1 when the model has no segments to write.
    """
    parser = argparse.ArgumentParser(
        prog="leapp-policy-extract-segment", description="Write the Warp segments of an exported model to files."
    )
    parser.add_argument("model", type=Path, help="an exported .onnx file")
    parser.add_argument("out_dir", type=Path, help="folder for <segment>.wrpb and <segment>.json")
    args = parser.parse_args(argv)
    try:
        paths = write_segments(read_segments(args.model), args.out_dir)
    except LeappPolicyError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    for path in paths:
        print(f"wrote {path} and {path.with_suffix('.json').name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
