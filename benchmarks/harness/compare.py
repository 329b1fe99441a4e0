"""`python -m benchmarks.harness.compare A B [NAME ...]`: which ratios changed between two commits.

Each commit is checked out into a folder of its own and set up there. Each round runs every
benchmark once on A and once on B, in turn, so that a machine that drifts drifts for both. A ratio
has changed if the rounds of A and B do not overlap and their medians differ by more than a
twentieth. Absolute figures are not compared.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.results import FOLDER

ROOT = Path(__file__).parents[2]
LEAST_CHANGE = 0.05
DEFAULT = ("signing", "intake", "bulk", "relays", "perks", "webhooks")

Values = Mapping[str, Sequence[float]]
"""Each ratio's rounds by its name."""


def verdict(before: Sequence[float], after: Sequence[float], *, is_lower_better: bool) -> str:
    """`better`, `worse`, or empty for a difference that the rounds do not show."""
    if min(after) <= max(before) and min(before) <= max(after):
        return ""
    change = median(after) / median(before) - 1
    if abs(change) <= LEAST_CHANGE:
        return ""
    return "better" if (change < 0) == is_lower_better else "worse"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.harness.compare", description=__doc__
    )
    parser.add_argument("before", metavar="A")
    parser.add_argument("after", metavar="B")
    parser.add_argument("names", nargs="*", metavar="NAME", default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ltzd-compare-") as name, ExitStack() as stack:
        sides = {
            commit: stack.enter_context(_checked_out(commit, Path(name) / str(number)))
            for number, commit in enumerate((options.before, options.after))
        }
        measured: dict[str, dict[str, list[float]]] = {
            commit: defaultdict(list) for commit in sides
        }
        lower: set[str] = set()
        for _ in range(options.rounds):
            for benchmark in options.names:
                for commit, folder in sides.items():
                    for ratio in _ratios(folder, benchmark):
                        measured[commit][ratio["name"]].append(ratio["value"])
                        if ratio["is_lower_better"]:
                            lower.add(ratio["name"])
    _print(measured[options.before], measured[options.after], lower)


@contextmanager
def _checked_out(commit: str, folder: Path) -> Iterator[Path]:
    _git("worktree", "add", "--detach", "--quiet", str(folder), commit)
    try:
        # The second installs anvil.
        for command in (["make", "setup"], ["scripts/with-node", "true"]):
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True)


def _ratios(folder: Path, benchmark: str) -> list[dict[str, Any]]:
    """The ratios of one round of a benchmark, run by this commit's own program."""
    program = [str(folder / ".venv/bin/python"), "-m", "benchmarks", benchmark, "--rounds", "1"]
    subprocess.run(program, cwd=folder, check=True, stdout=sys.stderr)
    content = json.loads((folder / FOLDER.relative_to(ROOT) / f"{benchmark}.json").read_text())
    return [entry for entry in content["found"] if "value" in entry]


def _print(before: Values, after: Values, lower: set[str]) -> None:
    print("| ratio | A | B | B ÷ A | |\n|---|---|---|---|---|")
    for name in sorted(before.keys() & after.keys()):
        change_seen = verdict(before[name], after[name], is_lower_better=name in lower)
        sides = [
            f"{median(each):.2f} ({min(each):.2f} to {max(each):.2f})"
            for each in (before[name], after[name])
        ]
        change = median(after[name]) / median(before[name])
        print(f"| {name} | {sides[0]} | {sides[1]} | {change:.2f} | {change_seen} |")
    for name in sorted(before.keys() ^ after.keys()):
        print(f"| {name} | {'only in A' if name in before else 'only in B'} | | | |")


if __name__ == "__main__":
    main()
