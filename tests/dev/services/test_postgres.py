"""The embedded PostgreSQL: adopted, recovered, refused with a sentence, never run as root."""

import asyncio
import json
import os
import pwd
import shutil
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import psutil
import pytest
import pytest_asyncio

from ltzd.dev.services import data_dir, postgres, processes
from ltzd.dev.services.processes import RunAs
from ltzd.errors import Misconfigured
from tests.support.folders import a_data_directory
from tests.support.services.postgres import a_postgres

NOBODY = pwd.getpwnam("nobody").pw_uid
STARTS_IT_AND_IS_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from ltzd.dev.services import postgres

async def main():
    await postgres.start(Path(sys.argv[1]))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
USES_IT_AS_AN_ORDINARY_USER = """
import asyncio, os, sys
from pathlib import Path
import asyncpg
from ltzd.dev.services import data_dir, postgres

async def main():
    with data_dir.locked(Path(sys.argv[1])) as held:
        for _ in range(2):
            database = await postgres.start(held)
            connection = await asyncpg.connect(database.url)
            print("answered", await connection.fetchval("SELECT 42"), "as", os.geteuid())
            await connection.close()
            await postgres.stop(held)

asyncio.run(main())
"""


@pytest_asyncio.fixture
async def folder() -> AsyncIterator[Path]:
    async with a_data_directory() as held:
        yield held


@pytest_asyncio.fixture(scope="module")
async def used() -> AsyncIterator[Path]:
    """A data directory with a used database, shared because creating one takes a second."""
    async with a_data_directory() as held:
        await postgres.start(held)
        yield held


async def ask(url: str, question: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


def leftovers(folder: Path) -> list[int]:
    cluster = str(folder / "postgres")
    running = psutil.process_iter(["cmdline", "pid"])
    return [process.pid for process in running if cluster in (process.info["cmdline"] or [])]


async def test_it_outlives_the_kill_of_its_starter_and_is_adopted(folder: Path) -> None:
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTS_IT_AND_IS_KILLED, str(folder)
    )
    assert await starter.wait() == -signal.SIGKILL
    survivor = processes.find_running(folder, "postgres")
    assert survivor is not None

    database = await postgres.start(folder)
    assert database.service == survivor
    assert await ask(database.url, "SELECT current_database()") == "ltzd"

    await postgres.stop(folder)
    assert leftovers(folder) == []


async def test_data_and_address_outlive_a_stop(used: Path) -> None:
    first = await postgres.start(used)
    await ask(first.url, "CREATE TABLE kept AS SELECT 7 AS number")
    await postgres.stop(used)

    second = await postgres.start(used)
    assert second.url == first.url
    assert await ask(second.url, "SELECT number FROM kept") == 7


async def test_commits_are_durable_and_the_limits_are_ours(used: Path) -> None:
    url = (await postgres.start(used)).url
    assert await ask(url, "SHOW fsync") == "on"
    assert await ask(url, "SHOW synchronous_commit") == "on"
    assert await ask(url, "SHOW max_connections") == "200"
    assert await ask(url, "SHOW listen_addresses") == "127.0.0.1"


async def test_it_asks_for_its_password(used: Path) -> None:
    database = await postgres.start(used)
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(f"postgresql://ltzd:guess@127.0.0.1:{database.service.port}/ltzd")
    assert stat.S_IMODE((used / "postgres.password").stat().st_mode) == 0o600
    password = (used / "postgres.password").read_text()
    assert password not in repr(database)
    assert password not in (used / "run" / "postgres.json").read_text()


async def test_it_never_runs_as_root(used: Path) -> None:
    service = (await postgres.start(used)).service
    assert psutil.Process(service.pid).uids().effective != 0
    assert os.getsid(service.pid) == service.pid


async def test_a_clone_in_a_folder_only_its_owner_may_enter_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    installed = Path(postgres._program("postgres")).parents[2]
    shutil.copytree(installed / "pginstall18", private / installed.name / "pginstall18")
    shutil.copytree(installed.with_suffix(".libs"), private / f"{installed.name}.libs")
    programs = private / installed.name / "pginstall18" / "bin"
    monkeypatch.setattr(postgres, "_program", lambda name: str(programs / name))

    with data_dir.locked(private / "data") as held:
        database = await postgres.start(held)
        assert await ask(database.url, "SELECT 1") == 1
        assert psutil.Process(database.service.pid).uids().effective == (os.geteuid() or NOBODY)
        await postgres.stop(held)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


async def test_committed_rows_survive_the_kill_of_the_server_itself(used: Path) -> None:
    database = await postgres.start(used)
    await ask(database.url, "CREATE TABLE survives AS SELECT 8 AS number")
    os.kill(database.service.pid, signal.SIGKILL)
    await asyncio.wait_for(processes.until_ended(database.service), 20)

    again = await postgres.start(used)
    assert await ask(again.url, "SELECT number FROM survives") == 8


