"""The load generator: a closed loop of keep-alive connections, in a separate process.

Each client sends prepared bytes, reads the status line, the content-length and the body, and sends
the next. `measure` starts the process, gives it a Plan and reads its Load; both travel as JSON.
"""

import asyncio
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from time import perf_counter, process_time, time
from typing import Any, Self, cast

import msgspec
import uvloop

from benchmarks.harness import processes

STATUS_OK = b"200"
STATUS_QUEUED = b"202"
_LENGTH = b"content-length:"
_PATIENCE_SECONDS = 30.0
"""The time limit of the last answers after the period."""


class Plan(msgspec.Struct, frozen=True):
    """`seconds` None sends each request once; else they go round until the time is up.

    Answers of the first `warm_up_seconds` and of the last `cool_down_seconds` are not counted. A
    200 is accepted if its body holds `must_hold` for each of the request's `events`; else it is an
    error, unless it holds `queued_if`: then it counts like a 202. `own_addresses` gives each client
    a loopback address of its own: then limits by address are its own too. `per_second` is the most
    that is sent, in even steps.
    """

    port: int
    requests: list[str]
    clients: int = 64
    warm_up_seconds: float = 0.0
    seconds: float | None = None
    cool_down_seconds: float = 0.0
    must_hold: str = ""
    queued_if: str = ""
    events: int = 1
    own_addresses: bool = False
    per_second: float | None = None


class Load(msgspec.Struct, frozen=True):
    """The counted answers: events, of which a request may have several.

    `errors` and the latencies, in milliseconds, are of requests; the latter of accepted ones.
    `recorded` counts everything that was accepted or queued, before and after the counting too;
    `tenths` all that was accepted by tenths of a second from `first` on. `first` and `began`, when
    the counting began, are wall-clock times. `generator_share` is the part of a core that the
    generator itself used: near 1 it is the bottleneck, not what it measures.
    """

    accepted: int
    recorded: int
    queued: int
    errors: int
    first_error: str
    tenths: list[int]
    first: float
    began: float
    seconds: float
    per_second: float
    p50_ms: float
    p99_ms: float
    generator_share: float

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = msgspec.to_builtins(self)
        del content["tenths"]
        return content

    def accepted_between(self, start: float, end: float) -> int:
        """The number accepted between two wall-clock times, to a tenth of a second."""
        return sum(self.tenths[round((start - self.first) * 10) : round((end - self.first) * 10)])


async def measure(plan: Plan) -> Load:
    answer = await processes.answer_of("benchmarks.harness.load", msgspec.json.encode(plan))
    return msgspec.json.decode(answer, type=Load)


def get(port: int, path: str, *headers: str, host: str = "") -> str:
    more = "".join(f"{header}\r\n" for header in headers)
    return f"GET {path} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\n{more}\r\n"


def post(port: int, path: str, body: str, *headers: str) -> str:
    more = "".join(f"{header}\r\n" for header in headers)
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"{more}Content-Length: {len(body.encode())}\r\n\r\n{body}"
    )


