"""A forked `ltzd` behaves as `python -m ltzd`: output, exit code, and signals."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.commands import ltzd_apart
from tests.support.instances import fork_server
from tests.support.instances.instance import an_instance

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server runs on Linux only")


async def test_a_forked_command_prints_and_exits_as_the_command_does(tmp_path: Path) -> None:
    arguments = ("dev", "--data-dir", str(tmp_path), "--port", "1")
    (tmp_path / "foreign.txt").write_text("a file that is not ltzd's")
    command = await ltzd_apart(*arguments)

    with (tmp_path / "out").open("wb") as out:
        environment = {key: value for key, value in os.environ.items() if key[:5] != "LTZD_"}
        forked = await fork_server.spawn(arguments, tmp_path, environment, out.fileno())
    code = await asyncio.wait_for(forked.wait(), 30)

    assert (code, (tmp_path / "out").read_text()) == (command.code, command.out + command.err)
    assert code == 1


async def test_a_forked_instance_that_is_killed_reports_the_signal() -> None:
    async with an_instance("--chain", "anvil", started=False) as instance:
        await instance.begin()
        assert isinstance(instance.process, fork_server.ForkedProcess)
        assert await instance.end_with(signal.SIGKILL) == -signal.SIGKILL
        assert not instance.is_running
