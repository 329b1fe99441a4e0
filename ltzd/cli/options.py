"""Options and arguments that several commands share."""

import shlex
from pathlib import Path
from typing import Annotated

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


def target_options(data_dir: Path, config: Path | None) -> str:
    """The options by which a following command finds the same database, after a space."""
    if config is not None:
        return f" --config {shlex.quote(str(config))}"
    return "" if data_dir == DEFAULT_DATA_DIR else f" --data-dir {shlex.quote(str(data_dir))}"
