"""The results of a benchmark: a JSON file, and lines of the table in docs/benchmarks.md."""

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.processes import cores

FOLDER = Path(__file__).parents[1] / "results"
DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of several rounds, each of which measured both sides.

    `must` and `aim` are lower bounds, or upper bounds if `is_lower_better`. A ratio without a goal
    has None.
    """

    name: str
    rounds: tuple[float, ...]
    figures: str
    """The absolute figures of both sides, as text."""
    must: float | None = None
    aim: float | None = None
    is_lower_better: bool = False

    @property
    def value(self) -> float:
        return median(self.rounds)

    @property
    def verdict(self) -> str:
        if self.aim is not None and self._reaches(self.aim):
            return "aim met"
        if self.must is None:
            return ""
        return "must met" if self._reaches(self.must) else "MISSED"

    def _reaches(self, bound: float) -> bool:
        return self.value <= bound if self.is_lower_better else self.value >= bound

    def line(self) -> str:
        spread = f"{min(self.rounds):.2f} to {max(self.rounds):.2f}"
        cells = [
            self.name,
            f"**{self.value:.2f}** ({spread})",
            self._goal(self.must),
            self._goal(self.aim),
            self.verdict,
            self.figures,
        ]
        return _row(cells)

    def _goal(self, bound: float | None) -> str:
        sign = "≤" if self.is_lower_better else "≥"
        return "" if bound is None else f"{sign} {bound:g}"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "rounds": self.rounds,
            "must": self.must,
            "aim": self.aim,
            "is_lower_better": self.is_lower_better,
            "verdict": self.verdict,
            "figures": self.figures,
        }


@dataclass(frozen=True, slots=True)
class Figure:
    """An absolute figure without a goal."""

    name: str
    figures: str

    def line(self) -> str:
        return _row([self.name, "", "", "", "", self.figures])

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "figures": self.figures}


Measurement = Ratio | Figure


def _row(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def record(
    name: str, measurements: Sequence[Measurement], details: Any, *, in_document: bool
) -> None:
    """Prints the measurements, writes `results/NAME.json`, and updates the document's lines."""
    content = {
        "benchmark": name,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "sanic": version("sanic"),
        "cores": cores(),
        "found": [measurement.as_json() for measurement in measurements],
        "details": details,
    }
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(*(measurement.line() for measurement in measurements), sep="\n", flush=True)
    if in_document:
        for measurement in measurements:
            _put_line(measurement)


def _put_line(measurements: Measurement) -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = f"| {measurements.name} |"
    at = next((index for index, line in enumerate(lines) if line.startswith(start)), None)
    if at is None:
        at = 1 + max(index for index, line in enumerate(lines) if line.startswith("|"))
        lines.insert(at, "")
    lines[at] = measurements.line()
    DOCUMENT.write_text("\n".join(lines) + "\n", encoding="utf-8")
