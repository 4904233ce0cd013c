# SPDX-License-Identifier: Apache-2.0
"""Which blocks make the terms of an observation, and whether they fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError
from .block import BlockWarp
from .terms import ObservationTerms


def blocks_by_term(terms: ObservationTerms, blocks: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    """Return the blocks of every term, in the order of the terms.

    Args:
        terms: The terms.
        blocks: Blocks of a term by its name; none for a term that is a signal.

    Raises:
        ConfigError: Blocks are given for an unknown term, or a term has several signals and no block.
    """
    names = [each.name for each in terms.terms]
    unknown = sorted(set(blocks) - set(names))
    if unknown:
        raise ConfigError(f"Observation has blocks for {unknown}, expected some of {names}.")
    for term in terms.terms:
        if len(term.sources) > 1 and not blocks.get(term.name):
            raise ConfigError(
                f"Term '{term.name}' takes {list(term.sources)} and needs a block that makes one of them."
            )
    return {name: tuple(blocks.get(name, ())) for name in names}


def signal_dims(terms: ObservationTerms, blocks: Mapping[str, Sequence[BlockWarp]]) -> dict[str, int]:
    """Return the number of elements of each signal, by what takes it.

    Args:
        terms: The terms.
        blocks: Blocks of every term by its name.

    Raises:
        ConfigError: Blocks of a term do not fit together, or a signal has two dimensions.
    """
    found: dict[str, int] = {}
    for term in terms.terms:
        chain = blocks[term.name]
        taken = [*(each.input_dims for each in chain), (term.dim,)]
        given = [None, *((each.output.shape[1],) for each in chain)]
        if any(give not in (None, take) for give, take in zip(given, taken, strict=True)) or (
            len(taken[0]) != len(term.sources)
        ):
            raise ConfigError(
                f"Blocks of term '{term.name}' do not fit together: from {list(term.sources)} they take {taken[:-1]} "
                f"and give {given[1:]}, and the term has dimension {term.dim}."
            )
        for name, dim in zip(term.sources, taken[0], strict=True):
            if found.setdefault(name, dim) != dim:
                raise ConfigError(f"Signal '{name}' is taken with {found[name]} and with {dim} elements.")
    return found
