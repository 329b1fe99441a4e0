"""The names and options of `ltzd restore …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, ConfigInstead, DataDir, target_options

app = typer.Typer(
    help="After a restore or a failover of PostgreSQL: compare with the chain, and continue.",
    no_args_is_help=True,
)


@app.command()
def check(
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Compare lanes, nonces, references and index with the chain; change nothing.

    Exits with 1 if `apply` has something to do.
    """
    from ltzd.cli.chain_targets import node_urls
    from ltzd.cli.restore import check as restore_check
    from ltzd.cli.targets import resolve_target

    urls = node_urls(data_dir, config)
    target = resolve_target(data_dir, config)
    must_apply = restore_check.check(
        target, urls, target_options(data_dir, config), as_json=as_json
    )
    raise typer.Exit(1 if must_apply else 0)


@app.command()
def apply(
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Move the counters past all that the chain has used, and link lost mints; may be repeated.

    Exits with 1 if a lane that should continue is held back.
    """
    from ltzd.cli.chain_targets import node_urls
    from ltzd.cli.restore import apply as restore_apply
    from ltzd.cli.targets import resolve_target

    urls = node_urls(data_dir, config)
    target = resolve_target(data_dir, config)
    is_done = restore_apply.apply(target, urls, target_options(data_dir, config), as_json=as_json)
    raise typer.Exit(0 if is_done else 1)
