"""The names and options of every command. A command imports its module only when it runs."""

# ruff: noqa: PLC0415 - with all imports at the top `ltzd --help` would take a second

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from ltzd import __version__
from ltzd.cli import sign, write_errors
from ltzd.cli.books import command as books_command
from ltzd.cli.brand import commands as brand_commands
from ltzd.cli.deploy import command as deploy_command
from ltzd.cli.event import commands as event_commands
from ltzd.cli.index import commands as index_commands
from ltzd.cli.key import commands as key_commands
from ltzd.cli.lane import commands as lane_commands
from ltzd.cli.offers.commands import OFFERS, offer_app
from ltzd.cli.options import (
    DEFAULT_DATA_DIR,
    NOT_UTF8,
    AsJson,
    Config,
    ConfigInstead,
    DataDir,
    printable,
    with_config,
)
from ltzd.cli.restore import commands as restore_commands
from ltzd.cli.tx import commands as tx_commands
from ltzd.cli.user import commands as user_commands
from ltzd.cli.wallet import commands as wallet_commands
from ltzd.cli.wallets import commands as wallets_commands
from ltzd.cli.webhooks import commands as webhook_commands
from ltzd.errors import Broken, FileRejected, LtzdError, Misconfigured, Refused, Unavailable

_DAEMONS = {"run", "dev"}
"""Commands whose broken invariants end in a traceback, which the log keeps for developers."""


