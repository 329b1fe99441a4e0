"""Prints findings: a line for each, with what to do; the faults come first."""

import sys
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ltzd.cli.options import with_config
from ltzd.cli.output import plain_text, print_json, print_page
from ltzd.rules.checks.findings import Finding, Level

_ORDER = (Level.FAULT, Level.WARNING, Level.OK)
_STYLES = {Level.FAULT: "bold red", Level.WARNING: "yellow", Level.OK: "green"}


def print_findings(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(findings))
        return
    lines: list[RenderableType] = []
    for finding in sorted(findings, key=lambda each: _ORDER.index(each.level)):
        lines.append(Text(f"{finding.level.value} {finding.check}", _STYLES[finding.level]))
        sentence = plain_text(with_config(finding.sentence, sys.argv))
        lines.append(Padding(sentence, (0, 0, 0, 2), expand=False))
    print_page(Group(*lines))


def as_document(findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "ok": not has_fault(findings),
        "findings": [
            {"check": each.check, "level": each.level.value, "sentence": each.sentence}
            for each in findings
        ],
    }


def has_fault(findings: Sequence[Finding]) -> bool:
    return any(finding.level is Level.FAULT for finding in findings)
