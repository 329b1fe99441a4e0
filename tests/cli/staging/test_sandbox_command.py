"""`ltzd sandbox` as a process of its own, and the settings with which `ltzd run` uses it."""

import asyncio
import signal
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from ltzd.daemon.main import warn_of_staging
from ltzd.daemon.settings.identity import VendorIdentitySettings
from ltzd.daemon.settings.settings import Settings, read_settings
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.settings_block import settings_block
from ltzd.errors import Misconfigured
from ltzd.providers.identity.client import IdentityClient
from tests.support.commands import begin_ltzd, ltzd
from tests.support.secret_files import write_secret

NO_NODE = "http://127.0.0.1:1"
TOP_LINES = """
database_url = "postgresql://ltzd@127.0.0.1/ltzd"
master_key_file = "{folder}/secret"
"""
SECTIONS = """
[node]
rpc_url = "https://node.example"
[contracts]
ltz = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
perk_nft = "0xe7f1725e7734ce288f8367e1bb143e90bb3f0512"
points_sale = "0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0"
business_escrow = "0xcf7ed3acca5a467e9e704c703e8d87f634fb0fc9"
first_block = 7
[operator]
minter_key_file = "{folder}/secret"
relay_key_file = "{folder}/secret"
"""


def settings_with(folder: Path, block: str) -> Settings:
    """The settings of an instance with `block` between its top lines and its sections."""
    write_secret(folder / "secret", "hunter2\n")
    text = (TOP_LINES + block + SECTIONS).replace("{folder}", str(folder))
    return read_settings(write_secret(folder / "ltzd.toml", text))


@asynccontextmanager
async def a_sandbox_process(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process, and its output up to the last line."""
    process = await begin_ltzd("sandbox", "--port", 0, "--data-dir", folder / "sandbox")
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(30):
            while not lines or not lines[-1].startswith("# Ctrl-C"):
                line = (await process.stdout.readline()).decode()
                assert line, (await process.communicate())[1].decode()
                lines.append(line)
        yield process, "".join(lines)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def credentials_of(folder: Path) -> dict[str, Any]:
    """Starts a sandbox, asks it for a wallet with the settings that it prints, and stops it."""
    async with a_sandbox_process(folder) as (process, block):
        settings = settings_with(folder, block)
        settings.refuse_dev_providers()
        assert isinstance(settings.identity, VendorIdentitySettings)
        async with IdentityClient(settings.identity.policy()) as client:
            wallet = await client.wallet_of_email("ann@shop.example")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    printed = tomllib.loads(block)
    written = tomllib.loads((folder / "sandbox" / "settings.toml").read_text())
    assert printed == written
    return {"secret": printed["identity"]["app_secret"], "wallet": wallet}


async def test_its_settings_lead_to_it_and_hold_over_a_restart(tmp_path: Path) -> None:
    assert await credentials_of(tmp_path) == await credentials_of(tmp_path)
    assert (tmp_path / "sandbox" / "settings.toml").stat().st_mode & 0o777 == 0o600


async def test_the_settings_are_those_of_every_outside_service(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, 0, NO_NODE, None)
    await sandbox.start()
    try:
        block = settings_block(sandbox)
        settings = settings_with(tmp_path, block)
        assert isinstance(settings.identity, VendorIdentitySettings)
        identity = settings.identity.policy()
        assert identity == replace(sandbox.identity_policy(), issuer=identity.issuer)
        assert settings.payments is not None
        assert settings.payments.key().get_secret_value() == sandbox.payments_policy().secret_key
        accounts = settings.accounts.policy()
        expected = sandbox.accounts_policy()
        assert accounts == structs.replace(
            expected,
            exists_seconds=accounts.exists_seconds,
            missing_seconds=accounts.missing_seconds,
        )
        assert settings.site.base_url == sandbox.site_url
        assert (settings.dns.nameservers, settings.dns.port) == (
            tuple(sandbox.dns_policy().nameservers),
            sandbox.dns_policy().port,
        )
        settings.refuse_dev_providers()
        with pytest.raises(Misconfigured, match="staging = true"):
            settings_with(tmp_path, block.removeprefix("staging = true\n")).refuse_dev_providers()
    finally:
        await sandbox.stop()


def test_staging_is_told_at_every_start(tmp_path: Path) -> None:
    identity = '[identity]\nkind = "oidc"\nissuer = "https://login.example/"\naudience = "a"\n'
    with capture_logs() as other_lines:
        warn_of_staging(settings_with(tmp_path, identity))
    with capture_logs() as staging_lines:
        warn_of_staging(settings_with(tmp_path, "staging = true\n" + identity))

    assert other_lines == []
    assert [line["event"] for line in staging_lines] == ["ltzd.staging"]


async def test_a_used_port_and_a_wrong_address_are_refused_in_a_sentence(tmp_path: Path) -> None:
    held = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = held.sockets[0].getsockname()[1]
    wrong = await ltzd("sandbox", "--data-dir", tmp_path / "a", "--ltz", "0x12")
    process = await begin_ltzd("sandbox", "--port", port, "--data-dir", tmp_path / "b")
    _, err = await asyncio.wait_for(process.communicate(), 60)
    held.close()

    assert wrong.code == 1
    assert "0x12" in wrong.err
    assert process.returncode == 1
    assert err.decode().startswith(f"ltzd: Port {port} is in use")