async def test_a_frozen_process_of_a_killed_server_keeps_nothing_down(
    used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.2)
    database = await postgres.start(used)
    connection = await asyncpg.connect(database.url)
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    os.kill(backend, signal.SIGSTOP)
    os.kill(database.service.pid, signal.SIGKILL)
    await asyncio.wait_for(processes.until_ended(database.service), 20)

    again = await postgres.start(used)
    assert await ask(again.url, "SELECT 1") == 1
    assert not any(process.pid == backend for process in postgres._processes_of(used / "postgres"))
    connection.terminate()


async def test_a_stale_pid_file_naming_a_living_stranger_keeps_nothing_down(used: Path) -> None:
    await postgres.stop(used)
    stranger = os.getpid()
    (used / "postgres" / "postmaster.pid").write_text(f"{stranger}\n{used}/postgres\n1\n1\n\n\n\n")

    database = await postgres.start(used)
    assert await ask(database.url, "SELECT 1") == 1


async def test_a_server_whose_record_is_lost_is_replaced(used: Path) -> None:
    forgotten = (await postgres.start(used)).service
    (used / "run" / "postgres.json").unlink()

    database = await postgres.start(used)
    assert database.service.pid != forgotten.pid
    assert leftovers(used) == [database.service.pid]


async def test_a_renamed_database_is_kept_and_a_new_one_begins(folder: Path) -> None:
    first = await postgres.start(folder)
    await ask(first.url, "CREATE TABLE old AS SELECT 1")

    aside = await postgres.rename_aside(folder)
    assert aside is not None
    assert aside.name.startswith("postgres.old-")
    assert (aside / "PG_VERSION").is_file()

    second = await postgres.start(folder)
    assert await ask(second.url, "SELECT to_regclass('old')") is None


async def test_a_database_left_half_made_is_made_anew(folder: Path) -> None:
    (folder / "postgres.new").mkdir()
    (folder / "postgres.new" / "PG_VERSION").write_text("18\n")
    database = await postgres.start(folder)
    assert await ask(database.url, "SELECT 1") == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "not a PostgreSQL data directory"),
        ("12\n", "PostgreSQL '12' made it, and 18 is installed"),
        ("\x00garbage", "made it, and 18 is installed"),
        ("18\n", "the server ended with"),
    ],
)
async def test_a_broken_database_is_a_sentence_that_says_what_to_do(
    folder: Path, content: str | None, complaint: str
) -> None:
    cluster = folder / "postgres"
    cluster.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(cluster, "nobody")
    (folder / "postgres.password").write_text("forgotten")
    if content is not None:
        (cluster / "PG_VERSION").write_text(content)

    with pytest.raises(Misconfigured) as refused:
        await postgres.start(folder)
    assert complaint in refused.value.message
    assert str(cluster) in refused.value.message
    assert "--clean" in refused.value.message
    assert leftovers(folder) == []


async def test_a_lost_password_is_a_sentence(folder: Path) -> None:
    await postgres.start(folder)
    await postgres.stop(folder)
    password = folder / "postgres.password"
    password.write_text("another")
    with pytest.raises(Misconfigured, match="password is not the one"):
        await postgres.start(folder)
    password.unlink()
    with pytest.raises(Misconfigured, match=r"postgres\.password file is missing.*--clean"):
        await postgres.start(folder)


async def test_an_ordinary_user_starts_and_stops_it(folder: Path) -> None:
    home = folder / "home"
    home.mkdir(mode=0o755)
    user = None
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        # Python itself may lie in a folder that only root may enter.
        user = RunAs(nobody.pw_uid, nobody.pw_gid, keep_file_access=True)
    script = [sys.executable, "-c", USES_IT_AS_AN_ORDINARY_USER, str(home / "data")]

    service = await processes.start(folder, "ordinary", script, run_as=user)
    assert await processes.ended_within(service, 30.0)
    assert processes.exit_code(service) == 0, processes.log_text(service)
    assert processes.log_text(service).count("answered 42 as") == 2
    assert "as 0" not in processes.log_text(service)


async def test_every_fresh_database_is_a_copy_of_the_prepared_one() -> None:
    async def prepare(url: str) -> None:
        await ask(url, "CREATE TABLE prepared AS SELECT 5 AS number")

    async with a_postgres(prepare) as databases:
        async with databases.fresh() as first, databases.fresh() as second:
            await ask(first, "DELETE FROM prepared")
            assert await ask(second, "SELECT number FROM prepared") == 5
            lingering = await asyncpg.connect(second)
        lingering.terminate()
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await asyncpg.connect(first)


async def test_the_record_tells_no_secret_and_names_the_process(used: Path) -> None:
    database = await postgres.start(used)
    record = json.loads((used / "run" / "postgres.json").read_text())
    assert record["pid"] == database.service.pid
    assert record["port"] == database.service.port
