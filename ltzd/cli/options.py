"""Options and arguments that several commands share."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

DEFAULT_DATA_DIR = Path(".ltzd")
NOT_UTF8 = (
    "An argument holds bytes that are not UTF-8: give it in UTF-8, as a terminal does if LANG ends "
    "with UTF-8."
)

DataDir = Annotated[
    Path, typer.Option("--data-dir", help="The dev instance's data directory.", metavar="DIR")
]
Config = Annotated[Path, typer.Option("--config", help="The settings file.", metavar="FILE")]
ConfigInstead = Annotated[
    Path | None,
    typer.Option("--config", help="The settings file; replaces --data-dir.", metavar="FILE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AlwaysJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, as this command does in any case.")
]
Brand = Annotated[str, typer.Argument(help="The brand's id or its exact name.", metavar="BRAND")]
OfBrand = Annotated[
    str | None, typer.Option("--brand", help="The brand's id or its exact name.", metavar="BRAND")
]
EventId = Annotated[str, typer.Argument(help="The event's id.", metavar="ID")]

KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key",
        help="Sign with this key (64 hex digits or an encrypted keystore), and send.",
        metavar="FILE",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help="The password of the keystore.", metavar="FILE"),
]
Unsigned = Annotated[
    bool,
    typer.Option("--unsigned", help="Print the transaction, for a multisig; send nothing."),
]
Sender = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="The account that will send the unsigned transaction, which is simulated.",
        metavar="0x…",
    ),
]


WITHOUT_CONFIG: Final = ("chain", "dev", "init", "key", "sandbox", "sign")
"""The commands, and groups of commands, that take no `--config`."""
_FOLLOWING_COMMAND = re.compile(rf"`ltzd\s(?!(?:{'|'.join(WITHOUT_CONFIG)})\b)[a-z][^`]*`")


def printable(text: str) -> str:
    """Escape line breaks and control characters, which a brand's file or another service may have
    put into the text to write lines of its own.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def with_config(sentence: str, arguments: Sequence[str]) -> str:
    """Name the settings file of `arguments` in each command in backquotes that names none.

    So a person can paste the command.
    """
    given = _config_of(arguments)
    if given is None:
        return sentence
    option = f"--config {shlex.quote(given)}"

    def completed(match: re.Match[str]) -> str:
        command = match[0].strip("`")
        return match[0] if "--config" in command else f"`{command} {option}`"

    return _FOLLOWING_COMMAND.sub(completed, sentence.replace("--config FILE", option))


def _config_of(arguments: Sequence[str]) -> str | None:
    for place, argument in enumerate(arguments):
        name, separator, attached = argument.partition("=")
        if name == "--config":
            following = arguments[place + 1 : place + 2]
            return attached if separator else next(iter(following), None)
    return None


def target_options(data_dir: Path, config: Path | None) -> str:
    """The options by which a following command finds the same database, after a space."""
    if config is not None:
        return f" --config {shlex.quote(str(config))}"
    return "" if data_dir == DEFAULT_DATA_DIR else f" --data-dir {shlex.quote(str(data_dir))}"