class _Generator:
    def __init__(self, plan: Plan, wall_clock: float) -> None:
        self._must_hold = plan.must_hold.encode()
        self._queued_if = plan.queued_if.encode()
        self._events = plan.events
        self._requests = self._order([request.encode() for request in plan.requests], plan)
        self._start = start = perf_counter()
        self._begin = start + plan.warm_up_seconds
        self._end = float("inf") if plan.seconds is None else self._begin + plan.seconds
        self._last = self._end + plan.cool_down_seconds
        self._start_wall = wall_clock
        self._step = 0.0 if plan.per_second is None else 1 / plan.per_second
        self._next_at = start
        self._tenths: Counter[int] = Counter()
        self._latencies = array("d")
        self._queued = 0
        self._recorded = 0
        self._errors = 0
        self._first_error = ""
        self._open = 0
        self._latest = start
        self.done = asyncio.Event()

    @staticmethod
    def _order(requests: Sequence[bytes], plan: Plan) -> Iterator[bytes]:
        yield from requests
        while plan.seconds is not None:
            yield from requests

    def opened(self) -> None:
        self._open += 1

    def closed(self) -> None:
        self._open -= 1
        if self._open == 0:
            self.done.set()

    def next_request(self) -> bytes | None:
        if perf_counter() >= self._last:
            return None
        return next(self._requests, None)

    def pause(self) -> float:
        """The seconds before the next request may be sent."""
        if not self._step:
            return 0.0
        now = perf_counter()
        self._next_at = max(self._next_at, now) + self._step
        return self._next_at - self._step - now

    def answered(self, sent_at: float, status: bytes, body: bytes) -> None:
        now = perf_counter()
        is_accepted = status == STATUS_OK and body.count(self._must_hold) >= self._events
        is_queued = not is_accepted and self._is_queued(status, body)
        if is_accepted or is_queued:
            self._recorded += self._events
        else:
            self.failed(f"{status.decode()} {body.decode(errors='replace')}")
        if is_accepted:
            self._tenths[int((now - self._start) * 10)] += self._events
        if not self._begin <= now < self._end:
            return
        self._latest = now
        if is_queued:
            self._queued += self._events
        if is_accepted:
            self._latencies.append(now - sent_at)

    def _is_queued(self, status: bytes, body: bytes) -> bool:
        may_be_queued = status == STATUS_OK and self._queued_if != b""
        return status == STATUS_QUEUED or (may_be_queued and self._queued_if in body)

    def failed(self, reason: str) -> None:
        self._errors += 1
        self._first_error = self._first_error or reason[:500]

    def result(self) -> Load:
        end = self._latest if self._end == float("inf") else self._end
        seconds = end - self._begin
        ordered = sorted(self._latencies)
        accepted = len(ordered) * self._events
        return Load(
            accepted=accepted,
            recorded=self._recorded,
            queued=self._queued,
            errors=self._errors,
            first_error=self._first_error,
            tenths=[self._tenths[tenth] for tenth in range(max(self._tenths, default=0) + 1)],
            first=self._start_wall,
            began=self._start_wall + self._begin - self._start,
            seconds=seconds,
            per_second=accepted / seconds if seconds > 0 else 0.0,
            p50_ms=percentile_ms(ordered, 0.50),
            p99_ms=percentile_ms(ordered, 0.99),
            generator_share=0.0,
        )


def percentile_ms(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000 if ordered else 0.0


class _Client(asyncio.Protocol):
    def __init__(self, generator: _Generator) -> None:
        self._generator = generator
        self._transport: asyncio.Transport
        self._unread = b""
        self._sent_at = 0.0
        self._is_waiting = False

    @classmethod
    async def connected(cls, generator: _Generator, port: int, own: int | None) -> Self:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(
            lambda: cls(generator),
            "127.0.0.1",
            port,
            local_addr=None if own is None else (loopback_address(own), 0),
        )
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without saying so
        self._generator.opened()

    def send(self) -> None:
        request = self._generator.next_request()
        if request is None:
            self._transport.close()
        elif pause := self._generator.pause():
            asyncio.get_running_loop().call_later(pause, self._write, request)
        else:
            self._write(request)

    def _write(self, request: bytes) -> None:
        self._is_waiting = True
        self._sent_at = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._unread:
            data = self._unread + data
        head_end = data.find(b"\r\n\r\n")
        if head_end < 0 or len(data) < head_end + 4 + _length(data[:head_end]):
            self._unread = data
            return
        self._unread = b""
        self._is_waiting = False
        self._generator.answered(self._sent_at, data[9:12], data[head_end + 4 :])
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_waiting:
            self._generator.failed(f"connection lost: {exc!r}")
        self._generator.closed()


def loopback_address(number: int) -> str:
    """Any address of 127.0.0.0/8, all of which is loopback."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def _length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(_LENGTH)
    return 0 if at < 0 else int(lower[at + len(_LENGTH) :].split(b"\r", 1)[0])


async def _run(plan: Plan) -> Load:
    generator = _Generator(plan, time())
    used, start = process_time(), perf_counter()
    clients = [
        await _Client.connected(generator, plan.port, number if plan.own_addresses else None)
        for number in range(plan.clients)
    ]
    for client in clients:
        client.send()
    patience = None
    if plan.seconds is not None:
        total = plan.warm_up_seconds + plan.seconds + plan.cool_down_seconds
        patience = total + _PATIENCE_SECONDS
    async with asyncio.timeout(patience):
        await generator.done.wait()
    share = (process_time() - used) / (perf_counter() - start)
    return msgspec.structs.replace(generator.result(), generator_share=share)


if __name__ == "__main__":
    _plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_run(_plan))))
