"""`ltzd sandbox`: the sandbox as a process of its own, for an instance of `ltzd run` for staging.

The process listens on 127.0.0.1 only. Its data survives a restart, so the settings block stays
valid while the ports are free.
"""

import asyncio
from pathlib import Path

import msgspec
import uvloop

from ltzd.daemon import logs
from ltzd.daemon.stop_signals import signals_blocked, stop_on_signals
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.settings_block import settings_block
from ltzd.dev.services import data_dir
from ltzd.http.payments.handlers import PAYMENT_WEBHOOK
from ltzd.secret_files import write_private
from ltzd.values import Address

SETTINGS_NAME = "settings.toml"


class SandboxOptions(msgspec.Struct, frozen=True):
    """`port` 0 takes a free port. `ltz` is the token that the explorer shows balances of."""

    port: int
    data_dir: Path
    ltzd_url: str
    rpc_url: str
    ltz: Address | None = None


def run(options: SandboxOptions) -> None:
    """Run until SIGTERM or SIGINT. Raises Misconfigured with a sentence for the user."""
    with signals_blocked(), data_dir.locked(options.data_dir) as folder:
        uvloop.run(_run(folder, options))


async def _run(folder: Path, options: SandboxOptions) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    logs.configure()
    url = options.ltzd_url.rstrip("/")
    sandbox = Sandbox(folder, options.port, options.rpc_url, options.ltz)
    sandbox.set_payment_events_url(f"{url}{PAYMENT_WEBHOOK}")
    sandbox.set_ltzd_url(url)
    await sandbox.start()
    try:
        block = settings_block(sandbox)
        write_private(folder / SETTINGS_NAME, block)
        print(_welcome(sandbox, folder, block), flush=True)
        await stop.wait()
    finally:
        await sandbox.stop()


def _welcome(sandbox: Sandbox, folder: Path, block: str) -> str:
    """The output is TOML throughout: what is for a person is a comment."""
    return f"""\
# The sandbox runs at {sandbox.url}/, for staging and tests only: it gives users'
# private keys away. Its settings for `ltzd run`, also in
# {folder / SETTINGS_NAME}
# The first two lines belong above the first [section] of a settings file.

{block}
# A brand's webhooks: webhook_url = "{sandbox.inbox_url("BRAND_ID")}"
# Pages of the sandbox may call ltzd: [http] own_origins = ["{sandbox.url}"]
# Ctrl-C stops the sandbox."""
