"""JSON-RPC over HTTP to one node: single calls and batches, with timeouts.

Raises NodeUnavailable if there is no meaningful answer: the outcome of the call is then unknown.
Raises RpcError if the node answered with an error object. web3's providers cost ten times as much
as a raw call, so they are not used here.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

import aiohttp
import msgspec
import structlog

from ltzd import telemetry
from ltzd.chain.node.traits import NodeTraits
from ltzd.concurrency.batcher import Batcher
from ltzd.errors import LtzdError, NodeFaultKind, NodeUnavailable

log = structlog.get_logger()

RpcCall: TypeAlias = tuple[str, Sequence[object]]
"""A method and its parameters."""


class RpcError(LtzdError):
    """The node's error object. `data` is its revert data, or None if it has none."""

    def __init__(self, code: int, text: str, data: bytes | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.data = data


class RpcClient(Protocol):
    """Calls to one node, or to a pool that gives each request to the best of its nodes."""

    async def call(self, method: str, *params: object) -> Any:
        """The result of one call. Raises NodeUnavailable, RpcError."""

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        """Results in the order of `calls`; a failed call's RpcError stands in place of its result.

        Raises NodeUnavailable if the batch has no answer or lacks the reply to a call.
        """

    async def outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        """As `batch`, but NodeUnavailable stands in place of a result that has no proper reply.

        Raises NodeUnavailable if the batch as a whole has no answer.
        """

    async def batched_call(self, method: str, *params: object) -> Any:
        """As `call`, in one batch with the calls that other tasks make meanwhile."""

    def pinned(self) -> "RpcClient":
        """A client of one node, the best now: it never turns to another one."""

    def others(self, at_least: int) -> Sequence["RpcClient"]:
        """Clients of the other usable nodes whose head is `at_least` this high, the best first."""

    @property
    def is_alone(self) -> bool:
        """Whether no other node is usable, so that nobody could give a second opinion.

        While others are usable but below the height of a question, the question stays open.
        """

    def publishers(self) -> Sequence["RpcClient"]:
        """Clients of the nodes that a transaction is published to, at least one."""

    @property
    def traits(self) -> NodeTraits:
        """The peculiarities of the node that this client has learned."""

    def report_contradiction(self, kind: str) -> None:
        """Tells that this node contradicts itself or others; a pool then prefers its other nodes.

        `kind` is one of a closed set: it labels a metric.
        """


@dataclass(frozen=True, slots=True)
class RpcPolicy:
    timeout_seconds: float = 10.0
    connections: int = 16


class Rpc:
    """A client of one node. Use it as an async context manager: it owns its connections."""

    def __init__(self, url: str, policy: RpcPolicy | None = None) -> None:
        self.url = url
        self._policy = policy or RpcPolicy()
        self._ids = itertools.count(1)
        self._session: aiohttp.ClientSession | None = None
        self._gathering: Batcher[RpcCall, Any] = Batcher(self.batch)
        self._traits = NodeTraits()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._policy.connections),
            timeout=aiohttp.ClientTimeout(total=self._policy.timeout_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, method: str, *params: object) -> Any:
        """The result of one call. Raises NodeUnavailable, RpcError."""
        with telemetry.timed_rpc(method):
            reply = await self._post(self._envelope(method, params))
            return _result(reply)

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        """Results in the order of `calls`; a failed call's RpcError stands in place of its result.

        Raises NodeUnavailable if the batch has no answer or lacks the reply to a call.
        """
        answers = await self.outcomes(calls)
        for answer in answers:
            if isinstance(answer, NodeUnavailable):
                raise answer
        return answers

    async def outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        """As `batch`, but NodeUnavailable stands in place of a result that has no proper reply.

        Raises NodeUnavailable if the batch as a whole has no answer.
        """
        if not calls:
            return []
        envelopes = [self._envelope(method, params) for method, params in calls]
        with telemetry.timed_rpc("batch"):
            replies = await self._post(envelopes)
            if not isinstance(replies, list):
                raise NodeUnavailable(f"The node refuses a batch: {_outcome(replies)}")
            by_id = {
                reply["id"]: reply
                for reply in replies
                if isinstance(reply, dict) and isinstance(reply.get("id"), int)
            }
            return [_outcome_or_none(by_id.get(envelope["id"])) for envelope in envelopes]

    async def batched_call(self, method: str, *params: object) -> Any:
        """As `call`, in one batch with the calls that other tasks make meanwhile.

        Costs a tenth of `call` if many tasks call. Raises NodeUnavailable, RpcError.
        """
        return await self._gathering.ask((method, params))

    def pinned(self) -> RpcClient:
        return self

    def others(self, at_least: int) -> Sequence[RpcClient]:
        return ()

    @property
    def is_alone(self) -> bool:
        return True

    def publishers(self) -> Sequence[RpcClient]:
        return (self,)

    @property
    def traits(self) -> NodeTraits:
        return self._traits

    def report_contradiction(self, kind: str) -> None:
        log.critical("node.contradiction", kind=kind)

    def _envelope(self, method: str, params: Sequence[object]) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": list(params)}

    async def _post(self, body: object) -> Any:
        if self._session is None:
            raise RuntimeError("use Rpc as an async context manager")
        try:
            async with self._session.post(
                self.url,
                data=msgspec.json.encode(body),
                headers={"Content-Type": "application/json"},
            ) as response:
                raw = await response.read()
                if response.status >= 500 and not raw.startswith((b"{", b"[")):
                    raise NodeUnavailable(
                        f"The node answered HTTP {response.status}", kind="http_status"
                    )
            return msgspec.json.decode(raw)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = f"The node does not answer: {type(error).__name__}"
            raise NodeUnavailable(text, kind=_fault_kind(error)) from error
        except msgspec.DecodeError as error:
            raise NodeUnavailable("The node's answer is not JSON", kind="malformed") from error


def _fault_kind(error: Exception) -> NodeFaultKind:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientConnectionError | OSError):
        return "refused_connection"
    return "malformed"


def _result(reply: Any) -> Any:
    outcome = _outcome(reply)
    if isinstance(outcome, RpcError):
        raise outcome
    return outcome


def _outcome_or_none(reply: Any) -> Any:
    """As `_outcome`, but returns NodeUnavailable instead of raising it."""
    try:
        return _outcome(reply)
    except NodeUnavailable as error:
        return error


def _outcome(reply: Any) -> Any:
    """The result or the RpcError of one reply. Raises NodeUnavailable for a malformed reply."""
    if not isinstance(reply, dict):
        raise NodeUnavailable("The node's answer is not a JSON-RPC reply", kind="malformed")
    error = reply.get("error")
    if error is None:
        if "result" not in reply:
            raise NodeUnavailable(
                "The node's answer holds neither result nor error", kind="malformed"
            )
        return reply["result"]
    if not isinstance(error, dict):
        return RpcError(0, str(error))
    code = error.get("code")
    return RpcError(
        code if isinstance(code, int) else 0, str(error.get("message", "")), _revert_data(error)
    )


def _revert_data(error: dict[str, Any]) -> bytes | None:
    """Nodes put revert data in `data`, or one level deeper."""
    data = error.get("data")
    if isinstance(data, dict):
        data = data.get("data")
    if isinstance(data, str) and data.startswith("0x"):
        try:
            return bytes.fromhex(data[2:])
        except ValueError:
            return None
    return None
