"""Heads that nodes announce over WebSocket: `eth_subscribe` for `newHeads`, a socket for each node.

An announcement is a hint to look at once. Nothing is decided by it, so it is not checked, and
polling finds every head that a socket omits. A socket that stays silent while the chain goes on is
closed and opened again: after three block times, or once another source has shown a higher head for
as long. Times are seconds on the clock of `asyncio` loops.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import aiohttp
import msgspec
import structlog

from ltzd import telemetry
from ltzd.chain.node.answers.typed import LARGEST_COUNT, Header, block_timestamp, quantity
from ltzd.chain.node.client import node_name
from ltzd.chain.websocket_client.socket import NodeSocket, open_socket
from ltzd.concurrency.clock import loop_time
from ltzd.rules.indexer.block_times import BlockTimes, silence_seconds
from ltzd.values import Hash32, hash_of

log = structlog.get_logger()

_SUBSCRIBE = '{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}'
_PING_SECONDS = 20.0
_MOST_BYTES = 2 * 1024 * 1024
"""The longest message: some nodes announce a head with the hashes of its transactions."""
_REMEMBERED = 256
_LARGEST_JUMP = 1_000
"""Blocks. An announced head that is higher above every known head is not passed on."""

_Loss: TypeAlias = Literal["closed", "malformed", "refused", "silent", "unsupported"]


class HeadSocketPolicy(msgspec.Struct, frozen=True):
    connect_seconds: float = 10.0
    """The longest wait for a connection, and for the answer to the subscription."""
    first_pause_seconds: float = 0.2
    longest_pause_seconds: float = 30.0
    unsupported_pause_seconds: float = 300.0
    """The pause before a node that does not know the subscription is asked again."""
    least_silence_seconds: float = 1.0
    """No socket counts as silent sooner, however fast the chain is."""
    unknown_silence_seconds: float = 5.0
    """Used instead of three block times while the chain has no known block time."""


class _Message(msgspec.Struct):
    """A message of a node, of which nothing else is decoded."""

    id: int | str | None = None
    method: str = ""
    result: msgspec.Raw = msgspec.Raw()
    params: msgspec.Raw = msgspec.Raw()


class _Head(msgspec.Struct):
    number: str
    timestamp: str
    hash: str


class _Params(msgspec.Struct):
    result: _Head


_MESSAGE_DECODER = msgspec.json.Decoder(_Message)
_PARAMS_DECODER = msgspec.json.Decoder(_Params)


class _SocketLost(Exception):
    def __init__(self, reason: _Loss) -> None:
        super().__init__(reason)
        self.reason: _Loss = reason


class NewHeads:
    """`run` keeps a socket open to each URL; `wait` returns what the sockets announce."""

    def __init__(
        self,
        urls: Sequence[str],
        policy: HeadSocketPolicy | None = None,
    ) -> None:
        self._policy = policy or HeadSocketPolicy()
        self._times = BlockTimes()
        self._highest = 0
        self._recent: deque[Hash32] = deque(maxlen=_REMEMBERED)
        """Heads that were announced or read: other sockets announce them again."""
        self._announced: int | None = None
        self._is_announced = asyncio.Event()
        self.sockets = [_HeadSocket(url, self._policy, self._receive) for url in urls]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for socket in self.sockets:
                group.create_task(socket.run())

    async def wait(self, seconds: float) -> int | None:
        """The highest height announced since the last call, at once if there is one.

        Returns None if none is announced within `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._is_announced.wait()
        except TimeoutError:
            return None
        self._is_announced.clear()
        announced, self._announced = self._announced, None
        return announced

    def observe(self, head: Header) -> None:
        """Record a head that was read from a node: a socket that omits it counts as silent."""
        number = head.number
        if number < self._highest - _LARGEST_JUMP:
            self._highest = 0  # The first announcement was absurd, or the chain is another one.
        if head.hash not in self._recent:
            self._recent.append(head.hash)
        self._note(number, head.timestamp)

    def _receive(self, number: int, timestamp: int, block_hash: Hash32) -> None:
        if self._highest and number > self._highest + _LARGEST_JUMP:
            return
        if block_hash in self._recent:
            return
        self._recent.append(block_hash)
        telemetry.HEADS_ANNOUNCED.inc()
        if self._announced is None or number > self._announced:
            self._announced = number
            self._is_announced.set()
        self._note(number, timestamp)

    def _note(self, number: int, timestamp: int) -> None:
        if number <= self._highest:
            return
        is_first, self._highest = not self._highest, number
        self._times = self._times.with_head(number, timestamp, loop_time())
        if is_first:
            return  # The head may have been mined before the sockets subscribed.
        limit = silence_seconds(self._times.seconds(), self._policy.least_silence_seconds)
        for socket in self.sockets:
            socket.expect(number, limit)


class _HeadSocket:
    def __init__(
        self,
        url: str,
        policy: HeadSocketPolicy,
        receive: Callable[[int, int, Hash32], None],
    ) -> None:
        self._url = url
        self._policy = policy
        self._receive = receive
        self._pause = policy.first_pause_seconds
        self._logged: _Loss | None = None
        """The loss that is in the log, until a socket opens: a node may be away for weeks."""
        self._newest = 0
        """The highest head that this socket has announced."""
        self._limit: float | None = None
        """Three block times, if the chain has a block time."""
        self._deadline: asyncio.Timeout | None = None
        """Expires when the socket has been silent for too long; is None while it is not open."""
        self.is_open = False

    async def run(self) -> None:
        """Keep the socket open until cancelled; pauses grow while it announces nothing."""
        while True:
            try:
                await self._listen()
            except _SocketLost as loss:
                reason = loss.reason
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                reason = "refused"
            telemetry.HEAD_SOCKETS_LOST.labels(reason).inc()
            pause = self._pause
            if reason == "unsupported":
                pause = self._policy.unsupported_pause_seconds
            if reason != self._logged:
                self._logged = reason
                log.info(
                    "node.head_socket_lost",
                    node=node_name(self._url),
                    reason=reason,
                    again_in_seconds=pause,
                )
            await asyncio.sleep(pause)
            self._pause = min(self._pause * 2, self._policy.longest_pause_seconds)

    def expect(self, number: int, limit: float | None) -> None:
        """Set the highest known head: the socket must announce it, or counts as silent."""
        self._limit = limit
        if self._deadline is None or self._deadline.expired() or number <= self._newest:
            return
        patience = limit if limit is not None else self._policy.unknown_silence_seconds
        until = self._deadline.when()
        self._deadline.reschedule(min(until or float("inf"), loop_time() + patience))

    async def _listen(self) -> None:
        """Announce heads. Raises _SocketLost, and aiohttp's errors if there is no connection."""
        async with open_socket(
            self._url,
            connect_seconds=self._policy.connect_seconds,
            ping_seconds=_PING_SECONDS,
            max_bytes=_MOST_BYTES,
        ) as socket:
            async with asyncio.timeout(self._policy.connect_seconds):
                await self._subscribe(socket)
            self.is_open, self._logged = True, None
            telemetry.HEAD_SOCKETS_OPEN.inc()
            try:
                async with asyncio.timeout(None) as self._deadline:
                    self._wait_for_next()
                    while True:
                        self._announce(_subscription(await _message(socket)))
            except TimeoutError:
                raise _SocketLost("silent") from None
            finally:
                self._closed()

    async def _subscribe(self, socket: NodeSocket) -> None:
        await socket.send(_SUBSCRIBE)
        while True:
            message = await _message(socket)
            if message.id == 1:
                break
        if not bytes(message.result).startswith(b'"'):
            raise _SocketLost("unsupported")

    def _announce(self, head: tuple[int, int, Hash32] | None) -> None:
        if head is None:
            return
        number, timestamp, block_hash = head
        self._newest = number  # Lower after a reorg: its next head is expected again.
        self._pause = self._policy.first_pause_seconds
        self._wait_for_next()
        self._receive(number, timestamp, block_hash)

    def _wait_for_next(self) -> None:
        assert self._deadline is not None
        when = None if self._limit is None else loop_time() + self._limit
        self._deadline.reschedule(when)

    def _closed(self) -> None:
        if self.is_open:
            telemetry.HEAD_SOCKETS_OPEN.dec()
        self.is_open, self._deadline = False, None


async def _message(socket: NodeSocket) -> _Message:
    data = await socket.receive()
    if data is None:
        raise _SocketLost("closed")
    try:
        return _MESSAGE_DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _SocketLost("malformed") from error


def _subscription(message: _Message) -> tuple[int, int, Hash32] | None:
    """Height, timestamp and hash of an announced head, or None for another message."""
    if message.method != "eth_subscription":
        return None
    try:
        head = _PARAMS_DECODER.decode(message.params).result
        number = quantity(head.number, LARGEST_COUNT)
        return number, block_timestamp(head.timestamp), hash_of(head.hash)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise _SocketLost("malformed") from error
