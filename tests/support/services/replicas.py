"""A replica of an embedded PostgreSQL that is promoted without the primary's last commits."""

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from ltzd.dev.services import postgres


@dataclass(frozen=True)
class Replica:
    """A physical copy in a data directory of its own; what is committed later is lost to it."""

    folder: Path

    async def promote(self) -> str:
        """Starts the copy as a standby, and promotes it; returns the URL of its database."""
        server = await postgres.start(self.folder, postgres.UNSAFE_BUT_FAST)
        connection = await asyncpg.connect(server.url)
        try:
            assert await connection.fetchval("SELECT pg_promote()")
        finally:
            await connection.close()
        return server.url


async def a_copy(primary: Path, url: str, folder: Path, *, follows: bool = False) -> Replica:
    """Copies a running server, as of now, into an empty data directory.

    With `follows` a server that is started on the copy receives what the primary commits later,
    however much that is by then: both servers keep their logs.
    """
    if follows:
        await _keep_logs(url)
    program = Path(postgres._program("pg_basebackup"))
    process = await asyncio.create_subprocess_exec(
        *(program, "--pgdata", folder / "postgres", "--dbname", url),
        *("--wal-method=stream", "--checkpoint=fast", "--no-sync"),
        *(("--write-recovery-conf",) if follows else ()),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    (folder / "postgres" / "standby.signal").touch()
    _give_to_owner_of(primary / "postgres", folder / "postgres")
    shutil.copy2(primary / "postgres.password", folder / "postgres.password")
    return Replica(folder)


async def _keep_logs(url: str) -> None:
    """A checkpoint, as of the next copy, would else delete what no standby has received yet."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("ALTER SYSTEM SET wal_keep_size = '1GB'")
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()


def _give_to_owner_of(primary: Path, cluster: Path) -> None:
    """Gives root's copy to the user that runs the primary, who may not be root."""
    if os.geteuid() != 0:
        return
    owner = primary.stat()
    for path in (cluster, *cluster.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
