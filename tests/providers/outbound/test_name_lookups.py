"""Look-ups of names by the machine's resolver, whose function is replaced here."""

import asyncio
import socket
import sys
import threading
from typing import Any

import pytest

from ltzd.providers.outbound.name_lookups import NameLookups
from tests.support.waiting import until

PUBLIC = "93.184.216.34"

HANGING = """
import asyncio, socket, threading

from ltzd.providers.outbound.name_lookups import NameLookups

socket.getaddrinfo = lambda *_, **__: threading.Event().wait()


async def main():
    asyncio.create_task(NameLookups(1).addresses_of("slow.example"))
    await asyncio.sleep(0)


asyncio.run(main())
"""


class Resolver:
    """Replaces `socket.getaddrinfo`, which waits until `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.hosts: list[str] = []
        self.failure: Exception | None = None

    def getaddrinfo(self, host: str, *_: object, **__: object) -> list[Any]:
        self.hosts.append(host)
        self.release.wait(60)
        if self.failure is not None:
            raise self.failure
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, 0))]

    async def is_asked(self) -> bool:
        return bool(self.hosts)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver.getaddrinfo)
    return resolver


async def test_callers_of_one_name_share_its_look_up(resolver: Resolver) -> None:
    lookups = NameLookups(1)
    callers = [asyncio.create_task(lookups.addresses_of("api.example")) for _ in range(3)]
    await until(resolver.is_asked)
    callers.pop().cancel()
    resolver.release.set()

    assert await asyncio.gather(*callers) == [[PUBLIC]] * 2
    assert resolver.hosts == ["api.example"]
    assert await lookups.addresses_of("api.example") == [PUBLIC], "nothing is kept"
    assert len(resolver.hosts) == 2


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "no such name"), UnicodeError("label")])
async def test_a_failure_is_each_callers(resolver: Resolver, failure: Exception) -> None:
    resolver.failure = failure
    resolver.release.set()

    with pytest.raises(type(failure)):
        await NameLookups(1).addresses_of("api.example")


async def test_a_name_beyond_the_bound_is_refused_at_once(resolver: Resolver) -> None:
    lookups = NameLookups(1)
    first = asyncio.create_task(lookups.addresses_of("slow.example"))
    await until(resolver.is_asked)

    with pytest.raises(OSError, match="too many names"):
        await lookups.addresses_of("api.example")
    resolver.release.set()
    await first
    assert await lookups.addresses_of("api.example") == [PUBLIC]


async def test_a_machine_without_a_free_thread_refuses_the_look_up(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lookups = NameLookups(1)
    resolver.release.set()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="no thread"):
            await lookups.addresses_of("api.example")
    assert await lookups.addresses_of("api.example") == [PUBLIC]


async def test_a_name_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HANGING)
    try:
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
