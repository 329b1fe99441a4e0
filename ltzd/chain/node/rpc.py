"""JSON-RPC over HTTP to one node: single calls and batches, with timeouts.

Raises NodeUnavailable if there is no meaningful answer: the outcome of the call is then unknown.
Raises RpcError if the node answered with an error object. web3's providers cost ten times as much
as a raw call, so they are not used here. No error text holds the node's URL, which may have a key.
"""

from collections.abc import Sequence
from typing import Any, Final, Self

from ltzd.chain.http_client.answers import AnswerTooLong, HttpAnswer
from ltzd.chain.http_client.client import ConnectFailed, HttpClient
from ltzd.chain.node.answers.decoding import (
    MalformedAnswer,
    decode,
    decode_logs,
    decode_short,
    is_short,
)
from ltzd.chain.node.calls import RpcCall, RpcError, outcome_of
from ltzd.chain.node.client import NodeClient, RpcClient
from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.log_entries import decode_reply
from ltzd.chain.node.refusals import (
    SIZE_KINDS,
    Refusal,
    RefusalKind,
    classify_status,
    retry_after_seconds,
)
from ltzd.chain.node.sending import ConnectionDropped, RequestRefused, RpcPolicy
from ltzd.errors import NodeFaultKind, NodeUnavailable

__all__ = ["Rpc", "RpcCall", "RpcClient", "RpcError", "RpcPolicy"]

_UNAUTHORIZED: Final = 401
"""A gateway refuses the URL's key, whatever its error object says: the node was not asked."""


class Rpc(NodeClient):
    """A client of one node. Use it as an async context manager: it owns its connections."""

    def __init__(
        self, url: str, policy: RpcPolicy | None = None, limits: NodeLimits | None = None
    ) -> None:
        policy = policy or RpcPolicy()
        self._http = _HttpTransport(url, policy)
        super().__init__(url, self._http, policy, limits)

    async def __aenter__(self) -> Self:
        self._http.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._http.close()


class _HttpTransport:
    def __init__(self, url: str, policy: RpcPolicy) -> None:
        self._url = url
        self._policy = policy
        self._http: HttpClient | None = None

    def open(self) -> None:
        self._http = HttpClient(self._url, self._policy.timeout_seconds)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()

    async def exchange(
        self, body: bytes, ids: Sequence[int], most: int, *, may_type_logs: bool = False
    ) -> Any:
        """Post one request; HTTP matches the reply, so `ids` are not needed.

        Redirects are not followed: they might lead to another chain's node.
        """
        answer = await self._posted(body, most)
        raw, status = answer.body, answer.status
        if status >= 300 and raw[:64].lstrip()[:1] not in {b"{", b"["}:
            raise _status_fault(answer)
        try:
            if may_type_logs and status < 300:
                # Typed logs hold no lists but their topics, so several MiB may be decoded at once.
                is_range = len(raw) <= self._policy.max_range_bytes
                reply = decode_reply(raw) if is_range else await decode_logs(raw)
                if reply is not None:
                    return reply
            reply = decode_short(raw) if is_short(raw) else await decode(raw)
        except MalformedAnswer as error:
            if status >= 300:
                raise _status_fault(answer) from None
            raise NodeUnavailable(str(error), kind=error.kind) from None
        if status >= 300 and isinstance(reply, dict):
            _check_status(reply, answer)
        return reply

    async def _posted(self, body: bytes, most: int) -> HttpAnswer:
        if self._http is None:
            raise RuntimeError("use Rpc as an async context manager")
        try:
            return await self._http.post(body, most)
        except AnswerTooLong as error:
            refusal = Refusal(RefusalKind.RESPONSE_BYTES)
            raise RequestRefused(str(error), refusal, "oversized") from None
        except (ConnectFailed, TimeoutError, OSError, ValueError) as error:
            # The cause's text may hold the URL.
            raise _connection_fault(error) from None


def _check_status(reply: Any, answer: HttpAnswer) -> None:
    """Raises for a JSON object that is no reply, or whose status refuses the rate or the key."""
    is_reply = "error" in reply or "result" in reply
    if not is_reply or (answer.status == _UNAUTHORIZED and "result" not in reply):
        raise _status_fault(answer)
    if answer.status != 429 or "result" in reply:
        return
    outcome = outcome_of(reply)
    refusal = outcome.refusal if isinstance(outcome, RpcError) else None
    if refusal is not None and refusal.kind in SIZE_KINDS:
        return
    pause = retry_after_seconds(answer.retry_after)
    if pause is None and refusal is not None:
        pause = refusal.retry_after_seconds
    raise RequestRefused(
        f"The node answered HTTP {answer.status}",
        Refusal(RefusalKind.RATE, retry_after_seconds=pause),
        "rate_limited",
    )


def _status_fault(answer: HttpAnswer) -> NodeUnavailable:
    message = f"The node answered HTTP {answer.status}"
    text = answer.body[:2_000].decode(errors="replace")
    refusal = classify_status(answer.status, text, answer.retry_after)
    if refusal is None:
        return NodeUnavailable(message, kind="http_status")
    kinds: dict[RefusalKind, NodeFaultKind] = {
        RefusalKind.RATE: "rate_limited",
        RefusalKind.NODE_TIMEOUT: "timeout",
    }
    return RequestRefused(message, refusal, kinds.get(refusal.kind, "http_status"))


def _connection_fault(error: Exception) -> NodeUnavailable:
    if isinstance(error, TimeoutError):
        return NodeUnavailable("The node does not answer in time", kind="timeout")
    if isinstance(error, ConnectFailed):
        message = f"No connection to the node: {error}"
        return NodeUnavailable(message, kind="refused_connection")
    if isinstance(error, OSError):
        return ConnectionDropped("The node closed the connection without an answer")
    return NodeUnavailable(f"No answer that can be read: {error}", kind="malformed")
