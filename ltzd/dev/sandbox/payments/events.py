"""Sends the payment provider's signed events, each until its receiver answers 2xx.

Attempts are repeated with growing pauses, also after a restart of the sandbox. Events are sent
concurrently, so their order is not guaranteed, and an event may be delivered twice.
"""

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import Callable, Iterable

import aiohttp
import msgspec
from structlog import get_logger

from ltzd.dev.sandbox.payments.sessions import SignedEvent

FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 10.0
_ATTEMPT_SECONDS = 10.0
_CONCURRENCY = 16

_log = get_logger(__name__)


def signature_header(signing_secret: str, signed_at: int, body: bytes) -> str:
    """The Stripe-Signature header; the whole secret is the key, including its prefix."""
    signed = str(signed_at).encode() + b"." + body
    digest = hmac.new(signing_secret.encode(), signed, hashlib.sha256).hexdigest()
    return f"t={signed_at},v1={digest}"


class _Delivery(msgspec.Struct, frozen=True):
    task: asyncio.Task[None]
    tried: asyncio.Event


class EventSender:
    """Events without an address, or after `stop`, wait in the store that keeps them."""

    def __init__(self, signing_secret: str, mark_delivered: Callable[[SignedEvent], None]) -> None:
        self._signing_secret = signing_secret
        self._delivered = mark_delivered
        self._url: str | None = None
        self._session: aiohttp.ClientSession | None = None
        self._waiting: list[SignedEvent] = []
        self._deliveries: dict[str, _Delivery] = {}
        self._slots = asyncio.Semaphore(_CONCURRENCY)

    def start(self, undelivered: Iterable[SignedEvent]) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_ATTEMPT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        self.send(undelivered)

    def set_url(self, url: str) -> None:
        """Set the URL of all further attempts, also for events that are under way."""
        self._url = url
        waiting, self._waiting = self._waiting, []
        self.send(waiting)

    async def stop(self) -> None:
        session, self._session = self._session, None
        under_way = [delivery.task for delivery in self._deliveries.values()]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if session is not None:
            await session.close()

    def send(self, events: Iterable[SignedEvent]) -> None:
        if self._url is None or self._session is None:
            self._waiting.extend(events)
            return
        for event in events:
            if event.id not in self._deliveries:
                tried = asyncio.Event()
                task = asyncio.create_task(self._deliver(event, tried), name=f"event {event.id}")
                self._deliveries[event.id] = _Delivery(task, tried)

    async def wait_first_attempts(self, events: Iterable[SignedEvent], seconds: float) -> None:
        """Wait until each event has been tried once, at most `seconds`."""
        deliveries = [
            self._deliveries[event.id] for event in events if event.id in self._deliveries
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for delivery in deliveries:
                    await delivery.tried.wait()

    async def _deliver(self, event: SignedEvent, tried: asyncio.Event) -> None:
        try:
            pause = FIRST_PAUSE_SECONDS
            while (refusal := await self._attempt(event)) is not None:
                if not tried.is_set():
                    _log.warning("payment_event_refused", event_id=event.id, reason=refusal)
                tried.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, MAX_PAUSE_SECONDS)
            self._delivered(event)
            _log.info("payment_event_delivered", event_id=event.id, type=event.type)
        finally:
            self._deliveries.pop(event.id, None)
            tried.set()

    async def _attempt(self, event: SignedEvent) -> str | None:
        """Return the reason of a failure, or None after a delivery."""
        async with self._slots:
            assert self._session is not None
            assert self._url is not None
            body = event.body.encode()
            headers = {
                "Content-Type": "application/json; charset=utf-8",
                "Stripe-Signature": signature_header(self._signing_secret, int(time.time()), body),
            }
            try:
                async with self._session.post(
                    self._url, data=body, headers=headers, allow_redirects=False
                ) as reply:
                    return None if 200 <= reply.status < 300 else f"status {reply.status}"
            except (aiohttp.ClientError, OSError, ValueError) as error:
                # TimeoutError is an OSError.
                return type(error).__name__
