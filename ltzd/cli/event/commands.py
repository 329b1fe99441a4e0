"""The names and options of `ltzd event …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, ConfigInstead, DataDir, EventId

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
