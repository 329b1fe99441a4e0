"""Services in sessions of their own: started, found again, stopped, never confused."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.dev.services import ports, processes
from ltzd.errors import Misconfigured
from tests.support.folders import a_data_directory
from tests.support.waiting import until

WAITS = (sys.executable, "-c", "import time; time.sleep(600)")
IGNORES_SIGTERM = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print('child', child.pid, flush=True)
time.sleep(600)
"""
STARTS_A_SERVICE_AND_IS_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from ltzd.dev.services import processes

async def main():
    argv = (sys.executable, "-c", "import time; time.sleep(600)")
    await processes.start(Path(sys.argv[1]), "sleeper", argv, port=4242, variant="long")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

STARTS_SERVICES_AND_STOPS_THEM = """
import asyncio, sys
from pathlib import Path
from ltzd.dev.services import data_dir, postgres, processes, redis

async def main():
    with data_dir.locked(Path(sys.argv[1])) as held:
        try:
            for _ in range(2):
                await redis.start(held)
                await postgres.start(held)
        finally:
            await processes.stop_all(held)

asyncio.run(main())
"""


@pytest_asyncio.fixture
async def folder() -> AsyncIterator[Path]:
    async with a_data_directory() as held:
        yield held


async def ends(pid: int) -> None:
    async def gone() -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    await until(gone)


async def test_a_service_outlives_the_kill_of_its_starter_and_is_found_again(folder: Path) -> None:
    script = [sys.executable, "-c", STARTS_A_SERVICE_AND_IS_KILLED, str(folder)]
    starter = await asyncio.create_subprocess_exec(*script)
    assert await starter.wait() == -signal.SIGKILL

    service = processes.find_running(folder, "sleeper")
    assert service is not None
    assert (service.port, service.variant) == (4242, "long")

    await processes.stop(service, 5.0)
    assert processes.find_running(folder, "sleeper") is None
    await ends(service.pid)


async def test_a_service_is_in_a_session_of_its_own_from_its_first_moment(folder: Path) -> None:
    """Ctrl-C reaches every process of the terminal's session, also a launcher that just begins."""
    before = set(psutil.Process().children())
    starting = asyncio.create_task(processes.start(folder, "sleeper", WAITS))

    async def launchers() -> set[psutil.Process]:
        return set(psutil.Process().children()) - before

    (launcher,) = await until(launchers)
    session = os.getsid(launcher.pid)
    service = await starting
    await processes.stop(service, 5.0)
    assert session == launcher.pid == service.pid


async def test_a_full_disk_is_the_reason_whatever_fails_after_it(folder: Path) -> None:
    lines = ["PANIC:  could not write to file: No space left on device", "PANIC:  cannot abort it"]
    says = f"import sys; sys.exit('\\n'.join({lines!r}))"
    service = await processes.start(folder, "full", (sys.executable, "-c", says))
    assert await processes.ended_within(service, 60.0)
    assert processes.failure_reason(service) == lines[0]


