"""The names and options of `ltzd webhooks …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from typing import Annotated, Literal

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, Brand, ConfigInstead, DataDir, OfBrand

app = typer.Typer(help="Webhooks to brands and the state of their delivery.", no_args_is_help=True)

InState = Annotated[
    Literal["pending", "delivered", "exhausted"] | None,
    typer.Option("--state", help="Only webhooks in this state."),
]


@app.command("list")
def list_(
    brand: OfBrand = None,
    state: InState = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most webhooks to list.")] = 50,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List webhooks, newest first, and the disabled endpoints."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.webhooks import views as webhook_views

    target = resolve_target(data_dir, config)
    webhook_views.list_webhooks(target, brand, state, limit, as_json=as_json)


@app.command()
def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(help="The webhooks' ids.", metavar="[ID]...")
    ] = None,
    brand: OfBrand = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Webhooks written since a time (UTC) or age: 90m, 7d.",
            metavar="TIME",
        ),
    ] = None,
    state: InState = None,
    after: Annotated[
        str | None,
        typer.Option(
            help="Continue behind this webhook, as told by a replay that ended early.",
            metavar="ID",
        ),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Send webhooks again under the same ids: by id, or all of a brand since a time."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.webhooks import replay as webhook_replay

    target = resolve_target(data_dir, config)
    webhook_replay.replay(target, ids or [], brand, since, state, after, as_json=as_json)


@app.command()
def enable(
    brand: Brand,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Enable a brand's disabled endpoint and send the waiting webhooks."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.webhooks import replay as webhook_replay

    webhook_replay.enable(resolve_target(data_dir, config), brand, as_json=as_json)
