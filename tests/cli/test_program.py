"""The program as a whole: its version, its start, and what it says when there is nothing to do."""

import asyncio
import sys
from pathlib import Path

from ltzd import __version__
from tests.support.commands import ltzd, ltzd_apart


async def test_it_tells_its_version() -> None:
    done = await ltzd("--version")

    assert (done.code, done.out, done.err) == (0, f"ltzd {__version__}\n", "")


async def test_status_with_nothing_running_says_what_to_do(tmp_path: Path) -> None:
    outcome = await ltzd_apart("status", "--data-dir", tmp_path / "none")
    elsewhere = await ltzd("status", "--admin-url", "http://127.0.0.1:1")

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"ltzd: No dev instance runs in {tmp_path / 'none'}")
    assert (elsewhere.code, elsewhere.out) == (1, "")
    assert elsewhere.err.startswith("ltzd: Nothing answers at http://127.0.0.1:1")


async def test_run_refuses_bad_settings_in_a_sentence(tmp_path: Path) -> None:
    outcome = await ltzd("run", "--config", tmp_path / "none.toml")

    assert outcome.code == 1
    assert outcome.err.startswith("ltzd: The settings file ")


async def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; import ltzd.cli.main; "
        "heavy = {'web3', 'sanic', 'pydantic', 'asyncpg', 'alembic', 'eth_abi', 'aiohttp'}; "
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    assert await process.wait() == 0
