"""The result of one check: a level, a sentence, and what to do."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """ltzd runs; a person should act."""
    FAULT = "fault"
    """ltzd does not start."""


class Finding(msgspec.Struct, frozen=True):
    """`check` names the check, such as `contracts`. `sentence` includes what to do."""

    check: str
    level: Level
    sentence: str


def ok(check: str, sentence: str) -> Finding:
    return Finding(check, Level.OK, sentence)


def warning(check: str, sentence: str) -> Finding:
    return Finding(check, Level.WARNING, sentence)


def fault(check: str, sentence: str) -> Finding:
    return Finding(check, Level.FAULT, sentence)


def faults_in(findings: Iterable[Finding]) -> list[str]:
    return [finding.sentence for finding in findings if finding.level is Level.FAULT]


def warnings_in(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is Level.WARNING]
