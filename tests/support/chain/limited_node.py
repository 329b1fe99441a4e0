"""A node behind a provider's limits: it refuses what is too large or too much, in any wording."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.chain.scripted_node import HttpAnswer, error, result

Wording = Callable[[int], object]
"""From the size of a refused request to the whole answer."""


def refused_batch(message: str, code: int = -32000, *, status: int = 200) -> Wording:
    """A refusal of a whole batch by one error object without an id."""

    def answer(_size: int) -> object:
        return HttpAnswer(error({"id": None}, message, code), status)

    return answer


_ERIGON: Final = refused_batch("batch limit 100 exceeded: 142 requests given")


@dataclass
class LimitedNode:
    """Each limit is None while there is none. `requests` holds what arrived, refused or not."""

    items: int | None = None
    items_wording: Wording = _ERIGON
    body_bytes: int | None = None
    blocks: int | None = None
    blocks_wording: str = "block range is too wide"
    results: int | None = None
    results_wording: str = "query returned more than 10000 results"
    logs_of_a_block: int = 0
    requests: list[Any] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    """Numbers of calls of the refused requests."""
    refused_spans: list[tuple[int, int]] = field(default_factory=list)
    """First and last block of each refused query of logs."""

    def __call__(self, request: Any) -> object:
        self.requests.append(request)
        calls = request if isinstance(request, list) else [request]
        if self.body_bytes is not None and len(json.dumps(request)) > self.body_bytes:
            self.refused.append(len(calls))
            return HttpAnswer(b"<h1>413 Request Entity Too Large</h1>", 413)
        if self.items is not None and isinstance(request, list) and len(request) > self.items:
            self.refused.append(len(calls))
            return self.items_wording(len(request))
        answers = [self._answer(call) for call in calls]
        return answers if isinstance(request, list) else answers[0]

    def _answer(self, call: Any) -> object:
        if call["method"] != "eth_getLogs":
            return result(call, call["params"][0] if call["params"] else None)
        query = call["params"][0]
        first, last = int(query["fromBlock"], 16), int(query["toBlock"], 16)
        blocks = last - first + 1
        count = blocks * self.logs_of_a_block
        if self.blocks is not None and blocks > self.blocks:
            self.refused_spans.append((first, last))
            return error(call, self.blocks_wording)
        if self.results is not None and count > self.results:
            self.refused_spans.append((first, last))
            return error(call, self.results_wording, -32005)
        return result(call, [{} for _ in range(count)])

    @property
    def sizes(self) -> list[int]:
        """The number of calls of each request that arrived."""
        return [len(each) if isinstance(each, list) else 1 for each in self.requests]

    def repeats(self) -> list[Sequence[Any]]:
        """Requests of several calls that arrived more than once with the same parameters."""
        seen = Counter(
            json.dumps([call["params"] for call in request])
            for request in self.requests
            if isinstance(request, list)
        )
        return [json.loads(key) for key, count in seen.items() if count > 1]
