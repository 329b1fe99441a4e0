"""The names and options of `ltzd key …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from pathlib import Path
from typing import Annotated

import typer

from ltzd.cli.options import AsJson

app = typer.Typer(
    help="Keystores: the encrypted keys of the operator's wallets.", no_args_is_help=True
)

NewFile = Annotated[
    Path, typer.Argument(help="The keystore to write; it must not exist.", metavar="FILE")
]
NewPasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="The keystore's password; without it, the terminal is asked.",
        metavar="FILE",
    ),
]


@app.command()
def new(file: NewFile, password_file: NewPasswordFile = None, as_json: AsJson = False) -> None:
    """Make a new key, write it to an encrypted keystore, and print its address."""
    from ltzd.cli.key import keystores

    keystores.new(file, password_file, as_json=as_json)


@app.command("import")
def import_(
    file: NewFile,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="The key's file (64 hex digits); without it, standard input is read.",
            metavar="FILE",
        ),
    ] = None,
    password_file: NewPasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Write an existing key to an encrypted keystore, and print its address."""
    from ltzd.cli.key import keystores

    keystores.import_key(file, key_file, password_file, as_json=as_json)


@app.command()
def address(
    file: Annotated[
        Path, typer.Argument(help="A keystore, or a file with 64 hex digits.", metavar="FILE")
    ],
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            help="Decrypt the keystore with this password, to prove the address.",
            metavar="FILE",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the address of a key; without the password, the one that the keystore names."""
    from ltzd.cli.key import keystores

    keystores.address(file, password_file, as_json=as_json)
