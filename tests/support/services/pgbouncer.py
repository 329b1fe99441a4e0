"""A real PgBouncer in transaction mode for tests, before a PostgreSQL server."""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import asyncpg

from tests.support.folders import a_data_directory
from tests.support.ports import free_port
from tests.support.waiting import until

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
WHY_ABSENT = "Debian's package pgbouncer is not installed"


@dataclass
class PgBouncer:
    """`server_sessions` is how many sessions of the server all its clients share."""

    folder: Path
    port: int
    process: asyncio.subprocess.Process | None = None

    def url_of(self, direct: str) -> str:
        """The same database and user by way of the pooler."""
        parts = urlsplit(direct)
        user = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{self.port}"))

    async def start(self) -> None:
        assert PROGRAM is not None
        as_root = ("-u", "nobody") if os.geteuid() == 0 else ()
        self.process = await asyncio.create_subprocess_exec(
            *(PROGRAM, "-q", *as_root, str(self.folder / "pgbouncer.ini")),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    def point_to(self, direct: str) -> None:
        """Leads all later server connections to another server, as an administrator's reload."""
        parts, path = urlsplit(direct), self.folder / "pgbouncer.ini"
        line = f"* = host={parts.hostname} port={parts.port}"
        path.write_text(re.sub(r"(?m)^\* = host=.*$", line, path.read_text()))
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    async def kill(self) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def a_pgbouncer(
    direct: str, *, mode: str = "transaction", server_sessions: int = 4, ignored: str = ""
) -> AsyncIterator[PgBouncer]:
    """Starts a pooler for all databases of the server of the URL `direct`, and ends it.

    `ignored` names the startup parameters that the pooler drops instead of refusing them.
    """
    parts = urlsplit(direct)
    async with a_data_directory() as folder:
        bouncer = PgBouncer(folder, free_port())
        (folder / "users.txt").write_text(f'"{parts.username}" "{unquote(parts.password or "")}"\n')
        (folder / "pgbouncer.ini").write_text(
            f"""
[databases]
* = host={parts.hostname} port={parts.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {bouncer.port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
pool_mode = {mode}
ignore_startup_parameters = {ignored}
default_pool_size = {server_sessions}
max_client_conn = 500
server_login_retry = 1
query_wait_timeout = 5
"""
        )
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)
        for parent in folder.parents:
            if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)
        await bouncer.start()

        async def answers() -> bool:
            with suppress(OSError):
                connection = await asyncpg.connect(bouncer.url_of(direct), statement_cache_size=0)
                await connection.close()
                return True
            return False

        try:
            await until(answers)
            yield bouncer
        finally:
            await bouncer.kill()
