"""The table of `ltzd collection`, `ltzd item` and `ltzd business`: every command and option.

A row names the function of `changes` or `views` that runs it. A command that changes something
passes its values by name; an option that was not given is None.
"""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer

from ltzd.cli.options import (
    DEFAULT_DATA_DIR,
    AlwaysJson,
    AsJson,
    ConfigInstead,
    DataDir,
    KeyFile,
    PasswordFile,
    Sender,
    Unsigned,
)


def _parameter(name: str, annotation: Any, default: object = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _argument(name: str, text: str, metavar: str) -> Parameter:
    return _parameter(name, Annotated[str, typer.Argument(help=text, metavar=metavar)])


def _option(name: str, text: str, metavar: str) -> Parameter:
    annotation = Annotated[str | None, typer.Option(help=text, metavar=metavar)]
    return _parameter(name, annotation, default=None)


def _flag(name: str, text: str) -> Parameter:
    option = typer.Option(f"--{name.replace('_', '-')}", help=text)
    return _parameter(name, Annotated[bool, option], default=False)


def _switch(name: str, words: str, text: str) -> Parameter:
    return _parameter(name, Annotated[bool | None, typer.Option(words, help=text)], default=None)


BRAND = _option("brand", "The brand's wallet address.", "0x…")
COLLECTION = _argument("collection", "The collection's id.", "COLLECTION")
COLLECTION_TERMS = (
    _option("payout", "The address that receives the price of each claim.", "0x…"),
    _option("price", "The price of one claim in LTZ; decimals are allowed.", "LTZ"),
    _option("max_supply", "The most tokens that can exist; 0 is no limit.", "N"),
    _option("max_per_user", "The most claims of one user; 0 is no limit.", "N"),
)
ITEM = _argument("item", "The item's id, which you choose.", "ITEM")
ITEM_TERMS = (
    BRAND,
    _option("stock", "The number for sale, including those already sold.", "N"),
    _option("payout", "The address that receives the price.", "0x…"),
    _option("price", "The price of one item in LTZ; decimals are allowed.", "LTZ"),
    _option("max_per_order", "The most that one order can buy; 0 is no limit.", "N"),
    _option("metadata", "32 bytes, for example the hash of the item's description.", "0x…"),
)
BUSINESS = _argument("business", "The business's wallet address.", "ADDRESS")
SIGNING = (
    _parameter("key", KeyFile, default=None),
    _parameter("password_file", PasswordFile, default=None),
    _parameter("unsigned", Unsigned, default=False),
    _parameter("sender", Sender, default=None),
    _parameter("as_json", AlwaysJson, default=False),
)
TARGET = (
    _parameter("data_dir", DataDir, default=DEFAULT_DATA_DIR),
    _parameter("config", ConfigInstead, default=None),
)


class ChangeCommand(msgspec.Struct, frozen=True):
    """A command that sends one transaction; `function` is of `changes`."""

    help: str
    function: str
    parameters: tuple[Parameter, ...]


class OfferGroup(msgspec.Struct, frozen=True):
    """A group of the commands `create`, `set` and `list`; `view` is a function of `views`."""

    name: str
    help: str
    create: ChangeCommand
    set: ChangeCommand
    list_help: str
    view: str


OFFERS = (
    OfferGroup(
        name="collection",
        help="Collections of perks on chain, for the holder of the REGISTRAR role.",
        create=ChangeCommand(
            "Create a collection. By default it is free, once per user and unlimited.",
            "create_collection",
            (
                BRAND,
                _option("charges", "The charges of each token; they cannot be changed.", "N"),
                *COLLECTION_TERMS,
                _option("uri", "The metadata's URI; a token's id follows a final slash.", "URI"),
                _flag("inactive", "Do not open the collection for claims yet."),
                _flag("requires_sig", "Require the user's signature for a relayed claim."),
            ),
        ),
        set=ChangeCommand(
            "Change a collection. Options that are not given keep their values.",
            "set_collection",
            (
                COLLECTION,
                BRAND,
                *COLLECTION_TERMS,
                _switch("active", "--active/--inactive", "Open or close the collection to claims."),
            ),
        ),
        list_help="List all collections with their current values.",
        view="list_collections",
    ),
    OfferGroup(
        name="item",
        help="Items for sale on chain, for the holder of the REGISTRAR role.",
        create=ChangeCommand(
            "Put an item up for sale. Without a price it is free.",
            "create_item",
            (
                ITEM,
                *ITEM_TERMS,
                _flag("burns", "Burn the price; the payout address receives nothing."),
                _flag("inactive", "Do not offer the item for sale yet."),
            ),
        ),
        set=ChangeCommand(
            "Change an item. Options that are not given keep their values; sales stand.",
            "set_item",
            (
                ITEM,
                *ITEM_TERMS,
                _switch("burns", "--burns/--pays", "Burn the price, or pay it to the payout."),
                _switch("active", "--active/--inactive", "Offer the item for sale, or stop."),
            ),
        ),
        list_help="List all items with their current values.",
        view="list_items",
    ),
    OfferGroup(
        name="business",
        help="Businesses that users may lock LTZ for, for the holder of the REGISTRAR role.",
        create=ChangeCommand("Approve a business.", "set_business", (BUSINESS,)),
        set=ChangeCommand(
            "Approve a business, or revoke its approval.",
            "set_business",
            (
                BUSINESS,
                _parameter(
                    "approved",
                    Annotated[
                        bool,
                        typer.Option(
                            "--approved/--revoked",
                            help="Allow new deals, or stop them; existing deals continue.",
                        ),
                    ],
                ),
            ),
        ),
        list_help="List all businesses that were ever approved.",
        view="list_businesses",
    ),
)


def offer_app(offer: OfferGroup) -> typer.Typer:
    app = typer.Typer(help=offer.help, no_args_is_help=True)
    app.command("create", help=offer.create.help)(_change_command(offer.create))
    app.command("set", help=offer.set.help)(_change_command(offer.set))
    app.command("list", help=offer.list_help)(_list_command(offer.view))
    return app


def _change_command(change: ChangeCommand) -> Callable[..., None]:
    def run(
        *,
        key: Path | None,
        password_file: Path | None,
        unsigned: bool,
        sender: str | None,
        as_json: bool,
        data_dir: Path,
        config: Path | None,
        **values: object,
    ) -> None:
        from ltzd.cli.chain_targets import resolve_chain_target
        from ltzd.cli.offers import changes
        from ltzd.cli.offers.transaction_sender import SigningOptions

        signing = SigningOptions(key, password_file, unsigned, sender)
        resolve_target = partial(resolve_chain_target, data_dir, config)
        getattr(changes, change.function)(values, signing, resolve_target)

    return _with_parameters(run, (*change.parameters, *SIGNING, *TARGET))


def _list_command(view: str) -> Callable[..., None]:
    def run(*, as_json: bool, data_dir: Path, config: Path | None) -> None:
        from ltzd.cli.chain_targets import resolve_chain_target
        from ltzd.cli.offers import views

        getattr(views, view)(resolve_chain_target(data_dir, config), as_json=as_json)

    return _with_parameters(run, (_parameter("as_json", AsJson, default=False), *TARGET))


def _with_parameters(
    command: Callable[..., None], parameters: tuple[Parameter, ...]
) -> Callable[..., None]:
    """The command with the signature that typer reads its options from."""
    cast("Any", command).__signature__ = Signature(list(parameters))
    return command
