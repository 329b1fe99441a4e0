"""A connection of the HTTP clients between two requests."""

import asyncio
import weakref
from typing import cast

from ltzd.concurrency.request_connection import RequestConnection
from tests.support.garbage import no_collection


class Answer:
    """An answer, which tests can refer to weakly."""


class Reader:
    may_reuse_connection = True

    def feed(self, data: bytes) -> Answer:
        return Answer()

    def end(self) -> Answer:
        raise ConnectionError


class Transport:
    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        pass


async def test_an_idle_connection_keeps_no_answer() -> None:
    connection: RequestConnection[Answer] = RequestConnection()
    connection.connection_made(cast("asyncio.WriteTransport", Transport()))
    exchange = asyncio.create_task(connection.exchange(b"GET", Reader()))
    await asyncio.sleep(0)  # The request is sent now.
    connection.data_received(b"200")
    with no_collection():
        answer = await exchange
        reference = weakref.ref(answer)
        del exchange, answer
        await asyncio.sleep(0)  # The step that the exchange has woken holds its result.
        assert reference() is None
    assert connection.is_reusable


class PausableTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self._reads = True

    def is_reading(self) -> bool:
        return self._reads

    def write(self, data: object) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True


class EndlessReader:
    may_reuse_connection = False

    def feed(self, data: bytes) -> None:
        """Takes any bytes for a part of the answer."""

    def end(self) -> None: ...


async def test_a_long_answer_is_read_with_turns_of_the_event_loop_in_between() -> None:
    """uvloop would go on reading as long as there are bytes."""
    connection: RequestConnection[None] = RequestConnection()
    transport = PausableTransport()
    connection.connection_made(transport)
    asking = asyncio.create_task(connection.exchange(b"?", EndlessReader()))
    await asyncio.sleep(0)
    connection.data_received(b"short")
    assert transport.is_reading()
    connection.data_received(b"1\r\nx\r\n" * 20_000)
    assert not transport.is_reading()
    await asyncio.sleep(0)
    assert transport.is_reading()
    asking.cancel()
