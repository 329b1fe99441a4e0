"""docs/scale.md lists every memory of a process, and its numbers are those of the model."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import scale_model
from benchmarks.scale_model import TODAY, Check, Costs, need

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


# --- the model -----------------------------------------------------------------------------------

SNAPSHOT = json.loads(scale_model.SNAPSHOT.read_text())
COSTS = Costs(**SNAPSHOT["costs"])
CHECKS = [Check(**check) for check in SNAPSHOT["checks"]]
ANEW = "run: python -m benchmarks.scale_model"


def test_the_page_shows_what_the_model_computes() -> None:
    shown = PAGE.partition(scale_model.BEGIN)[2].partition(scale_model.END)[0]
    assert shown == scale_model.render(COSTS, CHECKS), ANEW


@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_a_prediction_is_near_what_another_run_measured(check: Check) -> None:
    """The model leaves out waiting, so that it may promise more than was measured, but not much."""
    assert 0.6 <= check.ratio <= 1.2


def test_the_models_costs_are_those_of_the_recorded_benchmarks() -> None:
    """Recorded figures drift with the machine; a cost that has doubled is another cost."""
    for name, cost in asdict(scale_model.measured_costs()).items():
        assert 0.5 <= cost / getattr(COSTS, name) <= 2.0, f"{name}: {ANEW}"


def test_a_hundred_times_the_load_needs_a_hundred_times_the_work() -> None:
    today, hundredfold = need(TODAY, COSTS), need(TODAY.times(100), COSTS)
    for name in (
        "http_cores",
        "operator_cores",
        "delivery_cores",
        "postgres_cores",
        "wal_megabytes",
        "gas",
    ):
        assert getattr(hundredfold, name) == pytest.approx(100 * getattr(today, name))
    assert hundredfold.machines < 100 * today.machines
    assert hundredfold.mint_wallets <= 100 * today.mint_wallets
