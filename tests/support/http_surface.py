"""The surfaces behind real HTTP, over books that behave like the actions behind them."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import aiohttp

from ltzd.actions.event_handler import EventRequest, EventStatus, RecordedEvent
from ltzd.actions.relayer import RelayAnswer, RelayRequest
from ltzd.cache.rate_limits import RateLimits
from ltzd.errors import (
    BrandUnknown,
    DuplicateEvent,
    IdempotencyKeyReused,
    NotFound,
    RateLimited,
    Refused,
    Unauthorized,
    ValidationFailed,
)
from ltzd.http.app import App, build_app
from ltzd.http.server import serve
from ltzd.http.services import Health, HttpPolicy, Services
from ltzd.providers.identity_tokens import TokenUser
from ltzd.rules.brands import Brand, EventRule
from ltzd.rules.relay_limits import RELAYS_AN_HOUR, WINDOW, Standing
from ltzd.rules.relaying import Relayed, RelayStatus, RelayWindow
from ltzd.values import Address, Hash32, address_of

BRAND_ID = "0x" + "ab" * 20
WALLET = Address(bytes.fromhex("5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"))
CHECKSUMMED_WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
MINT = Hash32(b"\x22" * 32)
OPERATOR = Address(bytes.fromhex("fb6916095ca1df60bb79ce92ce3ea74c37c5d359"))
TOKEN = "header.payload.signature"
OTHER_TOKEN = "header.other.signature"


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
class RelayBook:
    """Sends whatever a wallet's own user asks, 35 times; says no with whatever `refusal` holds.

    `heard` are the names of what was asked of it, in order.
    """

    users: dict[str, TokenUser] = field(
        default_factory=lambda: {
            TOKEN: TokenUser("user", (WALLET,)),
            OTHER_TOKEN: TokenUser("other", ()),
        }
    )
    heard: list[str] = field(default_factory=list)
    asked: list[RelayRequest] = field(default_factory=list)
    sent: dict[Hash32, tuple[Address, Relayed]] = field(default_factory=dict)
    keys: dict[tuple[Address, str], tuple[bytes, Hash32]] = field(default_factory=dict)
    provider: Exception | None = None
    refusal: Exception | None = None
    status: RelayStatus = RelayStatus.CONFIRMED
    reset_at: float = field(default_factory=lambda: time.time() + 3_600)

    async def user_of(self, token: str) -> TokenUser:
        self.heard.append("user_of")
        if self.provider is not None:
            raise self.provider
        if token not in self.users:
            raise Unauthorized("Invalid or expired token")
        return self.users[token]

    async def standing(self, user: TokenUser, request: RelayRequest) -> Standing:
        self.heard.append("standing")
        if request.ask.user not in (user.wallets or ()):
            raise ValidationFailed("userAddress is not a wallet of the token's user")
        return self._standing(request.ask.user)

    def _standing(self, user: Address) -> Standing:
        used = sum(owner == user for owner, _ in self.sent.values())
        begun = datetime.fromtimestamp(self.reset_at, UTC) - WINDOW
        return Standing(begun, begun, used, 0, None, False, None, ())

    def window(self, user: Address) -> RelayWindow:
        return self._standing(user).window()

    async def submit(self, request: RelayRequest, _standing: Standing) -> RelayAnswer:
        self.heard.append("submit")
        self.asked.append(request)
        if self.refusal is not None:
            raise self.refusal
        user = request.ask.user
        slot = (user, request.idempotency_key or f"none {len(self.sent)}")
        if slot in self.keys:
            return self._replay(*self.keys[slot], request)
        if not self.window(user).remaining:
            raise RateLimited("Too many transactions", limit=RELAYS_AN_HOUR, retryAfterSeconds=60)
        relayed = self._sent(request)
        self.keys[slot] = (request.fingerprint, relayed.transaction_hash)
        return RelayAnswer(relayed, self.window(user))

    def _replay(self, known: bytes, at: Hash32, request: RelayRequest) -> RelayAnswer:
        if known != request.fingerprint:
            raise IdempotencyKeyReused("This idempotency key came with another request before")
        return RelayAnswer(self.sent[at][1], self.window(request.ask.user))

    def _sent(self, request: RelayRequest) -> Relayed:
        number = len(self.sent).to_bytes(2, "big")
        relayed = Relayed(
            Hash32(hashlib.sha256(number).digest()), OPERATOR, request.ask.to, RelayStatus.PENDING
        )
        if self.status is not RelayStatus.PENDING:
            relayed = mined(relayed, self.status)
        self.sent[relayed.transaction_hash] = (request.ask.user, relayed)
        return relayed

    def becomes(self, status: RelayStatus, reason: str | None = None) -> None:
        """Everything that was sent."""
        for at, (user, relayed) in self.sent.items():
            self.sent[at] = (user, replace(mined(relayed, status), reason=reason))

    async def find(self, user: TokenUser, transaction_hash: Hash32) -> RelayAnswer:
        self.heard.append("find")
        if self.refusal is not None:
            raise self.refusal
        owner, relayed = self.sent.get(transaction_hash, (None, None))
        if owner is None or relayed is None or owner not in (user.wallets or ()):
            raise NotFound("Relay not found")
        return RelayAnswer(relayed, self.window(owner))


def mined(relayed: Relayed, status: RelayStatus) -> Relayed:
    return replace(
        relayed, status=status, block_number=7, gas_used=183_402, effective_gas_price=10**9
    )


@dataclass
class Surface:
    """Running surfaces, the client that asks them, and what stands behind."""

    url: str
    client: aiohttp.ClientSession
    book: EventBook
    relays: RelayBook = field(default_factory=RelayBook)
    limits: RateLimits = field(default_factory=RateLimits)
    health: Health = field(default_factory=lambda: Health(True, True, True))

    async def state(self) -> Health:
        return self.health

    def forget_relays(self) -> None:
        """As if nobody had asked before: starting another surface takes longer than a test."""
        vars(self.relays).update(vars(RelayBook()))
        vars(self.limits).update(vars(RateLimits()))


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
        services = replace(
            services_over(book, lambda host: ("." + host).endswith(".shop.example")),
            health=surface.state,
            relays=surface.relays,
            limits=surface.limits,
        )
        async with serving(build_app(services, policy or HttpPolicy(grace_seconds=2.0))) as url:
            surface.url = url
            yield surface


def services_over(
    book: EventBook, is_known_domain: Callable[[str], bool] = lambda _host: False
) -> Services:
    """All well, and limits counted in memory."""

    async def health() -> Health:
        return Health(True, True, True)

    return Services(book, health, is_known_domain, RelayBook(), RateLimits())


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