class PlainErrors(TyperGroup):
    """Prints an error that a person can correct as a sentence on stderr, and exits with 1.

    Ctrl-C exits with 130, unless the command itself ends well by it.
    """

    def main(self, *args: Any, **kwargs: Any) -> Any:
        _open_standard_streams()
        return super().main(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (LtzdError, ModuleNotFoundError, UnicodeEncodeError, OSError) as error:
            lines = _lines_of(error, is_daemon=ctx.invoked_subcommand in _DAEMONS)
            if not lines:
                raise
            shown = (printable(with_config(line, sys.argv)) for line in lines)
            print(*shown, sep="\n", file=sys.stderr)
            if isinstance(error, OSError) and error.filename is None:
                write_errors.drop_output()
        except KeyboardInterrupt:
            if ctx.invoked_subcommand in _DAEMONS:
                raise
            print(_INTERRUPTED, file=sys.stderr)
            raise typer.Exit(130) from None
        raise typer.Exit(1)


_INTERRUPTED = (
    "\nltzd: Interrupted. What the command had done by then stays: look before you repeat it."
)


def _lines_of(error: Exception, *, is_daemon: bool) -> list[str]:
    """The lines that a person reads; empty for an error that only a developer can correct."""
    match error:
        case FileRejected():
            count = len(error.faults)
            head = f"ltzd: {count} {'fault' if count == 1 else 'faults'}:"
            return [head, *(f"  {fault}" for fault in error.faults)]
        case Misconfigured() | Refused() | Unavailable():
            return [f"ltzd: {error.message}"]
        case Broken() if not is_daemon:
            return [f"ltzd: {error.message}", _BROKEN]
        case ModuleNotFoundError() if not (error.name or "ltzd").startswith("ltzd"):
            return [f"ltzd: {_not_installed(error.name)}"]
        case UnicodeEncodeError() if "\udc80" <= error.object[error.start] <= "\udcff":
            # Python reads bytes of an argument that are no UTF-8 as these characters.
            return [f"ltzd: {NOT_UTF8}"]
        case OSError() if write_errors.is_of_a_disk(error) or (error.filename and not is_daemon):
            return [f"ltzd: {write_errors.sentence_of(error)}"]
    return []


_BROKEN = (
    "An invariant of ltzd does not hold. If the index is concerned, docs/runbooks/index.md says "
    "what helps; else report the sentence above."
)


def _open_standard_streams() -> None:
    """Open the null device in the place of each standard stream that the caller has closed.

    A closed stream is None in Python, and its descriptor would go to the next file or connection.
    Characters that the encoding of standard output lacks are written as escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _not_installed(module: str | None) -> str:
    return (
        f"The package {module} is not installed. Commands of dev mode need ltzd[dev]; if another "
        "command says this, install what requirements-run.lock lists."
    )


app = typer.Typer(
    cls=PlainErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(brand_commands.app, name="brand")
app.add_typer(event_commands.app, name="event")
app.add_typer(user_commands.app, name="user")
app.add_typer(webhook_commands.app, name="webhooks")
app.add_typer(wallet_commands.app, name="wallet")
app.add_typer(wallets_commands.app, name="wallets")
app.add_typer(key_commands.app, name="key")
app.add_typer(lane_commands.app, name="lane")
app.add_typer(tx_commands.app, name="tx")
app.add_typer(index_commands.app, name="index")
app.add_typer(restore_commands.app, name="restore")
app.command()(deploy_command.deploy)
app.add_typer(books_command.app, name="books")
app.command()(sign.sign)
for offer in OFFERS:
    app.add_typer(offer_app(offer), name=offer.name)

Port = Annotated[
    int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 chooses a free one.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ltzd {__version__}")
        raise typer.Exit


@app.callback()
def ltzd(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """The back end of a loyalty-rewards platform whose books are a blockchain."""


@app.command()
def run(
    config: Config,
    roles: Annotated[
        str | None,
        typer.Option(help="Run these roles only, such as http,operator.", metavar="LIST"),
    ] = None,
) -> None:
    """Run ltzd with a settings file until SIGTERM or Ctrl-C."""
    import gc

    # Imports and start-up make objects that stay: the daemon enables the collector when ready.
    gc.disable()
    try:
        from ltzd.daemon.lean_imports import import_lean

        import_lean()
        from ltzd.daemon.settings.settings import read_settings

        settings = read_settings(config, roles)
        from ltzd.daemon import main

        main.run(settings)
    finally:
        gc.enable()


@app.command()
def check(
    config: Config,
    roles: Annotated[
        str | None,
        typer.Option(help="Check for these roles only, such as http,operator.", metavar="LIST"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check all that `run` checks before it starts; change nothing; exit with 1 on a fault."""
    from ltzd.cli.checks import check

    check.check(config, roles, as_json=as_json)


@app.command()
def doctor(config: Config, as_json: AsJson = False) -> None:
    """Check a running installation: backups, budgets, versions, disk; change nothing."""
    from ltzd.cli.checks import check

    check.check(config, None, as_json=as_json, also_running=True)


@app.command()
def dev(  # noqa: PLR0913, PLR0917 - one parameter per option
    port: Port = 8000,
    admin_port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="The port of /status and /metrics; 0 chooses a free one."
        ),
    ] = 9464,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    chain: Annotated[
        Literal["auto", "tester", "anvil"],
        typer.Option(help="The chain to start; auto is anvil if it is installed."),
    ] = "auto",
    block_time: Annotated[
        float,
        typer.Option(
            min=0, max=86_400, help="Seconds between blocks; 0 mines a block for each transaction."
        ),
    ] = 0,
    clean: Annotated[
        bool, typer.Option("--clean", help="Delete the contents of the data directory first.")
    ] = False,
    rpc_url: Annotated[
        list[str] | None,
        typer.Option(
            help="Use this dev chain instead of starting one; repeat it for more nodes of it."
        ),
    ] = None,
    database_url: Annotated[
        str | None, typer.Option(help="Use this PostgreSQL instead of starting one.")
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option(help="Use this Redis instead of starting one.")
    ] = None,
    mint_wallets: Annotated[
        int, typer.Option(min=1, max=64, help="The number of wallets that mint.")
    ] = 1,
    relay_wallets: Annotated[
        int, typer.Option(min=1, max=64, help="The number of wallets that relay.")
    ] = 1,
    max_in_flight: Annotated[
        int,
        typer.Option(
            min=1, max=100_000, help="A wallet's transactions that may wait for their blocks."
        ),
    ] = 5_000,
    site_url: Annotated[
        str | None,
        typer.Option(help="Ask this site on this machine about log-ins, instead of the sandbox's."),
    ] = None,
) -> None:
    """Run everything on this machine: database, chain, sandbox, demo brand and ltzd."""
    from ltzd.dev import main
    from ltzd.dev.options import DevOptions

    main.run(
        DevOptions(
            port=port,
            admin_port=admin_port,
            data_dir=data_dir,
            chain=chain,
            block_time_seconds=block_time,
            clean=clean,
            rpc_urls=tuple(rpc_url or ()),
            database_url=database_url,
            redis_url=redis_url,
            mint_wallets=mint_wallets,
            relay_wallets=relay_wallets,
            max_in_flight=max_in_flight,
            site_url=site_url,
        )
    )


