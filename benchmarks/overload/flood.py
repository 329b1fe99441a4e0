"""The open-loop generator: requests leave at their own time, whether or not answers have come.

Each stream has a rate and keep-alive connections of its own. A request leaves on a free connection,
and its latency counts from then on; how late it left is told apart. `measure` starts the process.
"""

import asyncio
import random
import sys
from array import array
from collections import Counter, deque
from time import perf_counter, process_time
from typing import cast

import msgspec
import uvloop

from benchmarks.harness import processes
from benchmarks.harness.load import percentile_ms

_TICK_SECONDS = 0.002
_LAST_SECONDS = 10.0
"""The time limit of the last answers after the period."""


class Stream(msgspec.Struct, frozen=True):
    """`requests` are sent in turn. Without a free one of its connections a request waits."""

    name: str
    requests: list[str]
    per_second: float
    port: int
    connections: int = 256


class Flood(msgspec.Struct, frozen=True):
    """The requests of the first `warm_up_seconds` are sent and not counted."""

    streams: list[Stream]
    seconds: float
    warm_up_seconds: float = 0.0


class Outcome(msgspec.Struct, frozen=True):
    """The counted requests of a stream. `statuses` are of all answers; `lost` had no answer.

    `unhinted` counts refusals without Retry-After. `by_second` pairs accepted and refused answers
    of each second from the start on, and the slowest accepted one in milliseconds. `late_p99_ms`:
    how long requests waited for a free connection of the generator.
    """

    name: str
    sent: int
    accepted: int
    per_second: float
    p50_ms: float
    p99_ms: float
    refused_p99_ms: float
    late_p99_ms: float
    statuses: dict[str, int]
    unhinted: int
    lost: int
    by_second: list[tuple[int, int, float]]
    generator_share: float = 0.0

    @property
    def accepted_share(self) -> float:
        """The accepted part of what was sent."""
        return self.accepted / self.sent if self.sent else 0.0


async def measure(flood: Flood) -> list[Outcome]:
    answer = await processes.answer_of("benchmarks.overload.flood", msgspec.json.encode(flood))
    return msgspec.json.decode(answer, type=list[Outcome])


class _Sender:
    """One stream."""

    def __init__(self, stream: Stream, flood: Flood) -> None:
        self.stream = stream
        self._requests = [request.encode() for request in stream.requests]
        self._next = random.Random(stream.name).randrange(len(self._requests))
        self.free: deque[_Client] = deque()
        self._due: deque[float] = deque()
        self._begin = flood.warm_up_seconds
        self._counted_seconds = flood.seconds
        self._accepted, self._refused, self._late = array("d"), array("d"), array("d")
        self._statuses: Counter[str] = Counter()
        self._seconds: dict[int, list[float]] = {}
        self._made = 0
        self._sent = 0
        self.open = 0
        self._unhinted = 0
        self.start = 0.0

    def advance(self, now: float, *, is_over: bool) -> None:
        """Send all that is due on free connections."""
        while not is_over and self._made < (now - self.start) * self.stream.per_second:
            self._due.append(self.start + self._made / self.stream.per_second)
            self._made += 1
        while self._due and self.free:
            due = self._due.popleft()
            self._next = (self._next + 1) % len(self._requests)
            self._sent += due - self.start >= self._begin
            self.free.popleft().send(self._requests[self._next], due)

    def answered(self, due: float, sent_at: float, status: bytes, head: bytes) -> None:
        now = perf_counter()
        is_accepted = status in {b"200", b"202"}
        second = self._seconds.setdefault(int(due - self.start), [0, 0, 0.0])
        second[0 if is_accepted else 1] += 1
        if is_accepted:
            second[2] = max(second[2], (now - sent_at) * 1000)
        if due - self.start < self._begin:
            return
        self._statuses[status.decode()] += 1
        self._late.append(sent_at - due)
        (self._accepted if is_accepted else self._refused).append(now - sent_at)
        if not is_accepted and b"\r\nretry-after:" not in head.lower():
            self._unhinted += 1

    def outcome(self, share: float) -> Outcome:
        accepted, refused = sorted(self._accepted), sorted(self._refused)
        last = max(self._seconds, default=-1)
        seconds = [self._seconds.get(second, [0, 0, 0.0]) for second in range(last + 1)]
        return Outcome(
            name=self.stream.name,
            sent=self._sent + len(self._due),
            accepted=len(accepted),
            per_second=len(accepted) / self._counted_seconds,
            p50_ms=percentile_ms(accepted, 0.50),
            p99_ms=percentile_ms(accepted, 0.99),
            refused_p99_ms=percentile_ms(refused, 0.99),
            late_p99_ms=percentile_ms(sorted(self._late), 0.99),
            statuses=dict(self._statuses),
            unhinted=self._unhinted,
            lost=self._sent - len(accepted) - len(refused),
            by_second=[(int(a), int(b), slowest) for a, b, slowest in seconds],
            generator_share=share,
        )


class _Client(asyncio.Protocol):
    def __init__(self, sender: _Sender) -> None:
        self._sender = sender
        self._transport: asyncio.Transport
        self._unread = b""
        self._sent_due = self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._sender.free.append(self)

    def send(self, request: bytes, due: float) -> None:
        self._sender.open += 1
        self._sent_due, self._sent_at = due, perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data
        end = data.find(b"\r\n\r\n")
        head = data[:end].lower()
        at = head.find(b"content-length:")
        if end < 0 or len(data) < end + 4 + int(head[at + 15 :].split(b"\r", 1)[0]):
            self._unread = data
            return
        self._unread = b""
        self._sender.open -= 1
        self._sender.answered(self._sent_due, self._sent_at, data[9:12], data[:end])
        self._sender.free.append(self)


async def _run(flood: Flood) -> list[Outcome]:
    loop = asyncio.get_running_loop()
    senders = [_Sender(stream, flood) for stream in flood.streams]
    for sender in senders:
        for _ in range(sender.stream.connections):
            await loop.create_connection(
                lambda sender=sender: _Client(sender),  # type: ignore[misc]
                "127.0.0.1",
                sender.stream.port,
            )
    used = process_time()
    start = perf_counter()
    end = start + flood.warm_up_seconds + flood.seconds
    for sender in senders:
        sender.start = start
    while (now := perf_counter()) < end + _LAST_SECONDS:
        for sender in senders:
            sender.advance(now, is_over=now >= end)
        if now >= end and not any(sender.open for sender in senders):
            break
        await asyncio.sleep(_TICK_SECONDS)
    share = (process_time() - used) / (perf_counter() - start)
    return [sender.outcome(share) for sender in senders]


if __name__ == "__main__":
    _flood = msgspec.json.decode(sys.stdin.buffer.read(), type=Flood)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_run(_flood))))
