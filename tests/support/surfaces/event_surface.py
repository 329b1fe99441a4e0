"""The event surface as `ltzd run --roles http` serves it, on real PostgreSQL and the sandbox.

Only two parts are fakes: the node is a `FakeNode` behind HTTP, and a stand-in for the mint lane of
another process reports hashes at once. Tests share one surface. Each test has brands of its own
(`surface.brand(...)`), and with them its own claims, totals and budgets.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from uuid import UUID, uuid4

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from eth_hash.auto import keccak

from ltzd.actions.event_handler.policy import DEFAULT_POLICY, EventPolicy
from ltzd.daemon.assembly import Daemon, open_daemon
from ltzd.daemon.main import _loops
from ltzd.daemon.settings.accounts import AccountSettings
from ltzd.daemon.settings.settings import Settings
from ltzd.daemon.surfaces import http_app
from ltzd.dev.sandbox import Sandbox
from ltzd.http.event_handler import models
from ltzd.http.event_handler.errors import EventHandlerError
from ltzd.http.services import HttpPolicy
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.conditions.facts import ProcessIdentity, ProcessReport
from ltzd.store import processes
from ltzd.store.brands import configurations as brands
from ltzd.store.brands.keys import NewKeys
from ltzd.store.database import Connection, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.wakeups import REWARDS
from ltzd.values import Hash32, checksummed
from tests.support.chain.fake_node import LTZ_AT, OTHERS_AT, FakeNode
from tests.support.rows.core import running
from tests.support.services.postgres import Databases
from tests.support.surfaces.http_surface import serving
from tests.support.surfaces.json_response import JsonResponse
from tests.support.surfaces.openapi import only_declared_errors

PREFIX = "/service-api"
NO_LIMITS: dict[str, Any] = {"max_claims_per_user": -1, "cooldown_hours": 0}
OWN_ORIGIN = "https://app.ltz.example"

_numbers = itertools.count(1)


def unlimited_rule(kind: str = "form_submit", **changes: Any) -> dict[str, Any]:
    """An event rule without limits. Its reward of 0 is answered at once."""
    return {"type": kind, "reward": 0} | NO_LIMITS | changes


def new_email() -> str:
    """A new e-mail address."""
    return f"{uuid4().hex}@mail.example"


@dataclass(frozen=True)
class EventHandlerResponse(JsonResponse):
    raw: bytes

    @property
    def event_id(self) -> str:
        return str(self.body["eventId"])

    @property
    def error(self) -> str:
        return str(self.body["error"])

    @property
    def details(self) -> dict[str, Any]:
        details: dict[str, Any] = self.body["details"]
        return details

    @property
    def faults(self) -> list[str]:
        """The list in `details.errors`."""
        faults: list[str] = self.details["errors"]
        return faults


@dataclass
class EventSurface:
    url: str
    http: aiohttp.ClientSession
    daemon: Daemon
    sandbox: Sandbox
    node: FakeNode
    sealer: Sealer
    is_publishing: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(
        self,
        method: str,
        path: str,
        payload: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> EventHandlerResponse:
        """Send `payload` as JSON; bytes and iterators of chunks are sent unchanged."""
        sent = dict(headers or {})
        raw: Any = payload
        if (
            payload is not None
            and not isinstance(payload, bytes)
            and not hasattr(payload, "__aiter__")
        ):
            raw = json.dumps(payload).encode()
        if payload is not None and "Content-Type" not in sent:
            sent["Content-Type"] = "application/json"
        skipped = () if sent.get("Content-Type") else ("Content-Type",)
        sent = {name: value for name, value in sent.items() if value}
        async with self.http.request(
            method,
            self.url + path,
            data=raw,
            headers=sent,
            skip_auto_headers=skipped,
            allow_redirects=False,
        ) as answer:
            got = await answer.read()
            is_json = answer.content_type == "application/json"
            body = json.loads(got) if got and is_json else None
            return EventHandlerResponse(answer.status, body, answer.headers, got)

    async def post(self, body: object, **headers: str) -> EventHandlerResponse:
        """Send an event. The response must fit the models, whatever its status."""
        answer = await self.ask("POST", f"{PREFIX}/manual-event", body, headers)
        assert_well_formed(answer)
        return answer

    async def get(self, path: str, **headers: str) -> EventHandlerResponse:
        return await self.ask("GET", PREFIX + path, headers=headers)

    async def apply(self, brand: Brand) -> NewKeys | None:
        """Put the configuration in force at once. A new brand gets keys."""
        async with transaction(self.daemon.pools.http) as connection:
            applied = await brands.apply(connection, brand, self.sealer)
        await self.refresh()
        return applied.keys

    async def refresh(self) -> None:
        """Make this process read the brands that are committed."""
        async with session(self.daemon.pools.http) as connection:
            await self.daemon.brands.refresh(connection)

    async def brand(self, *events: dict[str, Any], **changes: Any) -> "LiveBrand":
        """A new brand with a domain of its own. `events` are the events of its file."""
        number = next(_numbers)
        configuration: dict[str, Any] = {
            "id": f"0x{number:040x}",
            "name": f"Brand {number}",
            "domains": (f"shop{number}.example",),
            "events": events,
        }
        brand = Brand.model_validate(configuration | changes)
        keys = await self.apply(brand)
        assert keys is not None
        return LiveBrand(self, brand, keys)

    async def count(self, what: Literal["events", "rewards", "users", "claims"]) -> int:
        return cast("int", await self.value(f"SELECT count(*) FROM {what}"))

    async def value(self, query: str, *arguments: object) -> Any:
        async with session(self.daemon.pools.http) as connection:
            return await connection.fetchval(query, *arguments)


@dataclass
class LiveBrand:
    """A brand in force, and the requests of its server."""

    surface: EventSurface
    brand: Brand
    keys: NewKeys

    @property
    def id(self) -> str:
        return self.brand.id

    @property
    def domain(self) -> str:
        return self.brand.domains[0]

    def body(self, email: str | None = None, **changes: Any) -> dict[str, Any]:
        """A valid event of its first configured type. A field of `...` is left out."""
        fields = {
            "brandId": self.id,
            "eventType": self.brand.events[0].type if self.brand.events else "form_submit",
            "userEmail": email or new_email(),
            "domain": self.domain,
        } | changes
        return {name: value for name, value in fields.items() if value is not ...}

    async def post(
        self, email: str | None = None, headers: Mapping[str, str] | None = None, **changes: Any
    ) -> EventHandlerResponse:
        return await self.surface.post(self.body(email, **changes), **(headers or {}))

    async def change(self, *events: dict[str, Any], **changes: Any) -> None:
        """Apply another file of this brand."""
        configuration = self.brand.model_dump() | changes
        if events:
            configuration["events"] = events
        self.brand = Brand.model_validate(configuration)
        await self.surface.apply(self.brand)

    async def let_time_pass(self, seconds: float) -> None:
        """Move the claims of this brand's users into the past by this time."""
        async with transaction(self.surface.daemon.pools.http) as connection:
            await connection.execute(
                """
                UPDATE event_claims SET last_event_at = last_event_at - make_interval(secs => $2)
                 WHERE brand_id = $1
                """,
                self.brand.address,
                seconds,
            )
            await connection.execute(
                """
                UPDATE brand_usage SET window_start = window_start - make_interval(secs => $2)
                 WHERE brand_id = $1
                """,
                self.brand.address,
                seconds,
            )

    async def events(self) -> int:
        """The number of recorded events."""
        count: int = await self.surface.value(
            "SELECT count(*) FROM events WHERE brand_id = $1", self.brand.address
        )
        return count