@app.command()
def chain(
    port: Port,
    block_time: Annotated[
        float,
        typer.Option(
            min=0, max=86_400, help="Seconds between blocks; 0 mines a block for each transaction."
        ),
    ] = 0,
) -> None:
    """Run only the tester chain."""
    from ltzd.dev import tester_chain

    arguments = ["--port", str(port), "--block-time", str(block_time)]
    raise typer.Exit(tester_chain.main(arguments))


@app.command()
def sandbox(
    port: Port = 8700,
    data_dir: Annotated[
        Path,
        typer.Option("--data-dir", help="Where the sandbox keeps its data.", metavar="DIR"),
    ] = Path(".ltzd-sandbox"),
    ltzd_url: Annotated[
        str, typer.Option(help="Where ltzd answers, for payment events and the demo site.")
    ] = "http://127.0.0.1:8000",
    rpc_url: Annotated[
        str, typer.Option(help="The node that the explorer reads.")
    ] = "http://127.0.0.1:8545",
    ltz: Annotated[
        str | None,
        typer.Option(
            help="The address of the LTZ contract that the explorer shows.", metavar="0x…"
        ),
    ] = None,
) -> None:
    """Run only the sandbox of the outside services, for staging; print its settings."""
    from ltzd.cli.wallet.lookup import parse_address
    from ltzd.dev import sandbox_process
    from ltzd.dev.sandbox_process import SandboxOptions

    token = None if ltz is None else parse_address(ltz)
    sandbox_process.run(SandboxOptions(port, data_dir, ltzd_url, rpc_url, token))


@app.command()
def migrate(
    complete: Annotated[
        bool,
        typer.Option(
            "--complete",
            help="Also convert large tables now; otherwise a running indexer converts them.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the revisions that are missing.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Upgrade the database schema to this version."""
    from ltzd.cli import migrate as schema_migration
    from ltzd.cli.targets import resolve_target

    target = resolve_target(data_dir, config)
    if dry_run:
        schema_migration.preview(target, as_json=as_json)
    else:
        schema_migration.migrate(target, converts=complete, as_json=as_json)


@app.command()
def status(
    follow: Annotated[
        bool, typer.Option("--follow", help="Refresh every second until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
    admin_url: Annotated[
        str | None,
        typer.Option(help="The admin server's URL; replaces that of the settings.", metavar="URL"),
    ] = None,
    admin_token_file: Annotated[
        Path | None, typer.Option(help="The admin server's token.", metavar="FILE")
    ] = None,
    plain_http: Annotated[
        bool,
        typer.Option(
            "--plain-http", help="Allow sending the token unencrypted to another machine."
        ),
    ] = False,
) -> None:
    """Show what is wrong, and the chain, processes, lanes and queues of the installation."""
    from ltzd.cli import dev_json, status

    url, token, database_url = admin_url, None, None
    if config is not None:
        from ltzd.cli.admin_target import admin_target

        target = admin_target(config)
        url, token = admin_url or target.url, target.token
        plain_http = plain_http or (admin_url is None and target.allows_plain_http)
        database_url = target.database_url if admin_url is None else None
    if admin_token_file is not None:
        from ltzd.daemon.settings.section import secret_from_file

        token = secret_from_file(admin_token_file).get_secret_value()
    url = url or dev_json.read(data_dir).admin_url
    status.status(url, follow, as_json, token, plain_http=plain_http, database_url=database_url)


@app.command()
def init(
    folder: Annotated[
        Path,
        typer.Argument(
            help="The folder to write to; default: the working directory.", metavar="DIR"
        ),
    ] = Path(),
    brand_id: Annotated[
        str | None, typer.Option(help="The brand's wallet address.", metavar="0x…")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The brand's name; default: its domain.", metavar="TEXT")
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            help="A domain that sends the brand's events; may be repeated.", metavar="DOMAIN"
        ),
    ] = None,
    daily_budget: Annotated[
        int | None,
        typer.Option(
            help="The LTZ that the brand may give away in a day; 0 is no limit.", metavar="LTZ"
        ),
    ] = None,
) -> None:
    """Write a commented settings file and a brand file; ask for missing values."""
    from ltzd.cli import init

    init.init(folder, brand_id=brand_id, name=name, domains=domain or (), daily_budget=daily_budget)
