"""The names and options of `ltzd lane …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from typing import Annotated, Literal

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, ConfigInstead, DataDir

app = typer.Typer(
    help="The lanes that sign with the operator's wallets: list, adopt, pause, resume.",
    no_args_is_help=True,
)

Wallets = Annotated[
    list[str] | None, typer.Argument(help="The lanes' wallets.", metavar="[0x…]...")
]
OfKind = Annotated[
    Literal["mint", "relay", "treasury"] | None,
    typer.Option("--kind", help="All lanes of this kind."),
]
Every = Annotated[bool, typer.Option("--all", help="All lanes.")]


@app.command("list")
def list_(
    kind: OfKind = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the nodes for nonces and balances.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List lanes: holder, nonces, transactions in flight, balance, and why a lane waits."""
    from ltzd.cli.chain_targets import known_node_urls
    from ltzd.cli.lane import views as lane_views
    from ltzd.cli.targets import resolve_target

    target = resolve_target(data_dir, config)
    urls = () if offline else known_node_urls(data_dir, config)
    lane_views.list_lanes(target, kind, urls, as_json=as_json)


@app.command()
def adopt(
    wallet: Annotated[str, typer.Argument(help="The wallet.", metavar="0x…")],
    kind: Annotated[
        Literal["mint", "relay", "treasury"] | None,
        typer.Option("--kind", help="The wallet's kind, if this database does not know it."),
    ] = None,
    is_confirmed: Annotated[
        bool, typer.Option("--yes", help="Do not ask: nothing else uses the wallet.")
    ] = False,
    watch_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds to watch whether something else still signs.")
    ] = 3.0,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Let a stopped lane continue behind all that its wallet has signed elsewhere."""
    from ltzd.cli.chain_targets import node_urls
    from ltzd.cli.lane import adopt as lane_adopt
    from ltzd.cli.targets import resolve_target

    adoption = lane_adopt.Adoption(wallet, kind, is_confirmed, watch_seconds)
    urls = node_urls(data_dir, config)
    lane_adopt.adopt(resolve_target(data_dir, config), urls, adoption, as_json=as_json)


@app.command()
def pause(
    wallets: Wallets = None,
    reason: Annotated[
        str, typer.Option("--reason", help="Why, for the next person who looks.", metavar="TEXT")
    ] = "",
    kind: OfKind = None,
    every: Every = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Sign no new work until `resume`; what is in flight is still published and replaced."""
    from ltzd.cli.lane import switches as lane_switches
    from ltzd.cli.targets import resolve_target

    selection = lane_switches.Selection(tuple(wallets or ()), kind, every)
    target = resolve_target(data_dir, config)
    lane_switches.pause(target, selection, reason, as_json=as_json)


@app.command()
def resume(
    wallets: Wallets = None,
    kind: OfKind = None,
    every: Every = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Undo `pause`."""
    from ltzd.cli.lane import switches as lane_switches
    from ltzd.cli.targets import resolve_target

    selection = lane_switches.Selection(tuple(wallets or ()), kind, every)
    lane_switches.resume(resolve_target(data_dir, config), selection, as_json=as_json)
