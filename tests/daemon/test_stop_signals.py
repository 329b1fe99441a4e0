"""The signals that end ltzd, also if its parent process had them ignored."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WAITS_FOR_A_STOP = """
import asyncio, sys
from ltzd.daemon.stop_signals import stop_on_signals

async def main():
    stop = asyncio.Event()
    if sys.argv[1:]:
        stop_on_signals(stop, on_hangup=lambda: print(sys.argv[1], flush=True))
    else:
        stop_on_signals(stop)
    print("ready", flush=True)
    await stop.wait()

asyncio.run(main())
"""


@contextmanager
def inherited_signals(ignoring: signal.Signals | None = None) -> Iterator[None]:
    """A new process inherits `ignoring` as ignored and SIGHUP, even under nohup, as not ignored."""
    before = {signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL)}
    if ignoring:
        before.setdefault(ignoring, signal.signal(ignoring, signal.SIG_IGN))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def a_process(
    ignoring: signal.Signals | None = None, *, says_on_hangup: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", WAITS_FOR_A_STOP]
    if says_on_hangup is not None:
        command.append(says_on_hangup)
    with inherited_signals(ignoring):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_signal_ends_it_in_order(number: signal.Signals) -> None:
    with a_process() as process:
        process.send_signal(number)
        assert process.wait(10) == 0


def test_ctrl_c_ends_it_though_a_shell_started_it_in_the_background() -> None:
    """A shell starts background processes with SIGINT ignored."""
    with a_process(ignoring=signal.SIGINT) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_under_nohup_a_closed_terminal_does_not_end_it() -> None:
    with a_process(ignoring=signal.SIGHUP) as process:
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.parametrize("ignoring", [None, signal.SIGHUP])
def test_a_hangup_that_has_a_use_ends_nothing(ignoring: signal.Signals | None) -> None:
    with a_process(ignoring, says_on_hangup="renewed") as process:
        assert process.stdout is not None
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            assert process.stdout.readline() == b"renewed\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


SIGNALLED_BEFORE_ANYBODY_LISTENS = """
import asyncio, os, sys
import uvloop
from ltzd.daemon.stop_signals import signals_blocked, stop_on_signals

async def main():
    stop = asyncio.Event()
    stop_on_signals(stop)
    await stop.wait()

with signals_blocked():
    os.kill(os.getpid(), int(sys.argv[1]))
    uvloop.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_comes_before_anybody_listens_is_heard(number: signal.Signals) -> None:
    command = [sys.executable, "-c", SIGNALLED_BEFORE_ANYBODY_LISTENS, str(int(number))]
    with inherited_signals():
        assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_a_hangup_while_ltzd_starts_does_not_end_it(tmp_path: Path) -> None:
    """A supervisor would take that for a clean end and not start ltzd again."""
    settings = tmp_path / "ltzd.toml"
    os.mkfifo(settings, 0o600)
    with (
        inherited_signals(),
        subprocess.Popen(
            [sys.executable, "-m", "ltzd", "run", "--config", settings], stderr=subprocess.PIPE
        ) as process,
    ):
        try:
            with settings.open("w"):  # opens once ltzd has begun to read its settings
                process.send_signal(signal.SIGHUP)
            _, printed = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1, printed
    assert b"database_url" in printed
