"""Programs of tests/clients: clients and nodes of npm, which `scripts/with-node` installs once."""

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 300.0
"""Long enough to install the packages on the first use."""


async def install() -> None:
    """Installs the packages if they are missing; call before programs that run at once."""
    async with running("true") as process:
        assert await process.wait() == 0, "`scripts/with-node --in tests/clients true` says why"


async def answers_of(program: str, *arguments: str) -> Any:
    """The JSON that a program of tests/clients prints."""
    process = await _start("node", program, *arguments, output=PIPE)
    try:
        async with asyncio.timeout(START_SECONDS):
            output, errors = await process.communicate()
    finally:
        await _ended(process)
    assert process.returncode == 0, errors.decode()
    return json.loads(output)


@asynccontextmanager
async def running(*command: str) -> AsyncIterator[Process]:
    """A program of tests/clients that runs until the context ends."""
    process = await _start(*command, output=DEVNULL)
    try:
        yield process
    finally:
        await _ended(process)


async def _start(*command: str, output: int) -> Process:
    script = ROOT / "scripts" / "with-node"
    return await asyncio.create_subprocess_exec(
        str(script), "--in", "tests/clients", *command, stdout=output, stderr=output
    )


async def _ended(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
        await process.wait()
