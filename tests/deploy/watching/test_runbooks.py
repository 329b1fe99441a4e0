"""The runbooks: every command exists with its options, and every link leads somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import COMMANDS, ltzd
from tests.support.watching.rules import ROOT, RUNBOOKS

_CONNECTIONS = "http|operator|indexer|deliveries|admin|leases|wakeups"
"""`ltzd http` and the like are names of database connections."""
_COMMAND = re.compile(
    rf"(?:^ {{4}}|^\$ |`)(?:\.venv/bin/)?(ltzd (?!dev\b|local_users|(?:{_CONNECTIONS})`)[^`\n#|]+)",
    re.MULTILINE,
)


def _unknown(line: str) -> Iterator[str]:
    """The words of a command line that the program would refuse."""
    command: Any = COMMANDS
    _, *words = line.split()
    is_value = False
    for word in words:
        if is_value:
            is_value = False
            continue
        options = {name for option in command.params for name in option.opts}
        takes_value = {
            name
            for option in command.params
            if not getattr(option, "is_flag", False)
            for name in option.opts
        }
        is_value = word.startswith("--") and word in takes_value
        if hasattr(command, "commands") and not word.startswith("-"):
            if word not in command.commands:
                yield f"{line}: {word}"
                return
            command = command.commands[word]
        elif word.startswith("--") and word != "--help" and word not in options:
            yield f"{line}: {word}"


def _commands(*texts: str) -> list[str]:
    lines = [line for text in texts for line in _COMMAND.findall(text)]
    return [re.split(r"[\[\]|…{)]| && |  +| '", line)[0].strip() for line in lines]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_command_of_a_page_exists() -> None:
    lines = _commands(*(path.read_text() for path in PAGES))
    assert len(lines) > 300
    assert [fault for line in lines for fault in _unknown(line)] == []


def test_every_command_that_ltzd_tells_a_person_to_run_exists() -> None:
    modules = (path.read_text() for path in sorted((ROOT / "ltzd").rglob("*.py")))
    lines = _commands(*(re.sub(r'"\n +f?"', "", module) for module in modules))
    assert len(lines) > 100
    assert [fault for line in lines for fault in _unknown(line)] == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert list(_unknown("ltzd lane stop --config ltzd.toml")) != []
    assert list(_unknown("ltzd lane list --colour")) != []


def _blocks() -> list[str]:
    """The command lines that a person pastes."""
    return [
        line.strip()
        for path in sorted(RUNBOOKS.glob("*.md"))
        for line in re.findall(r"^ {4}(ltzd .+)$", path.read_text(), flags=re.MULTILINE)
    ]


async def test_the_roles_of_a_wallet_are_changed_by_the_commands_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options are complete, so that only the settings file, which is not here, is missing."""
    monkeypatch.chdir(tmp_path)
    lines = [line for line in _blocks() if re.match(r"ltzd wallet (grant|revoke)\b", line)]
    assert len(lines) >= 4
    for line in lines:
        wallet = re.sub(r"\b(WALLET|0xNEW|0xSTOLEN)\b", f"0x{'11' * 20}", line)
        done = await ltzd(*wallet.replace(" LTZ ", " 250000 ").split()[1:])
        assert "The settings file ltzd.toml cannot be read" in done.err, f"{line}: {done.err}"


def test_every_command_with_an_argument_or_option_names_the_settings() -> None:
    """Without them a command looks for a dev instance. A group and its command are mere names."""
    lacking = []
    for path in sorted(RUNBOOKS.glob("*.md")):
        for line in re.findall(r"(?:^ {4}|`)(ltzd [a-z][^`\n]+)", path.read_text(), re.MULTILINE):
            has_argument = re.search(r"\b[A-Z]{2,}\b|\b0x[A-Z]|--\w", line)
            needs_none = re.match(r"ltzd (key|init|dev|sandbox)\b", line) or re.search(
                r"[…\[]", line
            )
            if has_argument and not needs_none and "--config" not in line:
                lacking.append(f"{path.name}: {line}")
    assert lacking == []


def test_every_command_for_the_night_of_a_theft_names_the_settings() -> None:
    page = (RUNBOOKS / "stolen-key.md").read_text()
    commands = re.findall(r"(?:^ {4}|`)(ltzd [^`\n]+)", page, flags=re.MULTILINE)
    pasted = [line for line in commands if " key new " not in line and line != "ltzd books"]
    assert [line for line in pasted if not line.endswith(" --config ltzd.toml")] == []
    assert len(pasted) >= 10


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_link_of_the_documents_leads_to_a_page_and_a_section() -> None:
    broken = []
    for path in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            if link.startswith(("http:", "https:", "mailto:")):
                continue
            name, _, anchor = link.partition("#")
            page = path.parent / name if name else path
            has_section = not anchor or page.suffix != ".md" or anchor in _anchors(page)
            if not page.exists() or not has_section:
                broken.append(f"{path.relative_to(ROOT)}: {link}")
    assert broken == []
