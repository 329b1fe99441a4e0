"""The names and options of `ltzd books` and `ltzd books acknowledge`."""

# ruff: noqa: PLC0415 - the command imports what it runs only when it runs

from datetime import datetime
from typing import Annotated

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, ConfigInstead, DataDir

_DAY = ["%Y-%m-%d"]

app = typer.Typer(invoke_without_command=True)


@app.callback()
def books(
    context: typer.Context,
    brand: Annotated[
        str | None, typer.Option(help="Only this brand: its id or exact name.", metavar="BRAND")
    ] = None,
    statement: Annotated[
        str | None,
        typer.Option(
            help="Write the brand's statement as CSV; - is standard output.",
            metavar="FILE",
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--from", help="The first day (UTC) to count.", formats=_DAY, metavar="DATE"),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--to", help="The first day (UTC) not to count.", formats=_DAY, metavar="DATE"
        ),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Compare the accepted, bought, minted, announced and on-chain amounts.

    Exits with 1 if the books disagree, and names each difference.
    """
    if context.invoked_subcommand is not None:
        return
    from ltzd.cli.books import report as books_report
    from ltzd.cli.books import statement as books_statement
    from ltzd.cli.books.statement import period_of
    from ltzd.cli.targets import resolve_target
    from ltzd.errors import Refused

    period = period_of(since, until)
    if statement is None:
        report = books_report.build_report(
            resolve_target(data_dir, config), data_dir, config, brand, period
        )
        books_report.show(report, as_json=as_json)
        raise typer.Exit(1 if report.differences else 0)
    if brand is None:
        raise Refused("A statement is for one brand: name it with --brand.")
    if as_json:
        raise Refused("A statement is CSV: omit --json.")
    books_statement.write(resolve_target(data_dir, config), brand, period, statement)


@app.command()
def acknowledge(
    kind: Annotated[
        str, typer.Argument(help="The kind of disagreement, such as foreign_mint.", metavar="KIND")
    ],
    rows: Annotated[
        list[str] | None,
        typer.Argument(help="The rows, as the report names them.", metavar="[ROW]..."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All rows of this kind.")] = False,
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            help="Why the rows disagree, for the next person who reads the report.",
            metavar="TEXT",
        ),
    ] = "",
    is_withdrawn: Annotated[
        bool, typer.Option("--withdraw", help="Count the rows as disagreements again.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Explain rows of the report: they are listed with the reason, and disagree no more."""
    from ltzd.cli.books import acknowledge as books_acknowledge
    from ltzd.cli.books.acknowledge import Explanation
    from ltzd.cli.targets import resolve_target

    given = Explanation(kind, tuple(rows or ()), every, reason, is_withdrawn)
    target = resolve_target(data_dir, config)
    books_acknowledge.acknowledge(target, data_dir, config, given, as_json=as_json)
