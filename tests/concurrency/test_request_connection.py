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
