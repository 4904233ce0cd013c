# SPDX-License-Identifier: Apache-2.0
"""Draw a pipeline: its nodes, what they take and give, where Warp segments and state are."""

from __future__ import annotations

from html import escape

from leapp_policy.specs import NodeSpec, PolicySpec, TensorSpec

_ROW, _WIDTH, _GAP, _STUB, _TOP = 22, 400, 90, 34, 64
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b2733}.t{font-weight:600;font-size:14px}.s{font-size:11px;fill:#5b6b7b}"
    ".n{fill:#f4f7fa;stroke:#5b6b7b}.w{fill:#e3f2e6;stroke:#3c8d50}.e{fill:none;stroke:#5b6b7b;stroke-width:1.5}"
    ".f{fill:none;stroke:#c76a15;stroke-width:1.5;stroke-dasharray:5 4}"
)


def draw_pipeline(spec: PolicySpec) -> str:
    """Return the picture of a pipeline as SVG.

    Args:
        spec: The pipeline.
    """
    heights = [_node_height(node) for node in spec.nodes]
    tallest = max(heights, default=0)
    width = 2 * _STUB + len(spec.nodes) * (_WIDTH + _GAP) - _GAP + 40
    height = _TOP + tallest + 24
    body = [
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text class="t" x="20" y="28">{escape(spec.name)}</text>',
        f'<text class="s" x="20" y="46">layout {spec.layout.value}; green: Warp segments; dashed: state</text>',
    ]
    outputs: dict[tuple[str, str], tuple[int, int]] = {}
    taken = {source for node in spec.nodes for source in node.edges.values()}
    every = {(node.name, tensor.name) for node in spec.nodes for tensor in node.outputs}
    returned = set(spec.results) or every - taken
    for index, node in enumerate(spec.nodes):
        body += _node(node, 20 + _STUB + index * (_WIDTH + _GAP), heights[index], outputs, returned)
    inner = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f"<style>{_STYLE}</style>\n{inner}\n</svg>\n"
    )


def _node_height(node: NodeSpec) -> int:
    return 58 + _ROW * max(len(node.inputs), len(node.outputs), 1) + (_ROW if node.segments else 0)


def _node(
    node: NodeSpec,
    left: int,
    height: int,
    made: dict[tuple[str, str], tuple[int, int]],
    returned: set[tuple[str, str]],
) -> list[str]:
    """Draw one node with its edges; note where its outputs leave."""
    kept_in = {each.input: each for each in node.states}
    kept_out = {each.output for each in node.states}
    body = [
        f'<rect class="n" x="{left}" y="{_TOP}" width="{_WIDTH}" height="{height}" rx="8"/>',
        f'<text class="t" x="{left + 12}" y="{_TOP + 22}">{escape(node.name)}</text>',
    ]
    for row, tensor in enumerate(node.inputs):
        y = _TOP + 48 + row * _ROW
        source = node.edges.get(tensor.name)
        if source in made:
            x0, y0 = made[source]
            middle = (x0 + left) / 2
            body.append(f'<path class="e" d="M{x0} {y0} C{middle} {y0} {middle} {y} {left} {y}"/>')
        else:
            body.append(f'<path class="{"f" if tensor.name in kept_in else "e"}" d="M{left - _STUB} {y} H{left}"/>')
            body.append(f'<circle cx="{left - _STUB}" cy="{y}" r="3" fill="#5b6b7b"/>')
        body.append(f'<text x="{left + 10}" y="{y + 4}">{_label(tensor)}</text>')
    right = left + _WIDTH
    for row, tensor in enumerate(node.outputs):
        y = _TOP + 48 + row * _ROW
        made[node.name, tensor.name] = (right, y)
        if tensor.name in kept_out or (node.name, tensor.name) in returned:
            kind = "f" if tensor.name in kept_out else "e"
            body.append(f'<path class="{kind}" d="M{right} {y} h{_STUB}"/>')
            tip = right + _STUB
            body.append(f'<path d="M{tip} {y} l-6 -4 v8 z" fill="#5b6b7b"/>')
        body.append(f'<text x="{right - 10}" y="{y + 4}" text-anchor="end">{_label(tensor)}</text>')
    if node.segments:
        y = _TOP + height - _ROW - 10
        calls = sum(len(segment.calls) for segment in node.segments)
        text = f"{len(node.segments)} Warp segment(s), {calls} calls"
        body.append(f'<rect class="w" x="{left + 10}" y="{y}" width="{_WIDTH - 20}" height="{_ROW}" rx="5"/>')
        body.append(f'<text class="s" x="{left + 18}" y="{y + 15}">{text}</text>')
    return body


def _label(tensor: TensorSpec) -> str:
    shape = "\u00d7".join(map(str, tensor.shape))
    return f'{escape(tensor.name)} <tspan class="s">{shape}</tspan>'
