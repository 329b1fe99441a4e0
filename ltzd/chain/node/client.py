"""A client of one node, whatever it is reached by: HTTP and WebSocket clients build on it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import structlog

from ltzd.chain.node.calls import RpcCall
from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.sending import CallSender, RpcPolicy, Transport
from ltzd.chain.node.traits import NodeTraits
from ltzd.concurrency.batcher import Batcher
from ltzd.errors import NodeUnavailable

log = structlog.get_logger()

_SECRET_LENGTH = 12
"""A part of a URL's path or query that is this long may be a key."""


class HasNumber(Protocol):
    """A block's header."""

    @property
    def number(self) -> int: ...


Head = TypeVar("Head", bound=HasNumber)


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

    async def newest(
        self, read: Callable[["RpcClient"], Awaitable[Head]]
    ) -> tuple["RpcClient", Head]:
        """A pinned client and its newest block, which `read` asks it for.

        A pool gives `read` to the next usable node, too, if the best one is silent; the node that
        answers is the pinned one. Raises NodeUnavailable.
        """

    def others(self, min_height: int) -> Sequence["RpcClient"]:
        """Clients of the other usable nodes whose head is at least `min_height`, the best first."""

    @property
    def is_alone(self) -> bool:
        """Whether no other node is usable, so that no node could give a second opinion.

        While others are usable but below the height of a question, the question stays open.
        """

    def publishers(self) -> Sequence["RpcClient"]:
        """Clients of the nodes that a transaction may be published to, the best first."""

    @property
    def traits(self) -> NodeTraits:
        """The peculiarities of the node that this client has learned."""

    @property
    def limits(self) -> NodeLimits:
        """The sizes that the node accepts; a pool returns the sizes of its best node now."""

    def report_contradiction(self, kind: str) -> None:
        """Report that this node contradicts itself or others; a pool then prefers other nodes.

        `kind` is one of a closed set: it labels a metric.
        """

    def report_dispute(self, kind: str) -> None:
        """Report that this node and another one contradict each other, and that neither is
        outvoted.

        The node stays in use, and its answers still count against the other one's.
        """

    def report_silence(self) -> None:
        """Report that this node did not answer in time; a pool leaves it alone for a while."""


class NodeClient:
    """The client of one node; `transport` sends its requests. All its clients share `limits`."""

    def __init__(
        self,
        url: str,
        transport: Transport,
        policy: RpcPolicy,
        limits: NodeLimits | None = None,
    ) -> None:
        self.url = url
        self._limits = limits or NodeLimits(node_name(url))
        self._sender = CallSender(transport, self._limits, policy, secrets_of(url))
        self._batcher: Batcher[RpcCall, Any] = Batcher(self.batch)
        self._traits = NodeTraits()

    async def call(self, method: str, *params: object) -> Any:
        """The result of one call. Raises NodeUnavailable, RpcError."""
        return await self._sender.call((method, params))

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

        The calls are sent in as many requests as the node's limits demand, publications in their
        order. Raises NodeUnavailable if no call has an answer.
        """
        return await self._sender.outcomes(calls) if calls else []

    async def batched_call(self, method: str, *params: object) -> Any:
        """As `call`, in one batch with the calls that other tasks make meanwhile.

        Costs a tenth of `call` if many tasks call. Raises NodeUnavailable, RpcError.
        """
        return await self._batcher.ask((method, params))

    def pinned(self) -> RpcClient:
        return self

    async def newest(self, read: Callable[[RpcClient], Awaitable[Head]]) -> tuple[RpcClient, Head]:
        return self, await read(self)

    def others(self, min_height: int) -> Sequence[RpcClient]:
        return ()

    @property
    def is_alone(self) -> bool:
        return True

    def publishers(self) -> Sequence[RpcClient]:
        return (self,)

    @property
    def traits(self) -> NodeTraits:
        return self._traits

    @property
    def limits(self) -> NodeLimits:
        return self._limits

    def report_contradiction(self, kind: str) -> None:
        log.critical("node.contradiction", kind=kind)

    def report_dispute(self, kind: str) -> None:
        """Does nothing: a single node has no other to contradict."""

    def report_silence(self) -> None:
        """Does nothing: there is no other node to ask instead."""


def node_name(url: str) -> str:
    """Host and port: a path, a query or a user part may hold a secret."""
    parts = urlsplit(url)
    default = 443 if parts.scheme in {"https", "wss"} else 80
    return f"{parts.hostname}:{parts.port or default}"


def node_names(urls: Sequence[str]) -> list[str]:
    """The name of each node; a second node of the same host and port gets a number."""
    names: list[str] = []
    for url in urls:
        name = node_name(url)
        same = sum(known.split(" ")[0] == name for known in names)
        names.append(f"{name} #{same + 1}" if same else name)
    return names


def secrets_of(url: str) -> list[str]:
    """The parts of a URL that no error text may hold, in case the node repeats them."""
    parts = urlsplit(url)
    words = [*parts.path.split("/"), *parts.query.replace("=", "&").split("&")]
    keys = [word for word in words if len(word) >= _SECRET_LENGTH]
    keys += [word for word in (parts.username, parts.password) if word]
    return sorted({*keys, *map(unquote, keys)}, key=len, reverse=True)
