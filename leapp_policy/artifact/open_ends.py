# SPDX-License-Identifier: Apache-2.0
"""The open ends of a pipeline: what comes from outside, what a step returns, what is kept between steps."""

from __future__ import annotations

from dataclasses import replace

from leapp_policy.contract.derive import Traced
from leapp_policy.contract.schema import StateSpec, Target
from leapp_policy.specs import PolicySpec, TensorSpec


def open_ends(spec: PolicySpec, side: str) -> dict[str, list[str]]:
    """Return inputs that no node makes, or outputs that a step returns, by node.

    Args:
        spec: The pipeline.
        side: ``inputs`` or ``outputs``.
    """
    taken = {source for node in spec.nodes for source in node.edges.values()}
    ends: dict[str, list[str]] = {}
    for node in spec.nodes:
        if side == "inputs":
            fed = set(node.edges) | {each.input for each in node.states}
            names = [each.name for each in node.inputs if each.name not in fed]
        else:
            kept = {each.output for each in node.states}
            if spec.results:
                names = [each for name, each in spec.results if name == node.name]
                if names:
                    ends[node.name] = names
                continue
            names = [
                each.name
                for each in node.outputs
                if (node.name, each.name) not in taken | {(node.name, k) for k in kept}
            ]
        if names:
            ends[node.name] = names
    return ends


def traced_policy(spec: PolicySpec, target: Target) -> Traced:
    """Return what a contract is held against: the open ends of a pipeline.

    Args:
        spec: The pipeline as it was written.
        target: The machine that its models are built for.
    """
    nodes = {node.name: node for node in spec.nodes}
    ends: dict[str, dict[str, TensorSpec]] = {}
    for side in ("inputs", "outputs"):
        found = ends.setdefault(side, {})
        for node, names in open_ends(spec, side).items():
            for each in getattr(nodes[node], side):
                if each.name in names:
                    found.setdefault(each.name, each)
    shapes = {(node.name, each.name): each.shape for node in spec.nodes for each in node.inputs}
    states = tuple(
        StateSpec(each.name, f"{node.name}/{each.input}", f"{node.name}/{each.output}", shapes[node.name, each.input])
        for node in spec.nodes
        for each in node.states
    )
    states = _named_apart(states)
    return Traced(
        spec.name, spec.rate_hz, tuple(ends["inputs"].values()), tuple(ends["outputs"].values()), states, target
    )


def _named_apart(states: tuple[StateSpec, ...]) -> tuple[StateSpec, ...]:
    """Two nodes may keep a state of one name: then each is named after its node, too."""
    names = [each.name for each in states]
    return tuple(
        each if names.count(each.name) == 1 else replace(each, name=f"{each.input.partition('/')[0]}/{each.name}")
        for each in states
    )
