"""The names and options of `ltzd business …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from functools import partial
from typing import Annotated

import typer

from ltzd.cli.options import (
    DEFAULT_DATA_DIR,
    AsJson,
    ConfigInstead,
    DataDir,
    KeyFile,
    PasswordFile,
    Sender,
    Unsigned,
)

app = typer.Typer(
    help="Businesses that users may lock LTZ for: for the REGISTRAR.", no_args_is_help=True
)

Address = Annotated[str, typer.Argument(help="The business's wallet.", metavar="ADDRESS")]


@app.command()
def create(
    address: Address,
    key: KeyFile = None,
    password_file: PasswordFile = None,
    unsigned: Unsigned = False,
    sender: Sender = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Approve a business."""
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.offers import changes as offer_changes
    from ltzd.cli.offers.registrar import SigningOptions

    means = SigningOptions(key, password_file, unsigned, sender)
    target = partial(resolve_chain_target, data_dir, config)
    offer_changes.set_business(address, means, target, approved=True)


@app.command("set")
def set_(
    address: Address,
    approved: Annotated[
        bool, typer.Option("--approved/--revoked", help="Deals that there are go on.")
    ],
    key: KeyFile = None,
    password_file: PasswordFile = None,
    unsigned: Unsigned = False,
    sender: Sender = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Approve a business, or revoke its approval."""
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.offers import changes as offer_changes
    from ltzd.cli.offers.registrar import SigningOptions

    means = SigningOptions(key, password_file, unsigned, sender)
    target = partial(resolve_chain_target, data_dir, config)
    offer_changes.set_business(address, means, target, approved=approved)


@app.command("list")
def list_(
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List all businesses that were ever approved."""
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.offers import views as offer_views

    offer_views.list_businesses(resolve_chain_target(data_dir, config), as_json=as_json)
