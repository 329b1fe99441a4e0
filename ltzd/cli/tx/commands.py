"""The names and options of `ltzd tx …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from typing import Annotated, Literal

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, ConfigInstead, DataDir

app = typer.Typer(
    help="The operator's transactions: list, show, speed up, cancel.", no_args_is_help=True
)

Transaction = Annotated[
    str, typer.Argument(help="The transaction's id, or the hash of an attempt.", metavar="TX")
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait",
        min=0,
        max=600,
        help="Seconds to wait for the lane before the request is withdrawn.",
        metavar="SECONDS",
    ),
]
Leave = Annotated[
    bool,
    typer.Option("--leave", help="Do not withdraw the request: a lane may serve it much later."),
]


@app.command("list")
def list_(
    wallet: Annotated[
        str | None,
        typer.Option("--wallet", help="Only transactions of this wallet.", metavar="0x…"),
    ] = None,
    state: Annotated[
        Literal[
            "open",
            "all",
            "signed",
            "published",
            "mined",
            "confirmed",
            "reverted",
            "displaced",
            "cancelled",
            "voided",
        ],
        typer.Option(
            "--state", help="Only transactions in this state; `open` is signed, published or mined."
        ),
    ] = "open",
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Only transactions that no block holds after a minute.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="The most transactions to list.")
    ] = 50,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List transactions: unmined ones first, oldest first; then mined and settled, newest first."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.tx import views as tx_views

    selection = tx_views.Selection(wallet, state, stuck, limit)
    tx_views.list_transactions(resolve_target(data_dir, config), selection, as_json=as_json)


@app.command()
def show(
    transaction: Transaction,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Show what a transaction does, its attempts, who waits, and what happened in order."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.tx import views as tx_views

    tx_views.show(resolve_target(data_dir, config), transaction, as_json=as_json)


@app.command("speed-up")
def speed_up(
    transaction: Transaction,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway", help="Raise the fees although an older nonce must be mined first."
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Raise the fees again within 15 seconds.")
    ] = False,
    wait: Wait = 15.0,
    leave: Leave = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Replace a transaction by the same call with the same nonce and higher fees."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.tx import requests as tx_requests
    from ltzd.rules.operator.requests import Action

    request = tx_requests.Request(
        Action.SPEED_UP, transaction, wait, leaves=leave, again=again, anyway=anyway
    )
    tx_requests.ask(resolve_target(data_dir, config), request, as_json=as_json)


@app.command()
def cancel(
    transaction: Transaction,
    wait: Wait = 15.0,
    leave: Leave = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Give a transaction's nonce to a self-transfer; its rewards are queued again once final."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.tx import requests as tx_requests
    from ltzd.rules.operator.requests import Action

    request = tx_requests.Request(Action.CANCEL, transaction, wait, leaves=leave, anyway=True)
    tx_requests.ask(resolve_target(data_dir, config), request, as_json=as_json)
