"""The names and options of `ltzd item …`."""

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

app = typer.Typer(help="Items for sale, on chain: for the REGISTRAR.", no_args_is_help=True)

Item = Annotated[str, typer.Argument(help="The item's id, of your choice.", metavar="ITEM")]
Brand = Annotated[str | None, typer.Option(help="The brand's wallet.", metavar="0x…")]
Payout = Annotated[str | None, typer.Option(help="Receives what is paid.", metavar="0x…")]
Price = Annotated[str | None, typer.Option(help="LTZ of one, decimals allowed.", metavar="LTZ")]
Stock = Annotated[
    str | None, typer.Option(help="How many are for sale, those sold included.", metavar="N")
]
MaxPerOrder = Annotated[
    str | None, typer.Option(help="How many at once; 0: no limit.", metavar="N")
]
Metadata = Annotated[
    str | None, typer.Option(help="32 bytes: the hash of its description, say.", metavar="0x…")
]


@app.command()
def create(  # noqa: PLR0913, PLR0917 - one parameter per option
    item: Item,
    brand: Brand = None,
    stock: Stock = None,
    payout: Payout = None,
    price: Price = None,
    max_per_order: MaxPerOrder = None,
    metadata: Metadata = None,
    burns: Annotated[
        bool, typer.Option("--burns", help="What is paid is burned; the payout gets nothing.")
    ] = False,
    inactive: Annotated[bool, typer.Option("--inactive", help="Not for sale yet.")] = False,
    key: KeyFile = None,
    password_file: PasswordFile = None,
    unsigned: Unsigned = False,
    sender: Sender = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Put an item up for sale; without a price it is free."""
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.offers import changes as offer_changes
    from ltzd.cli.offers.registrar import SigningOptions

    means = SigningOptions(key, password_file, unsigned, sender)
    target = partial(resolve_chain_target, data_dir, config)
    given = {
        "item": item,
        "brand": brand,
        "stock": stock,
        "payout": payout,
        "price": price,
        "max_per_order": max_per_order,
        "metadata": metadata,
    }
    switches = {"active": not inactive, "burns": burns}
    offer_changes.create_item(given, switches, means, target)


@app.command("set")
def set_(  # noqa: PLR0913, PLR0917 - one parameter per option
    item: Item,
    brand: Brand = None,
    stock: Stock = None,
    payout: Payout = None,
    price: Price = None,
    max_per_order: MaxPerOrder = None,
    metadata: Metadata = None,
    burns: Annotated[
        bool | None, typer.Option("--burns/--pays", help="Whether what is paid is burned.")
    ] = None,
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Whether it can be bought.")
    ] = None,
    key: KeyFile = None,
    password_file: PasswordFile = None,
    unsigned: Unsigned = False,
    sender: Sender = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Change an item; what no option names stays as it is, and what was sold stays sold."""
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.offers import changes as offer_changes
    from ltzd.cli.offers.registrar import SigningOptions

    means = SigningOptions(key, password_file, unsigned, sender)
    target = partial(resolve_chain_target, data_dir, config)
    given = {
        "item": item,
        "brand": brand,
        "stock": stock,
        "payout": payout,
        "price": price,
        "max_per_order": max_per_order,
        "metadata": metadata,
        "burns": burns,
        "active": active,
    }
    offer_changes.set_item(given, means, target)


@app.command("list")
def list_(
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List all items as they stand."""
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.offers import views as offer_views

    offer_views.list_items(resolve_chain_target(data_dir, config), as_json=as_json)
