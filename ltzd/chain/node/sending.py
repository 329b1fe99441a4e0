"""Sends calls to one node in requests of the sizes and at the rate that the node accepts.

A batch is cut into chunks below the learned limits of calls and bytes. A chunk that the node
refuses, in whole or for some of its calls, is asked again in smaller chunks, down to single calls.
Calls refused for their rate are asked again after the pause, a bounded number of times. Nothing is
sent again unchanged after a refusal for its size.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import msgspec

from ltzd import telemetry
from ltzd.chain.node.answers.bounds import answer_bound
from ltzd.chain.node.calls import (
    LOGS,
    PUBLISH,
    RpcCall,
    RpcError,
    block_span,
    envelope,
    outcome_of,
    replies_by_id,
)
from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.refusals import SIZE_KINDS, Refusal, RefusalKind
from ltzd.errors import NodeFaultKind, NodeUnavailable

_SMALLER_ELSEWHERE: Final = {LOGS, "eth_getBlockReceipts"}
"""Calls whose answer a caller can ask for in parts."""

_ABOUT_THE_BATCH: Final = SIZE_KINDS - {RefusalKind.BLOCK_RANGE, RefusalKind.RESULTS}
"""Refusals of a call that may succeed in a smaller batch."""


class RpcPolicy(msgspec.Struct, frozen=True):
    """`timeout_seconds` bounds the wait for an answer, `patience_seconds` that to be sent."""

    timeout_seconds: float = 10.0
    patience_seconds: float = 10.0
    """For a free connection, and for the end of a pause that the node asked for."""
    connections: int = 16
    """Requests at once."""
    max_response_bytes: int = 32 * 1024 * 1024
    """The longest answer. The logs of a block of 500 million gas that only moves LTZ fit in.

    `answers.bounds` has the narrower bounds of most calls.
    """
    max_range_bytes: int = 8 * 1024 * 1024
    """The longest answer with logs of several blocks; a longer one is read in shorter ranges."""
    rate_attempts: int = 5
    """How often a call is sent at most while the node refuses it for its rate."""
    slow_seconds: float = 2.0
    """A request that its caller gave up after this time counts as timed out."""


class RequestRefused(NodeUnavailable):
    """The node, or a gateway before it, refused a request without a JSON-RPC reply."""

    def __init__(self, message: str, refusal: Refusal, kind: NodeFaultKind) -> None:
        super().__init__(message, kind=kind)
        self.refusal = refusal


class ConnectionDropped(NodeUnavailable):
    """The connection broke after the request was sent, so its outcome is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="refused_connection")


class Transport(Protocol):
    async def exchange(
        self, body: bytes, ids: Sequence[int], most: int, *, may_type_logs: bool = False
    ) -> Any:
        """Send one request with calls of these ids and return the decoded reply.

        `most` bounds the bytes of the answer. With `may_type_logs`, which is given for a single
        `eth_getLogs` of a range, the reply may hold LogEntry objects.

        Raises RequestRefused, ConnectionDropped, NodeUnavailable.
        """


class _EncodedCall(msgspec.Struct, frozen=True):
    id: int
    call: RpcCall
    body: bytes


