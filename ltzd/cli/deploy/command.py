"""The name and options of `ltzd deploy`."""

# ruff: noqa: PLC0415 - the command imports what it runs only when it runs

from pathlib import Path
from typing import Annotated, Any

import typer

from ltzd.cli.options import AsJson, Config

_TWO_DAYS = 172_800
_DAY = 86_400


def _accounts(words: str) -> Any:
    return typer.Option(help=f"{words} May be repeated.", metavar="0x…")


def deploy(  # noqa: PLR0913, PLR0917 - one parameter per option
    config: Config,
    key: Annotated[
        Path,
        typer.Option(
            help="The key of the deployer and first admin: 64 hex digits or a keystore.",
            metavar="FILE",
        ),
    ],
    chain_id: Annotated[
        int, typer.Option(min=1, help="The chain to deploy to; any other is refused.")
    ],
    password_file: Annotated[
        Path | None, typer.Option(help="The password of the keystore.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file for the addresses; default: contracts.json beside the settings.",
            metavar="FILE",
        ),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            help="The account that is offered the admin role; preferably a multisig.", metavar="0x…"
        ),
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
    minter: Annotated[
        str | None, typer.Option(help="The mint wallet, a hot wallet.", metavar="0x…")
    ] = None,
    mint_limit: Annotated[
        str | None,
        typer.Option(help="The LTZ that the mint wallet may mint at once.", metavar="LTZ"),
    ] = None,
    mint_window: Annotated[
        int,
        typer.Option(
            min=1, max=2**40 - 1, help="Seconds in which the mint limit refills.", metavar="SECONDS"
        ),
    ] = _DAY,
    relayer: Annotated[list[str] | None, _accounts("A relay wallet, a hot wallet.")] = None,
    guardian: Annotated[list[str] | None, _accounts("May revoke the roles of hot wallets.")] = None,
    registrar: Annotated[
        list[str] | None, _accounts("Creates collections and items, approves businesses.")
    ] = None,
    settler: Annotated[list[str] | None, _accounts("Releases and refunds deals.")] = None,
    arbiter: Annotated[list[str] | None, _accounts("Splits deals.")] = None,
    max_fee_gwei: Annotated[
        str,
        typer.Option(help="The highest gas price to pay, in gwei; at most 100.", metavar="GWEI"),
    ] = "100",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the steps that are missing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Deploy the four contracts, grant their roles and check them.

    A repeated command does only what is missing.
    """
    from ltzd.cli.deploy import deployment

    roles = deployment.Roles(
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
    target = deployment.DeploymentTarget(
        config, out or config.with_name("contracts.json"), chain_id
    )
    deployment.deploy(
        target,
        roles,
        key,
        password_file,
        max_fee_gwei=max_fee_gwei,
        is_dry_run=dry_run,
        as_json=as_json,
    )
