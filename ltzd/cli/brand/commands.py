"""The names and options of `ltzd brand …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from pathlib import Path
from typing import Annotated, Literal

import typer

from ltzd.cli.options import DEFAULT_DATA_DIR, AsJson, Brand, ConfigInstead, DataDir

app = typer.Typer(
    help="Brands: what their files declare, their keys and their switches.", no_args_is_help=True
)


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(help="The brand's TOML file.", metavar="FILE")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Make a file the brand's whole configuration; new keys are printed once, as JSON."""
    from ltzd.cli.brand import apply as brand_apply

    brand_apply.apply(file, dry_run=dry_run, data_dir=data_dir, config=config)


@app.command("list")
def list_(
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List all brands with their state."""
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
    """Print the configuration in force, as a file that `brand apply` takes again."""
    from ltzd.cli.brand import views as brand_views
    from ltzd.cli.targets import resolve_target

    brand_views.show_brand(resolve_target(data_dir, config), brand, as_json=as_json)


@app.command("rotate-key")
def rotate_key(
    brand: Brand,
    key: Annotated[
        Literal["security_key", "api_key", "webhook_secret", "verification_token"],
        typer.Option("--key", help="Which one."),
    ],
    revoke: Annotated[
        bool, typer.Option("--revoke", help="The old key ends at once, not after 24 hours.")
    ] = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Make a new key and print it once, as JSON; the old one still counts for 24 hours."""
    from ltzd.cli.brand import rotation as brand_rotation
    from ltzd.cli.targets import resolve_target

    brand_rotation.rotate(resolve_target(data_dir, config), brand, key, revoke=revoke)


@app.command()
def disable(
    brand: Brand, data_dir: DataDir = DEFAULT_DATA_DIR, config: ConfigInstead = None
) -> None:
    """Treat a brand as unknown everywhere; what it owes is still minted."""
    from ltzd.cli.brand import switches as brand_switches
    from ltzd.cli.targets import resolve_target

    brand_switches.turn(resolve_target(data_dir, config), brand, "disabled", on=True)


@app.command()
def enable(
    brand: Brand, data_dir: DataDir = DEFAULT_DATA_DIR, config: ConfigInstead = None
) -> None:
    """Undo `disable`."""
    from ltzd.cli.brand import switches as brand_switches
    from ltzd.cli.targets import resolve_target

    brand_switches.turn(resolve_target(data_dir, config), brand, "disabled", on=False)


@app.command()
def pause(brand: Brand, data_dir: DataDir = DEFAULT_DATA_DIR, config: ConfigInstead = None) -> None:
    """Take a brand's events but sign none of its mints."""
    from ltzd.cli.brand import switches as brand_switches
    from ltzd.cli.targets import resolve_target

    brand_switches.turn(resolve_target(data_dir, config), brand, "paused", on=True)


@app.command()
def resume(
    brand: Brand, data_dir: DataDir = DEFAULT_DATA_DIR, config: ConfigInstead = None
) -> None:
    """Undo `pause`: what waited is minted now."""
    from ltzd.cli.brand import switches as brand_switches
    from ltzd.cli.targets import resolve_target

    brand_switches.turn(resolve_target(data_dir, config), brand, "paused", on=False)
