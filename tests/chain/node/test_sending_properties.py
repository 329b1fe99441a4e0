"""Every call gets its answer, whatever limits a node has; no refused request is repeated."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ltzd.chain.node.calls import PUBLISH, RpcCall, RpcError
from ltzd.chain.node.learned_limits import NodeLimits
from ltzd.chain.node.refusals import Refusal, RefusalKind
from ltzd.chain.node.sending import CallSender, RequestRefused, RpcPolicy
from ltzd.errors import NodeUnavailable


@dataclass
class LimitedTransport:
    """A node at the wire: `style` is how it words its refusals."""

    items: int
    body_bytes: int
    answered_items: int
    """Calls of a batch that are answered; the others are refused for the size of the reply."""
    style: int
    sent: Counter[str] = field(default_factory=Counter)
    """Requests that were refused, whole or in part."""
    published: list[int] = field(default_factory=list)
    count: int = 0

    async def exchange(
        self, body: bytes, ids: Sequence[int], most: int, *, may_type_logs: bool = False
    ) -> Any:
        await asyncio.sleep(0)
        self.count += 1
        request = json.loads(body)
        if not isinstance(request, list):
            return self._result(request)
        key = json.dumps([call["params"] for call in request])
        if len(body) > self.body_bytes:
            self.sent[key] += 1
            raise RequestRefused("HTTP 413", Refusal(RefusalKind.REQUEST_BYTES), "http_status")
        if len(request) > self.items:
            self.sent[key] += 1
            return self._refusal(request)
        if len(request) > self.answered_items:
            self.sent[key] += 1
        return [
            self._result(call)
            if place < self.answered_items
            else self._error(call, "response too large", -32003)
            for place, call in enumerate(request)
        ]

    def _result(self, call: Any) -> object:
        if call["method"] == PUBLISH:
            self.published.append(call["params"][0])
        return {"id": call["id"], "result": call["params"][0]}

    def _error(self, call: Any, text: str, code: int) -> object:
        return {"id": call["id"], "error": {"code": code, "message": text}}

    def _refusal(self, request: Any) -> object:
        match self.style:
            case 0:
                return self._error({"id": None}, "batch too large", -32600)
            case 1:
                return [self._error({"id": None}, f"batch limit {self.items} exceeded", -32000)]
            case 2:
                text = f"Batch of more than {self.items} requests are not allowed"
                return [self._error(call, text, 31) for call in request]
            case 3:
                return self._error({"id": None}, "the moon is not full", -32000)
        raise RequestRefused("HTTP 504", Refusal(RefusalKind.NODE_TIMEOUT), "timeout")


@settings(deadline=None, max_examples=60)
@given(
    items=st.integers(1, 200),
    body_bytes=st.integers(150, 20_000),
    answered_items=st.integers(1, 300),
    style=st.integers(0, 4),
    counts=st.lists(st.integers(1, 400), min_size=1, max_size=3),
    is_publication=st.booleans(),
)
def test_every_call_is_answered_and_no_refused_request_is_repeated(
    items: int,
    body_bytes: int,
    answered_items: int,
    style: int,
    counts: list[int],
    is_publication: bool,
) -> None:
    node = LimitedTransport(items, body_bytes, answered_items, style)
    first = 0

    async def run() -> None:
        nonlocal first
        sender = CallSender(node, NodeLimits("node"), RpcPolicy(timeout_seconds=60.0))
        for count in counts:
            numbers = range(first, first + count)
            first += count
            method = PUBLISH if is_publication else "eth_x"
            calls: list[RpcCall] = [(method, (number,)) for number in numbers]
            assert await sender.outcomes(calls) == list(numbers)

    asyncio.run(run())
    assert max(node.sent.values(), default=1) == 1
    if is_publication and answered_items >= items:
        assert node.published == list(range(first))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.sampled_from(["ok", "error", "none", "rate", "twice", "foreign"]),
        min_size=2,
        max_size=30,
    )
)
def test_each_outcome_keeps_the_place_of_its_call(kinds: list[str]) -> None:
    class Mixed:
        async def exchange(
            self, body: bytes, ids: Sequence[int], most: int, *, may_type_logs: bool = False
        ) -> Any:
            request = json.loads(body)
            calls = request if isinstance(request, list) else [request]
            replies: list[Any] = []
            for call in calls:
                kind, seen = call["params"]
                reply = {"id": call["id"], "result": seen}
                if kind == "error" or (kind == "rate" and len(calls) > 1):
                    text = "rate limit exceeded, retry in 1ms" if kind == "rate" else "no"
                    reply = {"id": call["id"], "error": {"code": -32000, "message": text}}
                replies += {"none": [], "twice": [reply, reply]}.get(kind, [reply])
                if kind == "foreign":
                    replies.append({"id": call["id"] + 10**6, "result": "foreign"})
            replies.reverse()
            return replies if isinstance(request, list) else (replies or [None])[0]

    async def run() -> list[Any]:
        sender = CallSender(
            Mixed(), NodeLimits("node"), RpcPolicy(timeout_seconds=60.0, rate_attempts=99)
        )
        return await sender.outcomes([("eth_x", (kind, place)) for place, kind in enumerate(kinds)])

    try:
        answers = asyncio.run(run())
    except NodeUnavailable:
        assert set(kinds) == {"none"}
        return
    for place, (kind, answer) in enumerate(zip(kinds, answers, strict=True)):
        if kind == "none":
            assert isinstance(answer, NodeUnavailable)
        elif kind == "error":
            assert isinstance(answer, RpcError)
        else:
            assert answer == place
