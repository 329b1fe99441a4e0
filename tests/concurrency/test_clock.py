"""The default clock is the event loops' own."""

import subprocess
import sys

import pytest

# A process of its own: the tests' clock is none of uvloop's (`tests/support/steady_clock.py`).
PROGRAM = """\
import asyncio, sys
import uvloop
from ltzd.concurrency.clock import loop_time

async def between_two_turns():
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    before = loop.time()
    now = loop_time()
    await asyncio.sleep(0.01)
    assert before <= now <= loop.time(), (before, now, loop.time())
    print("the same")

new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}[sys.argv[1]]
with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(between_two_turns())
"""


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_the_clock_and_the_running_loop_tell_the_same_time(kind: str) -> None:
    program = [sys.executable, "-c", PROGRAM, kind]
    assert subprocess.run(program, check=True, capture_output=True).stdout == b"the same\n"
