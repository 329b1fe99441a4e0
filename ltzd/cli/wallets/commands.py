"""The names and options of `ltzd wallets …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from pathlib import Path
from typing import Annotated

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, ConfigInstead, DataDir

app = typer.Typer(
    help="Custodial wallets of users, and the master key that encrypts them (the operator's own "
    "wallets: `ltzd wallet`).",
    no_args_is_help=True,
)


@app.command("list")
def list_(
    show_names: Annotated[
        bool,
        typer.Option("--show-names", help="Show e-mail addresses, account ids and logins."),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most wallets to list.")] = 50,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List the custodial wallets, newest first, with the kinds of their owners' accounts."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.wallets import views as wallet_views

    target = resolve_target(data_dir, config)
    wallet_views.list_wallets(target, limit, show_names=show_names, as_json=as_json)


@app.command("rotate-master-key")
def rotate_master_key(
    new_key_file: Annotated[
        Path,
        typer.Option(
            "--new-key-file", help="The new master key: the first line of FILE.", metavar="FILE"
        ),
    ],
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Encrypt all brands' and wallets' keys with another master key; may be repeated."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.wallets import master_key

    master_key.rotate(resolve_target(data_dir, config), new_key_file, as_json=as_json)
