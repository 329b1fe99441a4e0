"""The runbooks: every command exists with its options, and every link leads somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from ltzd.cli.main import app
from tests.support.watching.rules import ROOT, RUNBOOKS

_COMMAND = re.compile(r"(?:^ {4}|`)(ltzd (?!dev\b)[^`\n#|]+)", re.MULTILINE)


def _unknown(line: str) -> Iterator[str]:
    """The words of a command line that the program would refuse."""
    command: Any = typer.main.get_command(app)
    _, *words = line.split()
    for word in words:
        options = {name for option in command.params for name in option.opts}
        if hasattr(command, "commands") and not word.startswith("-"):
            if word not in command.commands:
                yield f"{line}: {word}"
                return
            command = command.commands[word]
        elif word.startswith("--") and word != "--help" and word not in options:
            yield f"{line}: {word}"


def _commands() -> list[str]:
    lines = []
    for path in sorted(RUNBOOKS.glob("*.md")):
        texts = _COMMAND.findall(path.read_text())
        lines += [re.split(r"[\[\]]| && | \| ", line)[0].strip() for line in texts]
    return lines


def test_every_command_of_a_runbook_exists() -> None:
    lines = _commands()
    assert len(lines) > 40
    assert [fault for line in lines for fault in _unknown(line)] == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert list(_unknown("ltzd lane stop --config ltzd.toml")) != []
    assert list(_unknown("ltzd lane list --colour")) != []


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_link_of_the_documents_leads_to_a_page_and_a_section() -> None:
    broken = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            if link.startswith(("http:", "https:", "mailto:")):
                continue
            name, _, anchor = link.partition("#")
            page = path.parent / name if name else path
            has_section = not anchor or page.suffix != ".md" or anchor in _anchors(page)
            if not page.exists() or not has_section:
                broken.append(f"{path.relative_to(ROOT)}: {link}")
    assert broken == []
