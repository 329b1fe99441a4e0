"""The names and options of `ltzd index …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from typing import Annotated

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, ConfigInstead, DataDir, target_options

app = typer.Typer(
    help="The index of the chain: compare it with the nodes, repair it, rebuild it.",
    no_args_is_help=True,
)

_HIGHEST = 2**63 - 1
"""The largest number of a block that PostgreSQL takes."""

FirstBlock = Annotated[
    int | None,
    typer.Option(
        "--from",
        min=0,
        max=_HIGHEST,
        help="The first block; by default the first indexed one.",
        metavar="BLOCK",
    ),
]
LastBlock = Annotated[
    int | None,
    typer.Option(
        "--to",
        min=0,
        max=_HIGHEST,
        help="The last block; by default the newest indexed one.",
        metavar="BLOCK",
    ),
]


@app.command()
def check(
    first: FirstBlock = None,
    last: LastBlock = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Compare the indexed facts with the nodes; change nothing.

    Exits with 1 if something differs.
    """
    from ltzd.cli.index import check as index_check
    from ltzd.cli.index.target import resolve_index_target

    target = resolve_index_target(data_dir, config)
    report = index_check.run(target, first, last, repairs=False, is_quiet=as_json)
    index_check.show(report, target_options(data_dir, config), as_json=as_json)
    raise typer.Exit(0 if report.is_clean else 1)


@app.command()
def repair(
    first: FirstBlock = None,
    last: LastBlock = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Correct the facts that differ from the nodes', and let a stopped index go on.

    Runs beside a running ltzd or without it. Exits with 1 if something could not be corrected.
    """
    from ltzd.cli.index import check as index_check
    from ltzd.cli.index.target import resolve_index_target

    target = resolve_index_target(data_dir, config)
    report = index_check.run(target, first, last, repairs=True, is_quiet=as_json)
    index_check.show(report, target_options(data_dir, config), as_json=as_json)
    raise typer.Exit(0 if report.is_corrected else 1)


@app.command()
def rebuild(
    first: Annotated[
        int,
        typer.Option(
            "--from",
            min=0,
            max=_HIGHEST,
            help="Keep facts below this block; by default none.",
            metavar="BLOCK",
        ),
    ] = 0,
    is_cancelled: Annotated[
        bool, typer.Option("--cancel", help="End the open rebuild; the index stays as it is.")
    ] = False,
    waits: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Show the progress until the end.")
    ] = True,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Read the chain again into fresh tables, which then replace the live ones.

    A running ltzd with the role indexer rebuilds; HTTP answers from the live tables meanwhile.
    """
    from ltzd.cli.index import rebuild as index_rebuild
    from ltzd.cli.targets import resolve_target

    target = resolve_target(data_dir, config)
    if is_cancelled:
        raise typer.Exit(index_rebuild.cancel(target, as_json=as_json))
    raise typer.Exit(index_rebuild.rebuild(target, first, waits=waits, as_json=as_json))