def test_services_start_in_a_folder_whose_name_is_not_in_the_locales_encoding(
    tmp_path: Path,
) -> None:
    name, localedef = "en_US.ISO-8859-1", shutil.which("localedef")
    if localedef is None:
        pytest.skip("apt-get install locales")
    compiling = [localedef, "-i", "en_US", "-f", "ISO-8859-1", str(tmp_path / name)]
    if subprocess.run(compiling, capture_output=True, check=False).returncode != 0:
        pytest.skip("apt-get install locales")
    folder = tmp_path / "Über uns"

    done = subprocess.run(
        [sys.executable, "-c", STARTS_SERVICES_AND_STOPS_THEM, str(folder)],
        env=os.environ | {"LOCPATH": str(tmp_path), "LC_ALL": name},
        capture_output=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert {path.name for path in tmp_path.iterdir()} == {name, folder.name}
    assert (folder / "redis" / "appendonlydir").is_dir() or (
        folder / "redis/appendonly.aof"
    ).exists()


async def test_a_launcher_whose_starter_is_killed_before_the_record_starts_nothing(
    folder: Path,
) -> None:
    """The log is a FIFO, which holds the launcher up until a reader opens it."""
    (folder / "logs").mkdir()
    log = folder / "logs" / "sleeper.log"
    os.mkfifo(log)
    script = [sys.executable, "-c", STARTS_A_SERVICE_AND_IS_KILLED, str(folder)]
    starter = await asyncio.create_subprocess_exec(*script)

    async def children() -> list[psutil.Process]:
        return psutil.Process(starter.pid).children()

    (launcher,) = await until(children)
    starter.kill()
    await starter.wait()
    reading = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        await ends(launcher.pid)
    finally:
        os.close(reading)
        await processes.stop_all(folder, 5.0)
    assert not (folder / "run" / "sleeper.json").exists()


async def test_a_reused_process_id_is_never_mistaken_for_the_service(folder: Path) -> None:
    service = await processes.start(folder, "sleeper", WAITS)
    record = folder / "run" / "sleeper.json"
    of_another_birth = json.loads(record.read_text()) | {"birth": "an earlier life"}
    record.write_text(json.dumps(of_another_birth))

    assert processes.find_running(folder, "sleeper") is None
    await processes.stop(replace(service, birth="an earlier life"), 1.0)
    assert processes.is_alive(service), "stopping the earlier life touched the living process"
    await processes.stop(service, 5.0)


async def test_a_copied_directory_does_not_claim_the_services_of_the_original(
    folder: Path, tmp_path: Path
) -> None:
    service = await processes.start(folder, "sleeper", WAITS)
    shutil.copytree(folder, tmp_path / "copy")
    assert processes.find_running(tmp_path / "copy", "sleeper") is None
    assert processes.find_running(folder, "sleeper") == service


async def test_a_start_given_up_at_once_leaves_no_process(folder: Path) -> None:
    start = asyncio.create_task(processes.start(folder, "sleeper", WAITS))
    await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not [child for child in psutil.Process().children() if _is_sleeper(child)]
    assert processes.find_running(folder, "sleeper") is None


def _is_sleeper(process: psutil.Process) -> bool:
    try:
        return WAITS[2] in str(process.cmdline())
    except psutil.ZombieProcess:  # An earlier test's process, which has ended.
        return False


async def test_stopping_ends_one_that_ignores_the_signal_and_its_children(folder: Path) -> None:
    service = await processes.start(folder, "stubborn", (sys.executable, "-c", IGNORES_SIGTERM))

    async def child() -> int | None:
        line = processes.log_text(service).strip()
        return int(line.split()[1]) if line.startswith("child") else None

    child_pid = await until(child)
    assert child_pid is not None
    await processes.stop(service, 0.2)
    assert not processes.is_alive(service)
    await ends(child_pid)


async def test_a_death_is_heard_of(folder: Path) -> None:
    service = await processes.start(folder, "sleeper", WAITS)
    watcher = asyncio.create_task(processes.until_ended(service))
    os.kill(service.pid, signal.SIGKILL)
    await asyncio.wait_for(watcher, 20)
    assert processes.exit_code(service) == -signal.SIGKILL


async def test_a_service_gets_no_secret_terminal_or_descriptor_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LTZD_SECRET", "hunter2")
    tells = "import os; print(sorted(os.environ), os.getsid(0) == os.getpid(), os.isatty(0))\n"
    tells += "import sys; print(os.listdir('/proc/self/fd') if sys.platform == 'linux' else [])"
    with socket.socket() as ours:
        ours.set_inheritable(True)
        service = await processes.start(folder, "teller", (sys.executable, "-c", tells))
        assert await processes.ended_within(service, 10.0)
    output = processes.log_text(service)
    assert "LTZD_SECRET" not in output
    assert "True False" in output
    assert str(ours.fileno()) not in output.splitlines()[1] or ours.fileno() < 4


async def test_a_service_that_cannot_run_says_so_in_its_log(folder: Path) -> None:
    service = await processes.start(folder, "absent", ("/nowhere/at/all",))
    assert await processes.ended_within(service, 10.0)
    assert processes.exit_code(service) == 1
    assert "No such file" in processes.failure_reason(service)


async def test_no_record_is_left_half_written(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "sleeper.json").write_text('{"name": "slee')
    assert processes.find_running(folder, "sleeper") is None
    assert processes.remembered_port(folder, "sleeper") is None


async def test_stopping_everything_leaves_no_process(folder: Path) -> None:
    services = [await processes.start(folder, name, WAITS) for name in ("one", "two", "three")]
    await processes.stop_all(folder, 5.0)
    assert not [service for service in services if psutil.pid_exists(service.pid)]


def test_a_taken_port_names_the_option_to_use() -> None:
    with socket.socket() as taken:
        taken.bind((ports.LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"Port {port} is in use.*another with --port"):
            ports.check_free(port, "--port")
    ports.check_free(port, "--port")


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_no_machine_has_is_refused(port: int) -> None:
    with pytest.raises(Misconfigured, match="choose another with --admin-port"):
        ports.check_free(port, "--admin-port")


def test_a_launcher_needs_none_of_our_packages() -> None:
    """The launcher runs without the package, so it imports the standard library only."""
    source = str(Path(processes.__file__).with_name("launch.py"))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({source!r})"], check=False
    )
    assert done.returncode == 0
