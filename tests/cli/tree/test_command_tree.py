"""The whole tree of commands: where each finds its instance, and how each prints facts."""

import ast
import asyncio
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ltzd.cli import main
from ltzd.cli.main import app
from ltzd.cli.options import with_config
from ltzd.store.database import Connection
from tests.support.commands import Outcome, ltzd, ltzd_apart
from tests.support.installations import Installation

RUNNING = {"run", "dev", "chain", "sandbox"}
"""Commands that run until a signal: what they have to say are their logs."""
WITHOUT_AN_INSTANCE = {"dev", "chain", "sandbox", "init", "sign", "key new", "key address"} | {
    "key import"
}
"""Commands that need neither a database nor settings."""
WITHOUT_A_DEV_INSTANCE = {"run", "deploy", "check", "doctor"}
"""Commands that are for a settings file; `ltzd dev` does their work itself."""
ASKS_A_PERSON = {"init"}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that can be run, with its whole name."""
    below = getattr(group, "commands", None)
    if below is None or group.invoke_without_command:
        yield " ".join(path), group
    for name, command in (below or {}).items():
        yield from commands(command, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT_AN_INSTANCE))
def test_a_command_for_an_instance_takes_its_settings_or_its_data_directory(name: str) -> None:
    options = options_of(COMMANDS[name])

    assert "--config" in options
    assert "--data-dir" in options or name in WITHOUT_A_DEV_INSTANCE


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_proposed_command_names_the_settings_file_if_it_takes_one(name: str) -> None:
    takes_it = "--config" in options_of(COMMANDS[name])
    proposal = f"The lane waits: `ltzd {name}` ends this, or `ltzd {name} X --config other.toml`."

    for arguments in (["--config", "my ltzd.toml"], ["X", "--config=my ltzd.toml"]):
        option = " --config 'my ltzd.toml'" if takes_it else ""
        completed = proposal.replace(f"`ltzd {name}`", f"`ltzd {name}{option}`")
        assert with_config(proposal, arguments) == completed
    assert with_config(proposal, ["--data-dir", "x", "--config"]) == proposal


MENTIONED = {
    "brand rotate-key",
    "deploy",
    "item set",
    "tx speed-up",
    "user erase",
    "wallet add",
    "wallet grant",
}
"""Commands that a sentence may name without what they require: the sentence proposes no call of
them, or the person alone knows what to give."""


def texts_of(tree: ast.AST) -> Iterator[str]:
    """The texts of a module but for its docstrings; `…` stands for each value in a text."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            left_out.update(map(id, node.values))
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in left_out:
            yield str(node.value)


def proposals() -> set[tuple[str, str]]:
    """Each command in backquotes that a text of ltzd has: its name, and what follows."""
    sources = Path(main.__file__).parents[1].rglob("*.py")
    texts = [text for path in sources for text in texts_of(ast.parse(path.read_text()))]
    proposed = {match[1] for text in texts for match in re.finditer(r"`ltzd ([a-z][^`]*)`", text)}
    by_length = sorted(COMMANDS, key=len)
    names = {
        command: name
        for name in by_length
        for command in proposed
        if f"{command} ".startswith(f"{name} ")
    }
    return {(name, command.removeprefix(name)) for command, name in names.items()}


def lacks(name: str, given: Sequence[str]) -> bool:
    """Whether the command requires an argument, or an option, that is not given.

    `--config` is completed when the sentence is printed.
    """
    required = [p.opts[0] for p in COMMANDS[name].params if p.required and p.name != "config"]
    options = {option for option in required if option.startswith("-")}
    return bool(options - set(given)) or (len(required) > len(options) and not given)


def test_a_proposed_command_has_everything_that_it_requires() -> None:
    """A person pastes it; `…` is a value that the sentence gives."""
    commands = sorted((name, following.split()) for name, following in proposals())
    assert ("tx list", []) in commands
    unknown = [
        (name, given)
        for name, given in commands
        if not {word for word in given if word.startswith("--")} <= options_of(COMMANDS[name])
    ]
    assert unknown == []
    assert [each for each in commands if lacks(*each) and each[0] not in MENTIONED] == []


async def test_what_a_command_proposes_can_be_pasted(
    tmp_path: Path, db: Connection, database_url: str
) -> None:
    settings = Installation.of(tmp_path, database_url, "http://127.0.0.1:1").write()
    await db.execute("ALTER TABLE brands RENAME TO others")

    outcome = await ltzd_apart("brand", "list", "--config", settings)

    assert f"run: ltzd migrate --config {settings} (" in outcome.err
    assert "FILE" not in outcome.err


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - RUNNING - ASKS_A_PERSON))
def test_a_command_that_prints_facts_prints_them_as_json_too(name: str) -> None:
    assert "--json" in options_of(COMMANDS[name])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_says_what_it_is_for(name: str) -> None:
    command = COMMANDS[name]

    assert command.help
    nameless = [
        parameter.name
        for parameter in command.params
        if parameter.opts[0].startswith("-") and not parameter.help
    ]
    assert nameless == []


def values_of(command: Any, value: str) -> Iterator[str]:
    """The arguments and options that the command requires, each with this value."""
    for parameter in command.params:
        if parameter.required:
            option = parameter.opts[0]
            yield from [option, value] if option.startswith("-") else [value]


@pytest.mark.parametrize("value", ["", "caf\udce9", "x" * 300, "/dev/null", "-"], ids=ascii)
async def test_a_command_answers_nonsense_with_a_sentence(value: str, data_dir: Path) -> None:
    """An exception that is not a sentence fails the test."""
    for name, command in COMMANDS.items():
        given = list(values_of(command, value))
        if not given or name in RUNNING:
            continue
        where = ["--data-dir", data_dir] if "--data-dir" in options_of(command) else []
        outcome = await ltzd(*name.split(), *given, *where)

        assert outcome.code in {1, 2}, name
        assert outcome.err or outcome.out, name
        assert "Traceback" not in outcome.err + outcome.out, name


async def test_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        shown = await ltzd(*name.split(), "--help")
        assert shown.code == 0
        assert max(map(len, shown.out.splitlines())) <= 80, name


async def completed(words: str, shell: str) -> Outcome:
    """The shell proposes these completions for the last of these words."""
    variables = {
        "_LTZD_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    return await ltzd_apart(**variables)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_shells_complete_commands_and_options(shell: str) -> None:
    groups = await completed("ltzd web", shell)
    options = await completed("ltzd event show --da", shell)

    assert "webhooks" in groups.out
    assert "wallets" not in groups.out
    assert "--data-dir" in options.out
    assert "--json" not in options.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="apt-get install bash")
async def test_the_script_for_bash_is_valid(tmp_path: Path) -> None:
    shown = await ltzd_apart(
        "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    script = tmp_path / "ltzd.bash"
    script.write_text(shown.out)

    assert "complete -o default" in shown.out
    checking = await asyncio.create_subprocess_exec("bash", "-n", script)
    assert await checking.wait() == 0
