"""The names and options of `ltzd brand …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from pathlib import Path
from typing import Annotated, Literal

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, Brand, ConfigInstead, DataDir

app = typer.Typer(help="Brands: their files, keys and switches.", no_args_is_help=True)


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(help="The brand's TOML file.", metavar="FILE")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Replace the brand's configuration by a file; a new brand's keys are printed once, as JSON."""
    from ltzd.cli.brand import apply as brand_apply

    brand_apply.apply(file, dry_run=dry_run, as_json=as_json, data_dir=data_dir, config=config)


@app.command("list")
def list_(
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List all brands with their states."""
    from ltzd.cli.brand import views as brand_views
    from ltzd.cli.targets import resolve_target

    brand_views.list_brands(resolve_target(data_dir, config), as_json=as_json)


@app.command()
def show(
    brand: Brand,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Print the configuration in force as a file that `brand apply` accepts."""
    from ltzd.cli.brand import views as brand_views
    from ltzd.cli.targets import resolve_target

    brand_views.show_brand(resolve_target(data_dir, config), brand, as_json=as_json)


@app.command("rotate-key")
def rotate_key(
    brand: Brand,
    key: Annotated[
        Literal[
            "security_key",
            "api_key",
            "webhook_secret",
            "verification_token",
            "securityKey",
            "apiKey",
            "webhookSecret",
            "verificationToken",
        ],
        typer.Option(
            "--key",
            help="The key to replace: security_key, api_key, webhook_secret or "
            "verification_token, or as the printed JSON names it, such as apiKey.",
            metavar="NAME",
        ),
    ],
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Revoke the old key at once instead of after 24 hours.")
    ] = False,
    is_master_key_lost: Annotated[
        bool,
        typer.Option(
            "--master-key-lost",
            help="Replace a key although its master key is lost; the old key ends at once.",
        ),
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Make a new key and print it once, as JSON; the old key remains valid for 24 hours."""
    from ltzd.cli.brand import rotation as brand_rotation
    from ltzd.cli.targets import resolve_target

    target = resolve_target(data_dir, config)
    brand_rotation.rotate(
        target,
        brand,
        key,
        revoke=revoke,
        is_master_key_lost=is_master_key_lost,
        as_json=as_json,
    )


@app.command()
def disable(
    brand: Brand,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Treat a brand as unknown on every surface; its queued rewards are still minted."""
    from ltzd.cli.brand import switches as brand_switches
    from ltzd.cli.targets import resolve_target

    target = resolve_target(data_dir, config)
    brand_switches.set_switch(target, brand, "disabled", on=True, as_json=as_json)


@app.command()
def enable(
    brand: Brand,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Undo `disable`."""
    from ltzd.cli.brand import switches as brand_switches
    from ltzd.cli.targets import resolve_target

    target = resolve_target(data_dir, config)
    brand_switches.set_switch(target, brand, "disabled", on=False, as_json=as_json)


@app.command()
def pause(
    brand: Brand,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Accept a brand's events, but sign none of its mints."""
    from ltzd.cli.brand import switches as brand_switches
    from ltzd.cli.targets import resolve_target

    target = resolve_target(data_dir, config)
    brand_switches.set_switch(target, brand, "paused", on=True, as_json=as_json)


@app.command()
def resume(
    brand: Brand,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Undo `pause`: mint the queued rewards."""
    from ltzd.cli.brand import switches as brand_switches
    from ltzd.cli.targets import resolve_target

    target = resolve_target(data_dir, config)
    brand_switches.set_switch(target, brand, "paused", on=False, as_json=as_json)
