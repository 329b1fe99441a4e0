"""Reads the alert rules of config/prometheus."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "config" / "prometheus"
RUNBOOKS: Final = ROOT / "docs" / "runbooks"


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    expression: str
    severity: str
    summary: str
    runbook: str
    """A path from the root of the sources, with or without an anchor."""
    file: Path


def rule_files() -> list[Path]:
    return sorted(FOLDER.glob("*.rules.yml"))


def alerts() -> tuple[Alert, ...]:
    return tuple(_alerts())


def recordings() -> dict[str, str]:
    """The recorded names and their expressions."""
    return {rule["record"]: rule["expr"] for _, rule in _rules() if "record" in rule}


def _alerts() -> Iterator[Alert]:
    for path, rule in _rules():
        if "alert" in rule:
            notes, severity = rule["annotations"], rule["labels"]["severity"]
            name, expression = rule["alert"], rule["expr"]
            yield Alert(name, expression, severity, notes["summary"], notes["runbook"], path)


def _rules() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in rule_files():
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield path, rule