def assert_well_formed(answer: EventHandlerResponse) -> None:
    """Checks the shape of every response to an event, success or error."""
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Vary"] == "Origin"
    assert answer.headers["X-Request-Id"]
    if answer.status in {200, 202}:
        models.ManualEventResponse.model_validate(answer.body)
        assert (answer.status == 202) is (answer.body["status"] == "queued")
    else:
        EventHandlerError.model_validate(answer.body)
        assert set(answer.body) <= {"success", "error", "details"}
        assert answer.error
        assert "@mail.example" not in answer.raw.decode()


@asynccontextmanager
async def a_served_node(node: FakeNode) -> AsyncIterator[str]:
    """The node's URL. While `is_down` the node answers 503."""

    async def answer(request: web.Request) -> web.Response:
        message = await request.json()
        if node.is_down:
            return web.Response(status=503)
        calls = message if isinstance(message, list) else [message]
        replies = [
            {
                "jsonrpc": "2.0",
                "id": call["id"],
                "result": await node.call(call["method"], *call["params"]),
            }
            for call in calls
        ]
        return web.json_response(replies if isinstance(message, list) else replies[0])

    application = web.Application()
    application.router.add_post("/", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def an_event_surface(
    database_url: str,
    folder: Path,
    event_policy: EventPolicy = DEFAULT_POLICY,
    **settings: Any,
) -> AsyncIterator[EventSurface]:
    """`settings` are further sections of the settings file."""
    async with AsyncExitStack() as stack:
        sandbox = Sandbox(folder, 0, "http://127.0.0.1:1", None)
        await sandbox.start()
        stack.push_async_callback(sandbox.stop)
        node = FakeNode()
        node.mine()
        node_url = await stack.enter_async_context(a_served_node(node))
        sealer = Sealer.from_file(folder / "master.key", create=True)
        merged = _settings(database_url, folder, sandbox, node_url) | settings
        daemon = await stack.enter_async_context(
            open_daemon(Settings.model_validate(merged), event_policy=event_policy)
        )
        http = await stack.enter_async_context(aiohttp.ClientSession())
        app = http_app(daemon, is_dev=False)
        stack.enter_context(only_declared_errors(app, HttpPolicy()))
        url = await stack.enter_async_context(serving(app))
        surface = EventSurface(url, http, daemon, sandbox, node, sealer)
        surface.is_publishing.set()
        _one_refresh_at_a_time(daemon)
        await stack.enter_async_context(
            running(*(loop() for _, loop in _loops(daemon)), _publish(surface))
        )
        await _report_another_process(daemon)
        yield surface


async def _report_another_process(daemon: Daemon) -> None:
    """A process with the other roles, which has indexed every block, lives as long as the tests.

    Without it the surface would be degraded from its twentieth second on.
    """
    roles = ("operator", "indexer", "deliveries")
    other = ProcessIdentity(uuid4(), "other.example", 1, roles, daemon.process.version)
    async with transaction(daemon.pools.http) as connection:
        await processes.report(connection, other, ProcessReport())
        await connection.execute(
            "UPDATE processes SET seen_at = now() + interval '1 day' WHERE id = $1", other.id
        )


def _one_refresh_at_a_time(daemon: Daemon) -> None:
    """Tests refresh beside the daemon's own loop: the later refresh must win."""
    gate, refresh = asyncio.Lock(), daemon.brands.refresh

    async def refresh_alone(connection: Connection) -> bool:
        async with gate:
            return await refresh(connection)

    daemon.brands.refresh = refresh_alone  # type: ignore[method-assign]


def _settings(database_url: str, folder: Path, sandbox: Sandbox, node_url: str) -> dict[str, Any]:
    identity, payments = sandbox.identity_policy(), sandbox.payments_policy()
    names = sandbox.dns_policy()
    return {
        "database_url": database_url,
        "master_key_file": folder / "master.key",
        "roles": ["http"],
        "node": {"rpc_url": node_url},
        "contracts": {
            "ltz": checksummed(LTZ_AT),
            "perk_nft": checksummed(OTHERS_AT[0]),
            "points_sale": checksummed(OTHERS_AT[1]),
            "business_escrow": checksummed(OTHERS_AT[2]),
            "first_block": 2,  # The node has block 1: nothing is to be indexed.
        },
        "identity": {
            "base_url": identity.base_url,
            "app_id": identity.app_id,
            "app_secret": identity.app_secret,
            "signer_id": identity.signer_id,
            "signer_key": identity.signer_key,
        },
        "payments": {
            "base_url": payments.base_url,
            "secret_key": payments.secret_key,
            "signing_secret": payments.signing_secret,
        },
        "accounts": AccountSettings.of(sandbox.accounts_policy()),
        "dns": {"nameservers": list(names.nameservers), "port": names.port},
        "http": {"port": 0, "own_origins": [OWN_ORIGIN]},
    }


def mint_hash(event_id: str) -> str:
    """The hash under which the stand-in publishes an event's reward."""
    return "0x" + _hash(UUID(event_id)).hex()


def _hash(reward: UUID) -> Hash32:
    return Hash32(keccak(reward.bytes))


async def _publish(surface: EventSurface) -> None:
    """Stands in for the mint lane: reports a hash to every waiter, while that is switched on."""
    subscribe = surface.daemon.wakeups.subscribe(REWARDS)
    hashes = surface.daemon.hashes
    while True:
        await surface.is_publishing.wait()
        await subscribe.wait(0.01)
        for reward in hashes.awaited():
            hashes.deliver([reward], _hash(reward))


@pytest_asyncio.fixture(scope="session")
async def event_surface(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EventSurface]:
    """Shared by all tests that do not change its parts."""
    folder = tmp_path_factory.mktemp("surface")
    async with databases.fresh() as url, an_event_surface(url, folder) as surface:
        yield surface


@pytest_asyncio.fixture
async def own_event_surface(database_url: str, tmp_path: Path) -> AsyncIterator[EventSurface]:
    """A surface of its own, for a test that breaks a part."""
    async with an_event_surface(database_url, tmp_path) as surface:
        yield surface
