"""Events under concurrency, on real PostgreSQL and the sandbox's identity provider."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NoReturn
from uuid import uuid4

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.actions.event_handler.record import EventRequest
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import (
    AutomationDisabled,
    BrandUnknown,
    ChannelNotAllowed,
    CooldownActive,
    DatabaseUnavailable,
    DomainUnauthorized,
    DuplicateEvent,
    EventNotConfigured,
    IdentityUnavailable,
    LtzdError,
    MaxClaimsReached,
    NotFound,
    RewardTooLarge,
)
from ltzd.rules.brands.configuration import EventRule
from ltzd.store.database import Connection, Pool
from ltzd.store.event_handler import events as store_events
from ltzd.store.event_handler.events import ClaimKey, EventRow, NewEvent
from ltzd.values import LTZ, Address
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.rows.core import a_wallet, value
from tests.support.surfaces.event_action import (
    NO_HASH_WAIT,
    NO_LIMITS,
    a_brand,
    a_handler,
    a_request,
    counts,
    kinds,
    record_all,
    recorded,
    two_handlers,
)


async def test_an_event_is_recorded_with_its_reward_and_its_user(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    async with a_handler(database_url, sandbox) as handler:
        event = await handler.record(a_request())
        status = await handler.find(event.event_id)

        assert (event.ltz, event.wallet_created, event.status) == (100, True, "queued")
        assert (status.status, status.ltz, status.wallet) == ("queued", 100, event.wallet)
        with pytest.raises(NotFound):
            await handler.find(uuid4())
    assert await counts(pool) == (1, 1, 1)


async def test_of_fifty_identical_requests_one_is_recorded(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    async with a_handler(database_url, sandbox) as handler:
        outcomes = await record_all([handler], [a_request()] * 50)

    assert kinds(outcomes) == {"RecordedEvent": 1, "DuplicateEvent": 49}
    (event,) = recorded(outcomes)
    duplicates = [outcome for outcome in outcomes if isinstance(outcome, DuplicateEvent)]
    assert {outcome.details["existingEventId"] for outcome in duplicates} == {str(event.event_id)}
    assert await counts(pool) == (1, 1, 1)


async def test_of_fifty_identical_requests_to_two_processes_one_is_recorded(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    brand = a_brand(EventRule(type="account_creation", **NO_LIMITS))
    async with two_handlers(database_url, sandbox, brand) as handlers:
        outcomes = await record_all(handlers, [a_request()] * 50)

    assert kinds(outcomes) == {"RecordedEvent": 1, "DuplicateEvent": 49}
    assert await counts(pool) == (1, 1, 1)


async def test_an_email_address_in_another_letter_case_is_the_same_user(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    spellings = ["ann@shop.example", "ANN@SHOP.EXAMPLE", "Ann@Shop.Example", "aNN@shop.example"]
    async with two_handlers(database_url, sandbox) as handlers:
        outcomes = await record_all(handlers, [a_request(email) for email in spellings * 5])

    assert kinds(outcomes) == {"RecordedEvent": 1, "DuplicateEvent": 19}
    assert await counts(pool) == (1, 1, 1)


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_global_maximum_holds_exactly(
    database_url: str, pool: Pool, sandbox: Sandbox, processes: int
) -> None:
    brand = a_brand(EventRule(type="account_creation", max_total_claims=77))
    async with two_handlers(database_url, sandbox, brand) as handlers:
        outcomes = await record_all(
            handlers[:processes], [a_request(f"u{number}@shop.example") for number in range(300)]
        )

    assert kinds(outcomes) == {"RecordedEvent": 77, "MaxClaimsReached": 223}
    refused = [outcome for outcome in outcomes if isinstance(outcome, MaxClaimsReached)]
    assert {outcome.details["maxClaims"] for outcome in refused} == {77}
    assert await counts(pool) == (77, 77, 77)
    assert await value(pool, "SELECT claims FROM event_claim_totals") == 77


async def test_a_users_maximum_holds_exactly_over_two_processes(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    rule = EventRule(type="account_creation", max_claims_per_user=3, cooldown_hours=0)
    brand = a_brand(rule, duplicate_window_seconds=0)
    async with two_handlers(database_url, sandbox, brand) as handlers:
        outcomes = await record_all(handlers, [a_request()] * 20)

    assert kinds(outcomes) == {"RecordedEvent": 3, "MaxClaimsReached": 17}
    assert await counts(pool) == (3, 3, 1)


async def test_a_cooldown_holds_over_two_processes(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    rule = EventRule(type="account_creation", max_claims_per_user=-1, cooldown_hours=1)
    brand = a_brand(rule, duplicate_window_seconds=0)
    async with two_handlers(database_url, sandbox, brand) as handlers:
        outcomes = await record_all(handlers, [a_request()] * 20)
        assert kinds(outcomes) == {"RecordedEvent": 1, "CooldownActive": 19}

        with pytest.raises(CooldownActive) as raised:
            await handlers[1].record(a_request())
        seconds = raised.value.details["cooldownSeconds"]
        assert isinstance(seconds, int)
        assert 3_500 < seconds <= 3_600

        for escape in ({"skip_cooldown": True}, {"source": "gateway_event"}):
            await handlers[0].record(a_request(metadata=escape))
    assert await counts(pool) == (3, 3, 1)


async def test_simultaneous_first_events_of_a_user_announce_one_new_wallet(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    """Each event has a type of its own, so no limit refuses any of them."""
    types = [f"type_{number}" for number in range(40)]
    brand = a_brand(*(EventRule(type=kind, reward=1) for kind in types))
    async with two_handlers(database_url, sandbox, brand) as handlers:
        outcomes = await record_all(handlers, [a_request(event_type=kind) for kind in types])
        events = recorded(outcomes)
        statuses = [await handlers[0].find(event.event_id) for event in events]

    assert kinds(outcomes) == {"RecordedEvent": 40}
    assert sum(event.wallet_created for event in events) == 1
    assert len({event.wallet for event in events}) == 1
    assert {event.wallet for event in statuses} == {events[0].wallet}
    assert await counts(pool) == (40, 40, 1)


async def test_overlapping_first_events_of_a_user_all_find_the_same_user(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    """Some of the events look the user up before his row is inserted, and are written after."""
    types = [f"type_{number}" for number in range(60)]
    brand = a_brand(*(EventRule(type=kind, reward=1) for kind in types))
    policy = replace(NO_HASH_WAIT, max_batch=3)
    async with a_handler(database_url, sandbox, brand, policy=policy) as handler:
        outcomes = await record_all(
            [handler],
            [a_request(f"u{n % 4}@shop.example", event_type=kind) for n, kind in enumerate(types)],
        )
        for event in recorded(outcomes):
            assert (await handler.find(event.event_id)).wallet == event.wallet
    assert sum(event.wallet_created for event in recorded(outcomes)) == 4
    assert await counts(pool) == (60, 60, 4)


async def test_a_known_user_of_another_process_is_not_new(
    database_url: str, sandbox: Sandbox
) -> None:
    async with two_handlers(database_url, sandbox) as (handler, other):
        first = await handler.record(a_request())
        second = await other.record(a_request(event_type="form_submit"))

    assert (first.wallet_created, second.wallet_created) == (True, False)
    assert first.wallet == second.wallet


async def test_without_the_identity_provider_nothing_is_recorded(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    async with a_handler(database_url, sandbox) as handler:
        known = await handler.record(a_request("known@shop.example"))
        sandbox.faults.order("identity", Fault(times=1_000, status=503))

        with pytest.raises(IdentityUnavailable):
            await handler.record(a_request())
        assert await counts(pool) == (1, 1, 1)

        again = await handler.record(a_request("known@shop.example", event_type="form_submit"))
        assert again.wallet == known.wallet, "a known user needs no provider"

        sandbox.faults.order("identity", Fault(times=0))
        assert (await handler.record(a_request())).wallet_created
    assert await counts(pool) == (3, 3, 2)


async def test_an_event_over_its_maximum_creates_no_wallet(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    brand = a_brand(EventRule(type="account_creation", max_total_claims=0))
    sandbox.faults.order("identity", Fault(times=1_000, status=503))
    async with a_handler(database_url, sandbox, brand) as handler:
        with pytest.raises(MaxClaimsReached):
            await handler.record(a_request())
    assert sandbox.faults.left("identity") == 1_000, "the provider was not asked"
    assert await counts(pool) == (0, 0, 0)


class Chain:
    """The mint limit of the one wallet that mints."""

    def __init__(self, pool: Pool, capacity: int) -> None:
        self.node = FakeNode()
        self.node.mine()
        self.node.mint_capacity = capacity * LTZ
        self.at = 0.0
        self.capacity = MintCapacity(pool, self.node.node, CHAIN_ID, LTZ_AT, lambda: self.at)


@pytest_asyncio.fixture
async def chain(pool: Pool) -> Chain:
    await value(
        pool,
        "INSERT INTO lanes (chain_id, wallet, kind, next_nonce) VALUES ($1, $2, 'mint', 0)",
        CHAIN_ID,
        a_wallet(99),
    )
    return Chain(pool, 1_000)


PAYS_BY_THE_DOLLAR = (
    EventRule(type="purchase", reward_per_dollar=Decimal(2), **NO_LIMITS),
    EventRule(type="survey", reward=1_001, **NO_LIMITS),
    EventRule(type="account_creation", reward=1_000, **NO_LIMITS),
)


def a_purchase(dollars: str, email: str = "ann@shop.example") -> EventRequest:
    return a_request(email, event_type="purchase", metadata={"amount": dollars})


async def test_a_reward_above_the_mint_limits_maximum_is_refused_and_not_recorded(
    database_url: str, pool: Pool, sandbox: Sandbox, chain: Chain
) -> None:
    brand = a_brand(*PAYS_BY_THE_DOLLAR)
    requests = [
        a_purchase("500.50"),
        a_request(event_type="survey"),
        a_purchase("500"),
        a_request(),
    ]
    async with a_handler(database_url, sandbox, brand, chain.capacity) as handler:
        large, survey, *others = await handler.record_all(requests)

        assert isinstance(large, RewardTooLarge)
        assert large.details["errors"] == [
            "metadata.amount: purchase would earn 1001 LTZ, above the 1000 that can be minted"
        ]
        assert isinstance(survey, RewardTooLarge)
        assert survey.details["errors"] == [
            "eventType: survey would earn 1001 LTZ, above the 1000 that can be minted"
        ]
        assert [event.ltz for event in others if isinstance(event, RecordedEvent)] == [1_000, 1_000]
        with pytest.raises(RewardTooLarge):
            await handler.record(a_purchase("1000000", "bob@shop.example"))
    assert await counts(pool) == (2, 2, 1), "no wallet is created for a refused event"


async def test_a_refusal_is_never_based_on_a_mint_limit_that_has_been_raised(
    database_url: str, sandbox: Sandbox, chain: Chain
) -> None:
    brand = a_brand(*PAYS_BY_THE_DOLLAR)
    async with a_handler(database_url, sandbox, brand, chain.capacity) as handler:
        with pytest.raises(RewardTooLarge):
            await handler.record(a_purchase("600"))
        chain.node.mint_capacity = 1_200 * LTZ
        calls_before = chain.node.call_counts["eth_call"]
        with pytest.raises(RewardTooLarge):
            await handler.record(a_purchase("600"))
        assert chain.node.call_counts["eth_call"] == calls_before, (
            "the mint limit is read at most once a second"
        )
        chain.at += 1.0

        assert (await handler.record(a_purchase("600"))).ltz == 1_200


@pytest.mark.parametrize("known", [True, False])
async def test_while_the_node_is_unavailable_the_last_known_mint_limit_applies(
    database_url: str, sandbox: Sandbox, chain: Chain, known: bool
) -> None:
    brand = a_brand(*PAYS_BY_THE_DOLLAR)
    async with a_handler(database_url, sandbox, brand, chain.capacity) as handler:
        if known:
            await handler.record(a_purchase("1"))
        chain.node.is_down = True
        chain.at += 1_000.0
        if known:
            with pytest.raises(RewardTooLarge):
                await handler.record(a_purchase("600", "bob@shop.example"))
        else:
            assert (await handler.record(a_purchase("600", "bob@shop.example"))).ltz == 1_200


async def test_while_minting_is_disabled_events_are_accepted_and_queued(
    database_url: str, sandbox: Sandbox, chain: Chain
) -> None:
    chain.node.mint_capacity = 0
    async with a_handler(
        database_url, sandbox, a_brand(*PAYS_BY_THE_DOLLAR), chain.capacity
    ) as first:
        assert (await first.record(a_purchase("1000000"))).status == "queued"


async def test_an_event_without_a_reward_is_final_and_queues_no_mint(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    brand = a_brand(EventRule(type="account_creation", reward=0))
    async with a_handler(database_url, sandbox, brand) as handler:
        event = await handler.record(a_request())
        status = await handler.find(event.event_id)

    assert (event.ltz, event.status, event.transaction_hash) == (0, "final", None)
    assert status.status == "final"
    assert await counts(pool) == (1, 0, 1)


POISONS: list[dict[str, Any]] = [
    {"text": "nul \x00 inside"},
    {"nul\x00key": 1},
    {"deep": [{"er": {"\x00": "\x00"}}]},
    {"half": "\ud800"},
    {"half\udfff": 1},
    {"source": "\x00"},
]


async def test_an_event_that_cannot_be_written_fails_alone_in_its_batch(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    """The HTTP layer refuses all of these before they reach the action."""
    async with a_handler(database_url, sandbox) as handler:
        requests = [a_request(f"u{number}@shop.example") for number in range(30)]
        for number, poison in enumerate(POISONS):
            requests.insert(5 * number, a_request(f"p{number}@shop.example", metadata=poison))
        answers = await asyncio.gather(*map(handler.record, requests), return_exceptions=True)

    assert sum(isinstance(answer, RecordedEvent) for answer in answers) == 30
    assert await counts(pool) == (30, 30, 30)


async def test_metadata_is_stored_unchanged(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    metadata = {"ünïcode": "\u2028 \U0001f600", "n": [1, -2.5, 10**18, None, True], "": {"a": {}}}
    async with a_handler(database_url, sandbox) as handler:
        await handler.record(a_request(metadata=metadata))
    assert await value(pool, "SELECT metadata FROM events") == metadata


REFUSED_FIRST: list[tuple[EventRequest, type[LtzdError]]] = [
    (a_request(brand_id=Address(b"\x01" * 20)), BrandUnknown),
    (a_request(domain=None), DomainUnauthorized),
    (a_request(domain="evil.example"), DomainUnauthorized),
    (a_request(domain="notshop.example"), DomainUnauthorized),
    (a_request(event_type="purchase"), EventNotConfigured),
    (a_request(event_type="Account_Creation"), EventNotConfigured),
    (a_request(event_type="form_submit", metadata={"channel_id": ""}), ChannelNotAllowed),
]


async def test_invalid_events_are_refused_before_any_request_to_the_provider_or_the_database(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    sandbox.faults.order("identity", Fault(times=1_000, status=503))
    brand = a_brand(EventRule(type="form_submit", channels=("c1",)))
    async with a_handler(database_url, sandbox, brand) as handler:
        for request, refusal in REFUSED_FIRST:
            with pytest.raises(refusal):
                await handler.record(request)
    assert sandbox.faults.left("identity") == 1_000
    assert await counts(pool) == (0, 0, 0)


async def test_an_unconfigured_event_type_is_reported_for_its_field(
    database_url: str, sandbox: Sandbox
) -> None:
    async with a_handler(database_url, sandbox) as handler:
        with pytest.raises(EventNotConfigured) as refusal:
            await handler.record(a_request(event_type="custom_none"))
    assert refusal.value.details == {
        "errors": ["eventType: custom_none is not configured for this brand"]
    }


async def test_a_brand_without_automation_records_nothing(
    database_url: str, sandbox: Sandbox
) -> None:
    async with a_handler(database_url, sandbox, a_brand(automation=False)) as handler:
        with pytest.raises(AutomationDisabled):
            await handler.record(a_request())


@pytest.mark.parametrize("had_happened", [True, False], ids=["committed", "not committed"])
async def test_an_event_whose_commit_outcome_is_unknown_is_recorded_once(
    database_url: str,
    sandbox: Sandbox,
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
    had_happened: bool,
) -> None:
    insert, attempts = store_events.insert, [0]

    async def lossy(
        connection: Connection, accepted: Sequence[NewEvent]
    ) -> dict[ClaimKey, EventRow]:
        attempts[0] += 1
        if attempts[0] > 1:
            return await insert(connection, accepted)
        if had_happened:
            await insert(connection, accepted)
        raise DatabaseUnavailable("The database was lost: ConnectionDoesNotExistError")

    monkeypatch.setattr(store_events, "insert", lossy)
    async with a_handler(database_url, sandbox) as handler:
        answer = await handler.record(a_request())

    assert await counts(pool) == (1, 1, 1)
    assert answer.wallet_created
    assert await value(pool, "SELECT id FROM events") == answer.event_id
    assert await value(pool, "SELECT claims FROM event_claims") == 1


@pytest.mark.parametrize("window", [0, 60])
async def test_an_event_with_an_unknown_outcome_is_found_behind_a_later_one_of_its_claim(
    database_url: str,
    sandbox: Sandbox,
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
    window: int,
) -> None:
    """Another process writes the later one while the first process waits for the database.

    With a window the later one would be refused, so it is moved behind it.
    """
    insert, attempts = store_events.insert, [0]
    rule = EventRule(type="form_submit", reward=10, cooldown_hours=0, max_claims_per_user=-1)
    brand = a_brand(rule, duplicate_window_seconds=window)

    async def lossy(
        connection: Connection, accepted: Sequence[NewEvent]
    ) -> dict[ClaimKey, EventRow]:
        attempts[0] += 1
        inserted = await insert(connection, accepted)
        if attempts[0] > 1:
            return inserted
        await value(pool, "UPDATE event_claims SET last_event_at = now() - interval '1 day'")
        await other.record(a_request(event_type="form_submit"))
        raise DatabaseUnavailable("The database was lost: ConnectionDoesNotExistError")

    monkeypatch.setattr(store_events, "insert", lossy)
    async with (
        a_handler(database_url, sandbox, brand) as handler,
        a_handler(database_url, sandbox, brand) as other,
    ):
        answer = await handler.record(a_request(event_type="form_submit"))

    assert await value(pool, "SELECT count(*) FROM rewards") == 2
    assert await value(pool, "SELECT ltz FROM rewards WHERE id = $1", answer.event_id) == 10


async def test_an_unavailable_database_fails_the_request_after_a_bounded_wait(
    database_url: str, sandbox: Sandbox, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> NoReturn:
        raise DatabaseUnavailable("The database was lost: ConnectionRefusedError")

    policy = replace(NO_HASH_WAIT, unknown_outcome=0.1, unknown_outcome_pause=0.02)
    async with a_handler(database_url, sandbox, policy=policy) as handler:
        await handler.record(a_request())
        monkeypatch.setattr(store_events, "insert", gone)
        waiting = asyncio.create_task(
            handler.record(a_request(event_type="form_submit", email="ann@shop.example"))
        )
        monkeypatch.setattr(store_events, "read_snapshot", gone)
        with pytest.raises(DatabaseUnavailable):
            await waiting
    assert await value(pool, "SELECT count(*) FROM events") == 1
