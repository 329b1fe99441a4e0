"""docs/scale.md lists every memory of a process, and its numbers are those of the model."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text()
CACHES = {"LRUCache", "TTLCache", "TLRUCache", "CachedValue"}
PURE_CACHES = {"cache", "lru_cache"}
TEST = r"`(tests/[\w/.]+\.py)::(\w+)`"
MODULES = [
    path
    for path in sorted((ROOT / "ltzd").rglob("*.py"))
    if path.relative_to(ROOT).parts[1] not in {"cli", "dev"}
]


def rows() -> list[str]:
    return [line for line in PAGE.splitlines() if line.startswith("| ") and "`tests/" in line]


def name_of(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def modules_with_a_cache() -> Iterator[str]:
    for path in MODULES:
        if "concurrency" in path.parts:
            continue  # The caches' own implementation.
        nodes = list(ast.walk(ast.parse(path.read_text())))
        calls = {name_of(node) for node in nodes if isinstance(node, ast.Call)}
        classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
        if calls & CACHES or any(name.endswith("Cache") for name in classes):
            yield path.relative_to(ROOT).as_posix()


def test_every_module_that_caches_is_in_the_list() -> None:
    caching = set(modules_with_a_cache())
    assert len(caching) >= 15
    listed = set(re.findall(r"`(ltzd/[\w/]+\.py)`", "\n".join(rows())))
    assert not caching - listed, "docs/scale.md does not say what this may get wrong"
    assert all((ROOT / name).is_file() for name in listed), listed


def test_every_row_names_a_test_that_exists() -> None:
    named = re.findall(TEST, PAGE)
    assert len(named) >= len(rows()) >= 35
    for file, name in named:
        assert re.search(rf"def {name}\(", (ROOT / file).read_text()), f"{file}::{name}"


def test_a_cached_function_depends_on_its_arguments_alone() -> None:
    """A method of an object, or a function that waits, has more inputs than its arguments."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                name_of(decorator) in PURE_CACHES for decorator in node.decorator_list
            ):
                assert isinstance(node, ast.FunctionDef), f"{path}: {node.name}"
                names = [argument.arg for argument in node.args.args]
                assert "self" not in names, f"{path}: {node.name}"
