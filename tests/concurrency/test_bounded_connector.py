"""A WebSocket's bytes are read in small steps. Other bounds: tests/providers/outbound."""

import asyncio
from typing import Any

import pytest_asyncio
from aiohttp.client_proto import ResponseHandler

from ltzd.concurrency.bounded_connector import BoundedConnector


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class FakeParser:
    """aiohttp's parser of WebSockets, which takes any bytes."""

    def feed_data(self, _data: bytes) -> tuple[bool, bytes]:
        return False, b""


@pytest_asyncio.fixture
async def handler() -> Any:
    """The protocol of a connection that has become a WebSocket."""
    connector = BoundedConnector(1_000)
    handler: ResponseHandler = connector._factory()
    handler.connection_made(FakeTransport())
    handler._upgraded = True
    handler.set_parser(FakeParser(), None)
    yield handler
    await connector.close()


async def test_a_socket_is_read_once_in_a_turn_of_the_event_loop(handler: Any) -> None:
    """uvloop would go on reading as long as there are bytes."""
    handler.data_received(b"\x00\x00" * 100_000)
    assert not handler.transport.reads
    await asyncio.sleep(0)
    assert handler.transport.reads


async def test_a_socket_whose_messages_are_not_taken_is_not_read_again(handler: Any) -> None:
    handler.data_received(b"\x00\x00")
    handler.pause_reading()
    await asyncio.sleep(0)
    assert not handler.transport.reads
    handler.resume_reading()
    assert handler.transport.reads