class CallSender:
    """`secrets` are parts of the node's URL: no error text holds them."""

    def __init__(
        self,
        transport: Transport,
        limits: NodeLimits,
        policy: RpcPolicy,
        secrets: Sequence[str] = (),
    ) -> None:
        self._transport = transport
        self._limits = limits
        self._policy = policy
        self._secrets = secrets
        self._ids = itertools.count(1)
        self._slots = asyncio.Semaphore(policy.connections)
        self._queue = asyncio.Lock()

    async def call(self, call: RpcCall) -> Any:
        """The result of one call. Raises NodeUnavailable, RpcError."""
        return await self._single(call, self._deadline(), self._policy.rate_attempts)

    async def outcomes(self, calls: Sequence[RpcCall]) -> list[Any]:
        """The outcomes in the order of `calls`: a result, an RpcError or NodeUnavailable.

        Chunks of publications are sent one after the other, and none after a chunk without an
        answer. Raises NodeUnavailable if no call has an answer.
        """
        answers = await self._in_chunks(
            calls, len(calls), self._deadline(), self._policy.rate_attempts
        )
        faults = [answer for answer in answers if isinstance(answer, NodeUnavailable)]
        if answers and len(faults) == len(answers):
            raise faults[0]
        return answers

    def _deadline(self) -> float:
        return self._limits.clock() + self._policy.timeout_seconds

    # Single calls

    async def _single(self, call: RpcCall, deadline: float, attempts: int) -> Any:
        while True:
            try:
                with telemetry.timed_rpc(call[0]):
                    return await self._alone(self._encoded(call), deadline)
            except RpcError as error:
                if error.refusal is None or not _is_rate(error):
                    raise
                self._limits.refused_rate(error.refusal, error.message)
                attempts -= 1
                if attempts <= 0:
                    raise _unanswered(error) from error

    async def _alone(self, encoded: _EncodedCall, deadline: float) -> Any:
        method = encoded.call[0]
        try:
            reply = await self._exchange([encoded.call], [encoded.id], encoded.body, deadline)
        except RequestRefused as refused:
            is_size = method in _SMALLER_ELSEWHERE and refused.refusal.kind in SIZE_KINDS
            if not is_size and refused.refusal.kind is not RefusalKind.RATE:
                raise
            outcome: Any = RpcError(0, refused.message, refusal=refused.refusal)
        else:
            outcome = outcome_of(reply, method, self._secrets)
            if reply.get("id") != encoded.id and not isinstance(outcome, RpcError):
                raise NodeUnavailable("The node answered another call", kind="malformed")
        self._limits.learn_logs(encoded.call, outcome)
        if not isinstance(outcome, RpcError):
            self._limits.accepted(1, len(encoded.body))
            return outcome
        if not _is_rate(outcome):
            self._limits.accepted(1, len(encoded.body))
        raise outcome

    # Batches

    async def _in_chunks(
        self, calls: Sequence[RpcCall], most: int, deadline: float, attempts: int
    ) -> list[Any]:
        """Outcomes of calls, asked in chunks of at most `most` calls.

        The first chunk may be larger than any that the node has accepted, the others may not, and
        are sent together with it. Before the node has accepted any, and for publications, one chunk
        follows another; none follows a chunk without an answer, whose fault all the rest gets.
        """
        answers: list[Any] = []
        is_publication = any(method == PUBLISH for method, _ in calls)
        while len(answers) < len(calls):
            rest = calls[len(answers) :]
            first = self._chunks(rest[: min(most, self._limits.batch_items)], most)[0]
            tested = self._limits.tested_items(len(_joined(first)))
            if tested and not is_publication:
                chunks = [first, *self._chunks(rest[len(first) :], min(most, tested))]
                answers += await self._together(chunks, deadline, attempts)
                continue
            part = await self._chunk(first, deadline, attempts)
            if all(isinstance(answer, NodeUnavailable) for answer in part):
                part = part[:1] * len(rest)
            answers += part
        return answers

    async def _together(
        self, chunks: Sequence[Sequence[_EncodedCall]], deadline: float, attempts: int
    ) -> list[Any]:
        if len(chunks) == 1:
            return await self._chunk(chunks[0], deadline, attempts)
        parts = await asyncio.gather(*(self._chunk(chunk, deadline, attempts) for chunk in chunks))
        return list(itertools.chain.from_iterable(parts))

    def _chunks(self, calls: Sequence[RpcCall], most: int) -> list[list[_EncodedCall]]:
        most = max(1, min(most, self._limits.batch_items))
        most_bytes = self._limits.request_bytes
        chunks: list[list[_EncodedCall]] = []
        size = 0
        for call in calls:
            encoded = self._encoded(call)
            size += len(encoded.body) + 1
            if not chunks or len(chunks[-1]) >= most or size > most_bytes:
                chunks.append([])
                size = len(encoded.body) + 1
            chunks[-1].append(encoded)
        return chunks

    def _encoded(self, call: RpcCall) -> _EncodedCall:
        id_ = next(self._ids)
        return _EncodedCall(id_, call, msgspec.json.encode(envelope(id_, call)))

    async def _chunk(
        self, chunk: Sequence[_EncodedCall], deadline: float, attempts: int
    ) -> list[Any]:
        calls = [encoded.call for encoded in chunk]
        try:
            if len(chunk) == 1:
                return [await self._single(calls[0], deadline, attempts)]
            with telemetry.timed_rpc("batch"):
                answers = await self._batch(chunk, calls, deadline)
        except RpcError as error:
            if len(chunk) == 1:
                return [error]
            return await self._without_batch(chunk, error, deadline, attempts)
        except NodeUnavailable as error:
            return [error] * len(chunk)
        return await self._ask_again(chunk, answers, deadline, attempts)

    async def _batch(
        self, chunk: Sequence[_EncodedCall], calls: Sequence[RpcCall], deadline: float
    ) -> list[Any]:
        """Outcomes of one batch. Raises RpcError if the node refuses it as a whole."""
        body = _joined(chunk)
        try:
            replies = await self._exchange(calls, [each.id for each in chunk], body, deadline)
        except RequestRefused as refused:
            raise RpcError(0, refused.message, refusal=refused.refusal) from None
        if isinstance(replies, list) and len(replies) == 1 and _is_anonymous(replies[0]):
            replies = replies[0]  # Erigon refuses a batch by a list with one error.
        if not isinstance(replies, list):
            refusal = outcome_of(replies, "", self._secrets)
            if isinstance(refusal, RpcError):
                raise refusal
            raise NodeUnavailable("The node answers a batch with one reply", kind="malformed")
        by_id = replies_by_id(replies)
        return [self._outcome(by_id.get(each.id), each.call[0]) for each in chunk]

    def _outcome(self, reply: Any, method: str) -> Any:
        try:
            return outcome_of(reply, method, self._secrets)
        except NodeUnavailable as error:
            return error

    async def _without_batch(
        self, chunk: Sequence[_EncodedCall], error: RpcError, deadline: float, attempts: int
    ) -> list[Any]:
        """Outcomes after the node refused the chunk as a whole."""
        calls = [encoded.call for encoded in chunk]
        fault = _unanswered(error)
        if error.refusal is not None and _is_rate(error):
            self._limits.refused_rate(error.refusal, error.message)
            attempts -= 1
        if attempts <= 0 or self._limits.clock() >= deadline:
            return [fault] * len(chunk)
        if error.refusal is not None and (_is_rate(error) or error.refusal.kind in SIZE_KINDS):
            # The rate counts calls, so that a large batch alone may exceed it.
            self._learn_batch(chunk, error.refusal)
            return await self._in_chunks(calls, len(chunk) // 2, deadline, attempts)
        # A node that refuses batches may answer single calls.
        first = await self._chunk(chunk[:1], deadline, attempts)
        if _is_same_error(first[0], error):
            return [fault] * len(chunk)
        self._limits.refused_batch(None, len(chunk), len(_joined(chunk)))
        return first + await self._in_chunks(calls[1:], len(chunk) // 2, deadline, attempts)

    async def _ask_again(
        self,
        chunk: Sequence[_EncodedCall],
        answers: list[Any],
        deadline: float,
        attempts: int,
    ) -> list[Any]:
        """Ask again for the calls of a chunk that the node refused within its reply."""
        refused = [place for place, answer in enumerate(answers) if _may_ask_again(answer)]
        for place, answer in enumerate(answers):
            if place not in refused:
                self._limits.learn_logs(chunk[place].call, answer)
        if not refused:
            self._limits.accepted(len(chunk), len(_joined(chunk)))
            return answers
        errors = [answers[place] for place in refused]
        rate = next((error for error in errors if _is_rate(error)), None)
        size = next((error for error in errors if not _is_rate(error)), None)
        if rate is not None:
            self._limits.refused_rate(rate.refusal, rate.message)
            attempts -= 1
        if size is not None:
            self._learn_batch(chunk, size.refusal)
        if attempts <= 0 or self._limits.clock() >= deadline:
            for place in refused:
                answers[place] = _unanswered(answers[place])
            return answers
        most = len(chunk) // 2 if len(refused) == len(chunk) else len(refused)
        again = await self._in_chunks(
            [chunk[place].call for place in refused], most, deadline, attempts
        )
        for place, answer in zip(refused, again, strict=True):
            answers[place] = answer
        return answers

    def _learn_batch(self, chunk: Sequence[_EncodedCall], refusal: Refusal) -> None:
        """Learn from a refused chunk, unless the fault may be a query of logs within it."""
        has_logs = any(encoded.call[0] == LOGS for encoded in chunk)
        if not has_logs or refusal.kind in {RefusalKind.BATCH_ITEMS, RefusalKind.RATE}:
            self._limits.refused_batch(refusal, len(chunk), len(_joined(chunk)))

    # Requests

    async def _exchange(
        self, calls: Sequence[RpcCall], ids: Sequence[int], body: bytes, deadline: float
    ) -> Any:
        until = min(deadline, self._limits.clock() + self._policy.patience_seconds)
        async with self._slot(until):
            await self._limits.wait_for_rate(len(calls), until, self._queue)
            begun = self._limits.clock()
            try:
                most, span = self._most_bytes(calls)
                return await self._transport.exchange(
                    body, ids, most, may_type_logs=span is not None
                )
            except asyncio.CancelledError:
                if self._limits.clock() - begun >= self._policy.slow_seconds:
                    self._limits.timed_out(calls)
                raise
            except RequestRefused:
                raise
            except ConnectionDropped:
                if len(calls) > 1:  # Erigon drops the connection of a batch that is too large.
                    self._limits.timed_out(calls)
                raise
            except NodeUnavailable as error:
                if error.kind == "timeout":
                    self._limits.timed_out(calls)
                raise

    def _most_bytes(self, calls: Sequence[RpcCall]) -> tuple[int, int | None]:
        """The bound of the answer, and the blocks of a single `eth_getLogs` of a range."""
        most = min(self._policy.max_response_bytes, answer_bound(calls))
        if len(calls) > 1:
            return most, None
        span = block_span(calls[0])
        if span is not None and span > 1:
            most = min(most, self._policy.max_range_bytes)
        return most, span

    @asynccontextmanager
    async def _slot(self, deadline: float) -> AsyncIterator[None]:
        """Hold one of the node's connections. Raises NodeUnavailable if none is free in time."""
        if self._slots.locked():
            try:
                async with asyncio.timeout(deadline - self._limits.clock()):
                    await self._slots.acquire()
            except TimeoutError as error:
                raise NodeUnavailable("Too many requests wait for the node", kind="busy") from error
        else:
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()


def _joined(chunk: Sequence[_EncodedCall]) -> bytes:
    return b"[" + b",".join(encoded.body for encoded in chunk) + b"]"


def _may_ask_again(answer: Any) -> bool:
    """Whether the node refused a call that it may answer later, or in a smaller batch."""
    refusal = answer.refusal if isinstance(answer, RpcError) else None
    if refusal is None:
        return False
    return refusal.kind is RefusalKind.RATE or refusal.kind in _ABOUT_THE_BATCH


def _is_anonymous(reply: Any) -> bool:
    return isinstance(reply, dict) and reply.get("id") is None and "error" in reply


def _is_same_error(answer: Any, error: RpcError) -> bool:
    if isinstance(answer, NodeUnavailable):
        return True
    return isinstance(answer, RpcError) and answer.message == error.message


def _is_rate(error: RpcError) -> bool:
    return error.refusal is not None and error.refusal.kind is RefusalKind.RATE


def _unanswered(error: RpcError) -> NodeUnavailable:
    kind: NodeFaultKind = "rate_limited" if _is_rate(error) else "other"
    return NodeUnavailable(f"The node refuses the request: {error.message}", kind=kind)
