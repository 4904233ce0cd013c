# SPDX-License-Identifier: Apache-2.0
"""Whether a Warp kernel writes the same elements whatever its arrays hold.

Decided from the kernel's source, carefully: what is not understood counts as no. A name is *loaded* when its value
may come from an array. A pattern is fixed when no store to an array has a loaded index, and none lies under a
condition, or after an early end, that is loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

_SHAPE = ("shape", "ndim")
_ENDS = (ast.Return, ast.Break, ast.Continue)


def has_fixed_pattern(code: Any) -> bool:
    """Decide for one kernel.

    Args:
        code: Warp's ``Adjoint`` of the kernel, after Warp has generated its code once.
    """
    tree = getattr(code, "tree", None)
    if not isinstance(tree, ast.AST):
        return False
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if len(functions) != 1 or any(_may_write(each, set()) for each in code.called_user_functions):
        return False
    body, arrays = functions[0].body, _array_names(code)
    loaded = _loaded_names(body, arrays)
    return all(_is_fixed(statement, loaded, arrays, under_loaded=False) for statement in body)


def is_read(code: Any, name: str) -> bool:
    """Tell whether a kernel may read what an array holds: it does more with it than store into it or ask its shape.

    Args:
        code: Warp's ``Adjoint`` of the kernel.
        name: A parameter that is an array.
    """
    tree = getattr(code, "tree", None)
    if not isinstance(tree, ast.AST):
        return True
    harmless: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            harmless |= {id(_root_node(target)) for target in _stores(node)}
        elif isinstance(node, ast.Attribute) and node.attr in _SHAPE:
            harmless.add(id(node.value))
    return any(isinstance(node, ast.Name) and node.id == name and id(node) not in harmless for node in ast.walk(tree))


def _may_write(function: Any, seen: set[int]) -> bool:
    """Whether a ``@wp.func`` may store into memory: natively, or through any subscript that is not a local's."""
    if function.native_snippet is not None:
        return True
    if id(function) in seen:
        return False
    seen.add(id(function))
    tree = getattr(function.adj, "tree", None)
    if not isinstance(tree, ast.AST):
        return True
    arrays = _array_names(function.adj)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node).startswith(("atomic_", "tile_")):
            return True
        if any(_root(target) in arrays or _root(target) is None for target in _stores(node)):
            return True
    return any(_may_write(each, seen) for each in function.adj.called_user_functions)


def _array_names(code: Any) -> set[str]:
    return {each.label for each in code.args if hasattr(each.type, "ndim") and hasattr(each.type, "dtype")}


def _loaded_names(body: list[ast.stmt], arrays: set[str]) -> set[str]:
    """Names whose values may come from an array, in any order of execution."""
    loaded = set(arrays)
    while True:
        before = len(loaded)
        for node in (each for statement in body for each in ast.walk(statement)):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if _is_loaded(node.value, loaded):
                    loaded |= {name for target in targets for name in _names(target)}
            elif isinstance(node, ast.NamedExpr) and _is_loaded(node.value, loaded):
                loaded.add(node.target.id)
        # A variable that is set under a loaded condition, or as often as a loaded number says, tells of it.
        for node in (each for statement in body for each in ast.walk(statement)):
            if _is_governed(node, loaded):
                loaded |= {name for each in ast.walk(node) for name in _assigned(each)}
        if len(loaded) == before:
            return loaded


def _is_governed(statement: ast.AST, loaded: set[str]) -> bool:
    """Whether loaded values decide if, or how often, the statements inside of one run."""
    if isinstance(statement, (ast.If, ast.While)):
        return _is_loaded(statement.test, loaded)
    return isinstance(statement, ast.For) and _is_loaded(statement.iter, loaded)


def _assigned(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _names(target)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
        yield from _names(node.target)


def _names(target: ast.AST) -> Iterator[str]:
    """Names that an assignment changes: of ``v[i] = …`` it is ``v``."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _names(each)
    elif isinstance(target, (ast.Subscript, ast.Attribute, ast.Starred)):
        yield from _names(target.value)


def _is_loaded(expression: ast.AST, loaded: set[str]) -> bool:
    """Whether a value may come from an array; the shape of an array does not."""
    if isinstance(expression, ast.Attribute) and expression.attr in _SHAPE:
        return False
    if isinstance(expression, ast.Name):
        return expression.id in loaded
    return any(_is_loaded(child, loaded) for child in ast.iter_child_nodes(expression))


def _is_fixed(statement: ast.stmt, loaded: set[str], arrays: set[str], *, under_loaded: bool) -> bool:
    for target in _stores(statement):
        root = _root(target)
        if root is None or (root in loaded and root not in arrays):
            return False  # through a view, a struct, or something else that is not a plain array
        if root in arrays and (under_loaded or isinstance(statement, ast.AugAssign)):
            return False
        if root in arrays and any(_is_loaded(index, loaded) for index in _indices(target)):
            return False
    if under_loaded and isinstance(statement, _ENDS):
        return False
    for call in (node for node in _own_nodes(statement) if isinstance(node, ast.Call)):
        if _called(call).startswith(("atomic_", "tile_")):
            return False
    if isinstance(statement, (ast.With, ast.Try, ast.FunctionDef, ast.ClassDef, ast.Match)):
        return False
    under_loaded = under_loaded or _is_governed(statement, loaded)
    children = [*getattr(statement, "body", []), *getattr(statement, "orelse", [])]
    return all(_is_fixed(child, loaded, arrays, under_loaded=under_loaded) for child in children)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without the statements inside of it."""
    pending = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while pending:
        node = pending.pop()
        yield node
        pending += ast.iter_child_nodes(node)


def _stores(node: ast.AST) -> list[ast.Subscript]:
    """Subscripts that a statement assigns to."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    else:
        return []
    flat = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [each for each in flat if isinstance(each, ast.Subscript)] + [
        each.value for each in flat if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Subscript)
    ]


def _root(target: ast.expr) -> str | None:
    """The name that a chain of subscripts begins with; None for anything else."""
    node = _root_node(target)
    return node.id if isinstance(node, ast.Name) else None


def _root_node(target: ast.expr) -> ast.expr:
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _indices(target: ast.expr) -> Iterator[ast.expr]:
    while isinstance(target, ast.Subscript):
        yield target.slice
        target = target.value


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
