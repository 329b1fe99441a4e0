"""A surface behind real HTTP, over an event book that behaves like the action behind it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

import aiohttp

from ltzd.actions.event_handler import EventRequest, EventStatus, RecordedEvent
from ltzd.errors import BrandUnknown, DuplicateEvent, NotFound, Refused
from ltzd.http.app import App, build_app
from ltzd.http.server import serve
from ltzd.http.services import Health, HttpPolicy, Services
from ltzd.rules.brands import Brand, EventRule
from ltzd.values import Address, Hash32, address_of

BRAND_ID = "0x" + "ab" * 20
WALLET = Address(bytes.fromhex("5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"))
CHECKSUMMED_WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
MINT = Hash32(b"\x22" * 32)


@dataclass
class EventBook:
    """Remembers what it was asked; says no to duplicates, and whatever `refusal` holds."""

    asked: list[EventRequest] = field(default_factory=list)
    events: dict[tuple[Address, str, str], UUID] = field(default_factory=dict)
    refusal: Exception | None = None
    hash: Hash32 | None = MINT
    ltz: int = 100
    gate: asyncio.Event | None = None
    brand: Brand = field(
        default_factory=lambda: Brand.model_validate(
            {"id": BRAND_ID, "name": "Demo", "domains": ("shop.example",)}
        )
    )

    async def record(self, request: EventRequest) -> RecordedEvent:
        self.asked.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        key = (request.brand_id, request.event_type, request.email.lower())
        if key in self.events:
            raise DuplicateEvent("Duplicate event", existingEventId=str(self.events[key]))
        self.events[key] = uuid4()
        status = "final" if self.ltz == 0 else "queued" if self.hash is None else "published"
        return RecordedEvent(
            event_id=self.events[key],
            event_type=request.event_type,
            ltz=self.ltz,
            wallet=WALLET,
            wallet_created=True,
            transaction_hash=None if self.ltz == 0 else self.hash,
            status=status,
        )

    async def record_all(
        self, requests: Sequence[EventRequest | Refused]
    ) -> list[RecordedEvent | BaseException]:
        return [await self._outcome(request) for request in requests]

    async def _outcome(self, request: EventRequest | Refused) -> RecordedEvent | BaseException:
        if isinstance(request, Refused):
            return request
        try:
            return await self.record(request)
        except Exception as error:  # noqa: BLE001 - as the action answers
            return error

    async def find(self, event_id: UUID) -> EventStatus:
        for (_, event_type, _), known in self.events.items():
            if known == event_id:
                return EventStatus(
                    event_id=event_id,
                    event_type=event_type,
                    status="minted",
                    ltz=self.ltz,
                    wallet=WALLET,
                    transaction_hash=self.hash,
                    block_number=7,
                    created_at=datetime(2026, 11, 20, 12, 0, 0, 5_000, UTC),
                )
        raise NotFound("Event not found")

    def configuration(self, brand_id: Address) -> list[EventRule]:
        if brand_id != address_of(BRAND_ID):
            raise BrandUnknown("Unknown brand")
        return list(self.brand.configured_events())


@dataclass
class Surface:
    """A running event handler, the client that asks it, and what stands behind."""

    url: str
    client: aiohttp.ClientSession
    book: EventBook
    health: Health = field(default_factory=lambda: Health(True, True, True))

    async def state(self) -> Health:
        return self.health


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[str]:
    """The app's address while it listens on a free port."""
    stop = asyncio.Event()
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(app, "127.0.0.1", 0, stop, on_listening=listening.set_result))
    task.add_done_callback(lambda _task: listening.done() or listening.cancel())
    await asyncio.wait({listening})
    if task.done():
        await task
    try:
        yield f"http://127.0.0.1:{listening.result()}"
    finally:
        stop.set()
        await task


@asynccontextmanager
async def a_surface(policy: HttpPolicy | None = None) -> AsyncIterator[Surface]:
    book = EventBook()
    async with aiohttp.ClientSession() as client:
        surface = Surface("", client, book)
        services = Services(
            events=book,
            health=surface.state,
            is_known_domain=lambda host: host == "shop.example" or host.endswith(".shop.example"),
        )
        async with serving(build_app(services, policy or HttpPolicy(grace_seconds=2.0))) as url:
            surface.url = url
            yield surface


def an_event(**changes: object) -> dict[str, object]:
    """A good request's body; `None` stays, to be sent as null."""
    return {
        "brandId": BRAND_ID,
        "eventType": "account_creation",
        "userEmail": "ada@example.com",
        "domain": "shop.example",
    } | changes


def without(field_name: str) -> dict[str, object]:
    body = an_event()
    del body[field_name]
    return body
