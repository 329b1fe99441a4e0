"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_DATA_DIR = Path(".ltzd")

DataDir = Annotated[
    Path, typer.Option("--data-dir", help="The dev instance's data directory.", metavar="DIR")
]
Config = Annotated[Path, typer.Option("--config", help="The settings file.", metavar="FILE")]
ConfigInstead = Annotated[
    Path | None,
    typer.Option("--config", help="The settings file, instead of --data-dir.", metavar="FILE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Brand = Annotated[str, typer.Argument(help="The brand's id or its exact name.", metavar="BRAND")]
EventId = Annotated[str, typer.Argument(help="The event's id.", metavar="ID")]

KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key",
        help="The registrar's key: 64 hex digits or an encrypted keystore. Signs and sends.",
        metavar="FILE",
    ),
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", help="Of the keystore.", metavar="FILE")
]
Unsigned = Annotated[
    bool, typer.Option("--unsigned", help="Send nothing: print the transaction, for a multisig.")
]
Sender = Annotated[
    str | None,
    typer.Option("--from", help="Who will send it; it is tried out as theirs.", metavar="0x…"),
]
