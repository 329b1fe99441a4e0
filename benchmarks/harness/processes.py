"""Starts the measured programs as processes on free ports, and stops them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ltzd.dev.services.ports import free_port

START_SECONDS = 120.0
STOP_SECONDS = 20.0


@asynccontextmanager
async def running(arguments: Sequence[str], log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs `python ARGUMENTS` with its output in `log`."""
    async with running_program([sys.executable, *arguments], log) as process:
        yield process


@asynccontextmanager
async def running_program(
    command: Sequence[str], log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=asyncio.subprocess.STDOUT
        )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def answer_of(module: str, question: bytes) -> bytes:
    """Runs `python -m MODULE` with `question` as input; returns its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    answer, _ = await process.communicate(question)
    if process.returncode != 0:
        raise SystemExit(f"{module} ended with {process.returncode}")
    return answer


async def until_it_listens(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            check_alive(process, log)
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


async def until_it_writes(process: asyncio.subprocess.Process, file: Path, log: Path) -> str:
    """Returns the text of a file that the process writes whole when it is ready."""
    async with asyncio.timeout(START_SECONDS):
        while not await asyncio.to_thread(file.exists):
            check_alive(process, log)
            await asyncio.sleep(0.05)
    return await asyncio.to_thread(file.read_text, encoding="utf-8")


def check_alive(process: asyncio.subprocess.Process, log: Path) -> None:
    if process.returncode is not None:
        text = log.read_text(errors="replace")
        raise SystemExit(f"process {process.pid} ended with {process.returncode}:\n{text[-3000:]}")


@asynccontextmanager
async def hello(folder: Path) -> AsyncIterator[int]:
    """Runs the bare Sanic server; yields its port."""
    port, log = free_port(), folder / "hello.log"
    async with running(["-m", "benchmarks.limits.hello", str(port)], log) as process:
        await until_it_listens(process, port, log)
        yield port


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
