"""JSON-RPC over one WebSocket to one node, which opens it again with growing pauses.

A request on a socket that closes, breaks or stays silent has an unknown outcome: NodeUnavailable.
Replies are matched to requests by their ids, in any order. A reply without an id belongs to the
batch under way, of which there is one at a time: nodes refuse a batch as a whole without an id.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Self

import aiohttp
import msgspec
import structlog

from ltzd.chain.node.answers.decoding import MalformedAnswer, OversizedAnswer, decode, is_short
from ltzd.chain.node.client import NodeClient, node_name
from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.refusals import Refusal, RefusalKind
from ltzd.chain.node.sending import ConnectionDropped, RequestRefused, RpcPolicy
from ltzd.chain.websocket_client.socket import NodeSocket, open_socket
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.futures import complete
from ltzd.errors import NodeUnavailable

log = structlog.get_logger()

_MOST_UNASKED: Final = 1_000
"""Messages in a row that answer no request. Late answers are some of them."""


class WsPolicy(msgspec.Struct, frozen=True):
    """Seconds: pings on a quiet socket, and pauses between attempts to open it."""

    ping_seconds: float = 10.0
    first_pause_seconds: float = 0.1
    longest_pause_seconds: float = 15.0


class WsRpc(NodeClient):
    """A client of one node. Use it as an async context manager: it owns its socket."""

    def __init__(
        self,
        url: str,
        policy: RpcPolicy | None = None,
        limits: NodeLimits | None = None,
        ws_policy: WsPolicy | None = None,
    ) -> None:
        policy = policy or RpcPolicy()
        self._socket = _SocketTransport(url, policy, ws_policy or WsPolicy())
        super().__init__(url, self._socket, policy, limits)

    async def __aenter__(self) -> Self:
        self._socket.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()


class _Request(msgspec.Struct, frozen=True, eq=False):
    """`most` bounds the bytes of its answer."""

    answer: asyncio.Future[Any]
    most: int


class _Id(msgspec.Struct):
    id: int


class _FirstId(msgspec.Struct, array_like=True):
    """The first reply of a batch."""

    reply: _Id


_ID_DECODER: Final = msgspec.json.Decoder(_Id)
_FIRST_ID_DECODER: Final = msgspec.json.Decoder(_FirstId)
"""Both decoders read the ids of a message, and build nothing else of it."""


class _SocketTransport:
    def __init__(self, url: str, policy: RpcPolicy, ws_policy: WsPolicy) -> None:
        self._url = url
        self._policy = policy
        self._ws_policy = ws_policy
        self._socket: NodeSocket | None = None
        self._is_decided = asyncio.Event()
        """Set while the socket is open, or after the last attempt to open it has failed."""
        self._fault = "its socket is not open"
        self._logged_fault = ""
        """The fault that is in the log, until a socket opens: a node may be away for weeks."""
        self._waiting: dict[int, _Request] = {}
        self._batch: _Request | None = None
        self._batch_turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def exchange(
        self, body: bytes, ids: Sequence[int], most: int, *, may_type_logs: bool = False
    ) -> Any:
        if self._task is None:
            raise RuntimeError("use WsRpc as an async context manager")
        try:
            async with asyncio.timeout(self._policy.timeout_seconds):
                if len(ids) == 1:
                    return await self._sent(body, ids, most)
                async with self._batch_turn:
                    return await self._sent(body, ids, most)
        except TimeoutError:
            raise NodeUnavailable(
                f"The node does not answer within {self._policy.timeout_seconds:g} s",
                kind="timeout",
            ) from None

    async def _sent(self, body: bytes, ids: Sequence[int], most: int) -> Any:
        await self._is_decided.wait()
        socket = self._socket
        if socket is None:
            raise NodeUnavailable(
                f"The node does not answer: {self._fault}", kind="refused_connection"
            )
        request = _Request(asyncio.get_running_loop().create_future(), most)
        self._waiting.update(dict.fromkeys(ids, request))
        if len(ids) > 1:
            self._batch = request
        try:
            await socket.send(body.decode())
            return await request.answer
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionDropped(f"The node's socket broke: {_reason(error)}") from None
        finally:
            if self._batch is request:
                self._batch = None
            for id_ in ids:
                self._waiting.pop(id_, None)

    # The socket

    async def _run(self) -> None:
        """Keep the socket open until cancelled; pauses grow while sockets end soon and unused.

        Many sockets are asked nothing for weeks, and each node ends them now and then.
        """
        pause = self._ws_policy.first_pause_seconds
        try:
            while True:
                begun = loop_time()
                has_answered = await self._serve()
                if has_answered or loop_time() - begun > self._ws_policy.longest_pause_seconds:
                    pause = self._ws_policy.first_pause_seconds
                if self._fault != self._logged_fault:
                    self._logged_fault = self._fault
                    log.info(
                        "node.socket_lost",
                        node=node_name(self._url),
                        reason=self._fault,
                        again_in_seconds=pause,
                    )
                await asyncio.sleep(pause)
                pause = min(2 * pause, self._ws_policy.longest_pause_seconds)
        finally:
            self._lose("it is closed")

    async def _serve(self) -> bool:
        """Open a socket and read it to its end; returns whether it answered any request."""
        has_answered = False
        reason = "its socket closed"
        try:
            async with open_socket(
                self._url,
                connect_seconds=self._policy.timeout_seconds,
                ping_seconds=self._ws_policy.ping_seconds,
                max_bytes=self._policy.max_response_bytes,
            ) as socket:
                self._socket, self._logged_fault = socket, ""
                self._is_decided.set()
                unasked = 0
                while unasked <= _MOST_UNASKED and (data := await socket.receive()) is not None:
                    is_answer = await self._receive(data)
                    has_answered |= is_answer
                    unasked = 0 if is_answer else unasked + 1
                if unasked > _MOST_UNASKED:
                    reason = "it sends messages without a request"
                if socket.is_too_long:
                    reason = "its answer is too long"
                    self._refuse_length()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = _reason(error)
        self._lose(reason)
        return has_answered

    def _lose(self, reason: str) -> None:
        """End the socket: the outcome of each request under way is unknown."""
        self._socket, self._fault = None, reason
        self._is_decided.set()
        for request in set(self._waiting.values()):
            complete(request.answer, ConnectionDropped(f"The node's socket was lost: {reason}"))
        self._waiting.clear()

    def _refuse_length(self) -> None:
        """End the requests whose answer is too long, if it is theirs: nobody has read its id."""
        for request in set(self._waiting.values()):
            if request.most >= self._policy.max_response_bytes:
                complete(request.answer, _too_long(request.most))

    async def _receive(self, data: bytes) -> bool:
        """Give a message to the request that it answers; returns whether there is one."""
        request = None
        try:
            if not is_short(data):
                request = self._request_of(data)
                if request is None or len(data) > request.most:
                    return self._complete(request, None, len(data))
            content = await decode(data)
        except OversizedAnswer as error:
            if request is not None:
                complete(request.answer, NodeUnavailable(str(error), kind=error.kind))
            return request is not None
        except MalformedAnswer:
            return False
        return self._complete(self._request_answered_by(content), content, len(data))

    def _complete(self, request: _Request | None, content: Any, size: int) -> bool:
        if request is not None:
            complete(request.answer, content if size <= request.most else _too_long(request.most))
        return request is not None

    def _request_of(self, data: bytes) -> _Request | None:
        """The request that a long message answers, by its first id."""
        try:
            if data[:64].lstrip()[:1] == b"[":
                return self._waiting.get(_FIRST_ID_DECODER.decode(data).reply.id)
            return self._waiting.get(_ID_DECODER.decode(data).id)
        except (msgspec.DecodeError, RecursionError):
            return None

    def _request_answered_by(self, content: Any) -> _Request | None:
        replies = content if isinstance(content, list) else [content]
        request = next(
            (
                self._waiting[reply["id"]]
                for reply in replies
                if isinstance(reply, dict)
                and isinstance(reply.get("id"), int)
                and reply["id"] in self._waiting
            ),
            None,
        )
        if request is None and _is_anonymous_error(replies):
            return self._batch or self._only_request()
        return request

    def _only_request(self) -> _Request | None:
        requests = set(self._waiting.values())
        return requests.pop() if len(requests) == 1 else None


def _too_long(most: int) -> RequestRefused:
    return RequestRefused(
        f"The node's answer is longer than {most} bytes",
        Refusal(RefusalKind.RESPONSE_BYTES),
        "oversized",
    )


def _is_anonymous_error(replies: Sequence[Any]) -> bool:
    reply = replies[0] if len(replies) == 1 else None
    return isinstance(reply, dict) and reply.get("id") is None and "error" in reply


def _reason(error: Exception) -> str:
    """Why the socket ended, without the error's text, which may hold the URL."""
    if isinstance(error, TimeoutError):
        return "it did not open a socket in time"
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"it refuses a WebSocket with status {error.status}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its host name is unknown"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "the connection was refused"
    return "the connection broke"
