"""The names and options of `ltzd event …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from typing import Annotated, Literal

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, ConfigInstead, DataDir, EventId, OfBrand

OfType = Annotated[
    str | None, typer.Option("--type", help="Only events of this type.", metavar="TYPE")
]
InStatus = Annotated[
    Literal["queued", "published", "minted", "final", "failed"] | None,
    typer.Option("--status", help="Only events whose reward is in this state."),
]

app = typer.Typer(help="Events, their rewards and transactions.", no_args_is_help=True)


@app.command()
def show(
    event_id: EventId,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Show an event, its reward and every transaction attempt; no e-mail address."""
    from ltzd.cli.event import views as event_views
    from ltzd.cli.targets import resolve_target

    event_views.show(resolve_target(data_dir, config), event_id, as_json=as_json)


@app.command("list")
def list_(  # noqa: PLR0913, PLR0917 - one parameter per option
    brand: OfBrand = None,
    status: InStatus = None,
    event_type: OfType = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Events since a time (UTC) or age: 90m, 7d.", metavar="TIME"),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", help="Events before a time (UTC) or age.", metavar="TIME"),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most events to list.")] = 50,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List events, newest first, with the state of their rewards; no e-mail address."""
    from ltzd.cli.event import listing
    from ltzd.cli.event.listing import EventFilter
    from ltzd.cli.targets import resolve_target

    given = EventFilter(brand, status, event_type, since, until, limit)
    listing.list_events(resolve_target(data_dir, config), given, as_json=as_json)


@app.command()
def tail(
    brand: OfBrand = None,
    event_type: OfType = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Begin at a time (UTC) or age: 90m, 7d.", metavar="TIME"),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Print each event when it is accepted, until Ctrl-C: UTC, id, LTZ, type and brand."""
    from ltzd.cli.event import listing
    from ltzd.cli.event.listing import EventFilter
    from ltzd.cli.targets import resolve_target

    given = EventFilter(brand=brand, event_type=event_type, since=since)
    listing.tail(resolve_target(data_dir, config), given, as_json=as_json)


@app.command()
def trigger(  # noqa: PLR0913, PLR0917 - one parameter per option
    event_type: Annotated[str, typer.Argument(help="The type of the event.", metavar="TYPE")],
    brand: Annotated[
        str, typer.Option("--brand", help="The brand's id or its exact name.", metavar="BRAND")
    ],
    email: Annotated[
        str, typer.Option("--email", help="The user's e-mail address.", metavar="ADDRESS")
    ],
    domain: Annotated[
        str | None,
        typer.Option("--domain", help="The domain; default: the brand's first.", metavar="DOMAIN"),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", help="The metadata, as JSON.", metavar="JSON")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", help="Where ltzd answers; default: its port on this machine.", metavar="URL"
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Mint real LTZ: needed except in dev mode and staging.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Send one signed event of a brand to a running ltzd, as the brand itself would."""
    from ltzd.cli.event import trigger as event_trigger
    from ltzd.cli.event.trigger import TriggeredEvent
    from ltzd.cli.targets import resolve_target

    event = TriggeredEvent(event_type, brand, email, domain, metadata)
    target = resolve_target(data_dir, config)
    base_url = url or event_trigger.base_url_of(data_dir, config)
    event_trigger.trigger(target, base_url, event, mints_real_ltz=yes, as_json=as_json)


@app.command()
def retry(
    event_id: EventId,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Put a failed reward back into the mint queue, under the same reference."""
    from ltzd.cli.event import retry as event_retry
    from ltzd.cli.targets import resolve_target

    event_retry.retry(resolve_target(data_dir, config), event_id, as_json=as_json)
