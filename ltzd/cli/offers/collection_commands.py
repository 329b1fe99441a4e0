"""The names and options of `ltzd collection …`."""

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

app = typer.Typer(help="Collections of perks, on chain: for the REGISTRAR.", no_args_is_help=True)

Brand = Annotated[str | None, typer.Option(help="The brand's wallet.", metavar="0x…")]
Payout = Annotated[
    str | None, typer.Option(help="Receives the price of each claim.", metavar="0x…")
]
Price = Annotated[str | None, typer.Option(help="LTZ of a claim, decimals allowed.", metavar="LTZ")]
MaxSupply = Annotated[
    str | None, typer.Option(help="Tokens that there can be; 0: no limit.", metavar="N")
]
MaxPerUser = Annotated[
    str | None, typer.Option(help="Claims of one user; 0: no limit.", metavar="N")
]
Charges = Annotated[str | None, typer.Option(help="Of each token, for ever.", metavar="N")]
Uri = Annotated[
    str | None,
    typer.Option(help="Of the metadata; after a final slash comes the token's id.", metavar="URI"),
]
Active = Annotated[
    bool | None, typer.Option("--active/--inactive", help="Whether tokens can be claimed.")
]


@app.command()
def create(  # noqa: PLR0913, PLR0917 - one parameter per option
    brand: Brand = None,
    charges: Charges = None,
    payout: Payout = None,
    price: Price = None,
    max_supply: MaxSupply = None,
    max_per_user: MaxPerUser = None,
    uri: Uri = None,
    inactive: Annotated[
        bool, typer.Option("--inactive", help="Tokens cannot be claimed yet.")
    ] = False,
    requires_sig: Annotated[
        bool, typer.Option("--requires-sig", help="A relayed claim needs the user's signature.")
    ] = False,
    key: KeyFile = None,
    password_file: PasswordFile = None,
    unsigned: Unsigned = False,
    sender: Sender = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Create a collection: free, once per user and without end, where no option says otherwise."""
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.offers import changes as offer_changes
    from ltzd.cli.offers.registrar import SigningOptions

    means = SigningOptions(key, password_file, unsigned, sender)
    target = partial(resolve_chain_target, data_dir, config)
    given = {
        "brand": brand,
        "charges": charges,
        "payout": payout,
        "price": price,
        "max_supply": max_supply,
        "max_per_user": max_per_user,
        "uri": uri,
    }
    switches = {"active": not inactive, "requires_sig": requires_sig}
    offer_changes.create_collection(given, switches, means, target)


@app.command("set")
def set_(  # noqa: PLR0913, PLR0917 - one parameter per option
    collection: Annotated[str, typer.Argument(help="The collection's id.", metavar="COLLECTION")],
    brand: Brand = None,
    payout: Payout = None,
    price: Price = None,
    max_supply: MaxSupply = None,
    max_per_user: MaxPerUser = None,
    active: Active = None,
    key: KeyFile = None,
    password_file: PasswordFile = None,
    unsigned: Unsigned = False,
    sender: Sender = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Change a collection; what no option names stays as it is."""
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.offers import changes as offer_changes
    from ltzd.cli.offers.registrar import SigningOptions

    means = SigningOptions(key, password_file, unsigned, sender)
    target = partial(resolve_chain_target, data_dir, config)
    given = {
        "collection": collection,
        "brand": brand,
        "payout": payout,
        "price": price,
        "max_supply": max_supply,
        "max_per_user": max_per_user,
        "active": active,
    }
    offer_changes.set_collection(given, means, target)


@app.command("list")
def list_(
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List all collections as they stand."""
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.offers import views as offer_views

    offer_views.list_collections(resolve_chain_target(data_dir, config), as_json=as_json)
