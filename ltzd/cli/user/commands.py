"""The names and options of `ltzd user …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from typing import Annotated

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AlwaysJson, AsJson, ConfigInstead, DataDir

app = typer.Typer(
    help="What is stored about one user: shown, exported, erased.", no_args_is_help=True
)

_User = Annotated[
    str,
    typer.Argument(help="An e-mail address, a user id, or a wallet's address.", metavar="USER"),
]


@app.command()
def show(
    user: _User,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Show a user's wallets and how many rows each table has; no e-mail address."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.user import views

    views.show(resolve_target(data_dir, config), user, as_json=as_json)


@app.command()
def export(
    user: _User,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
    as_json: AlwaysJson = False,
) -> None:
    """Print all that is stored about a user, personal data included, as JSON."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.user import views

    views.export(resolve_target(data_dir, config), user)


@app.command()
def erase(
    user: _User,
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Erase without asking.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Erase a user's e-mail address and names, end links, and say what stays; may be repeated."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.user import erase as erasing

    target = resolve_target(data_dir, config)
    erasing.erase(target, user, is_confirmed=is_confirmed, as_json=as_json)


@app.command()
def erasures(
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List the users whom `user erase` has erased: erase them again after restoring a backup."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.user import views

    views.list_erasures(resolve_target(data_dir, config), as_json=as_json)
