"""The name and options of `ltzd deploy`."""

# ruff: noqa: PLC0415 - the command imports what it runs only when it runs

from pathlib import Path
from typing import Annotated, Any

import typer

from ltzd.cli.options import Config

_TWO_DAYS = 172_800
_DAY = 86_400


def _accounts(words: str) -> Any:
    return typer.Option(help=f"{words} May be repeated.", metavar="0x…")


def deploy(  # noqa: PLR0913, PLR0917 - one parameter per option
    config: Config,
    key: Annotated[
        Path,
        typer.Option(
            help="Who deploys and is the first admin: 64 hex digits or an encrypted keystore.",
            metavar="FILE",
        ),
    ],
    chain_id: Annotated[int, typer.Option(min=1, help="Any other chain is refused.")],
    password_file: Annotated[
        Path | None, typer.Option(help="Of the keystore.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Remembers the addresses; contracts.json beside the settings without it.",
            metavar="FILE",
        ),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(help="Is offered the admin role; better a multisig.", metavar="0x…"),
    ] = None,
    admin_delay: Annotated[
        int,
        typer.Option(
            min=0,
            max=2**48 - 1,
            help="Seconds until an offered admin may accept.",
            metavar="SECONDS",
        ),
    ] = _TWO_DAYS,
    minter: Annotated[str | None, typer.Option(help="The mint wallet; hot.", metavar="0x…")] = None,
    mint_limit: Annotated[
        str | None, typer.Option(help="LTZ that it may mint at once.", metavar="LTZ")
    ] = None,
    mint_window: Annotated[
        int,
        typer.Option(
            min=1, max=2**40 - 1, help="Seconds in which the limit refills.", metavar="SECONDS"
        ),
    ] = _DAY,
    relayer: Annotated[list[str] | None, _accounts("A relay wallet; hot.")] = None,
    guardian: Annotated[list[str] | None, _accounts("May take hot roles away.")] = None,
    registrar: Annotated[
        list[str] | None, _accounts("Creates collections and items, approves businesses.")
    ] = None,
    settler: Annotated[list[str] | None, _accounts("Releases and refunds deals.")] = None,
    arbiter: Annotated[list[str] | None, _accounts("Splits deals.")] = None,
    max_fee_gwei: Annotated[
        str, typer.Option(help="Nothing goes out above it; 100 is the most.", metavar="GWEI")
    ] = "100",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
) -> None:
    """Deploy the four contracts, hand out their roles, check all of it; again: what is missing."""
    from ltzd.cli.deploy import deployment as deploying

    roles = deploying.Roles(
        admin=admin,
        admin_delay_seconds=admin_delay,
        minter=minter,
        mint_limit=mint_limit,
        mint_window_seconds=mint_window,
        relayers=relayer or [],
        guardians=guardian or [],
        registrars=registrar or [],
        settlers=settler or [],
        arbiters=arbiter or [],
    )
    target = deploying.DeploymentTarget(config, out or config.with_name("contracts.json"), chain_id)
    deploying.deploy(
        target, roles, key, password_file, max_fee_gwei=max_fee_gwei, is_rehearsal=dry_run
    )
