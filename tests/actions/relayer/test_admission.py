"""Admission of relays: limits, budgets and idempotency keys, checked under the user's lock."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from ltzd.actions.relayer.admission import RelayAdmission
from ltzd.concurrency.request_ids import begin_request
from ltzd.errors import (
    ClaimLimitReached,
    DatabaseUnavailable,
    IdempotencyKeyReused,
    RateLimited,
    ValidationFailed,
)
from ltzd.rules.operator.transactions import GasCost, Inclusion, State, Transaction
from ltzd.rules.relayer.admission import Admission, Admitted, Conflict, NewRelay
from ltzd.rules.relayer.calls import RequestedClaim
from ltzd.rules.relayer.gas_budgets import NO_BUDGETS, GasBudgets
from ltzd.rules.relayer.limits import ClaimLimit
from ltzd.store.database import Pool, session, transaction
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.relayer.direct_lanes import DirectLanes
from ltzd.store.wakeups import RELAYS, WakeupHub
from ltzd.values import Address
from tests.support.relays.lanes import USER, a_plan, a_relay_lane, row_states, send
from tests.support.rows.core import a_hash, a_wallet, running, save, value
from tests.support.rows.notifications import announced
from tests.support.waiting import until

MAX_COST_WEI = 10


def a_draft(data: bytes = b"\x01", user: Address = USER, **changes: Any) -> NewRelay:
    return replace(
        NewRelay(
            plan=a_plan(data, user),
            gas_limit=100_000,
            max_cost_wei=MAX_COST_WEI,
            claim_limit=None,
            last_serialized_id=None,
            idempotency_key=None,
            fingerprint=data,
        ),
        **changes,
    )


def a_claim(on_chain: int = 0, most: int | None = 1, **changes: Any) -> NewRelay:
    claim = RequestedClaim(7, on_chain)
    limit = ClaimLimit(claim, on_chain, most)
    plan = a_plan(b"claim", claim=(7, on_chain))
    return a_draft(plan=plan, claim_limit=limit, **changes)


@asynccontextmanager
async def admitting(
    pool: Pool, wakeups: WakeupHub | None = None, budgets: GasBudgets = NO_BUDGETS
) -> AsyncIterator[RelayAdmission]:
    admission = RelayAdmission(pool, wakeups or WakeupHub(""), budgets)
    async with running(admission.run()):
        yield admission


async def all_at_once(
    admission: RelayAdmission, drafts: Sequence[NewRelay]
) -> list[Admission | BaseException]:
    tasks = [admission.admit(draft) for draft in drafts]
    return await asyncio.gather(*tasks, return_exceptions=True)


async def mine(pool: Pool, first_nonce: int = 0) -> None:
    """Sends the queued relays as a lane does, and mines them."""
    lane = await a_relay_lane(pool)
    inclusion = Inclusion(5, a_hash("block"), True, GasCost(a_hash("mined"), 1, 1))
    for row in await send(pool, lane, first_nonce):
        async with transaction(pool) as connection:
            await save(connection, lane, row.id, State.SIGNED, Transaction(State.MINED, inclusion))
            await relays.follow(connection, [row.id])


async def last_serialized_id(pool: Pool) -> int | None:
    async with session(pool) as connection:
        (usage,) = await relays.read_usage(connection, [(USER, None)])
    return usage.last_serialized_id


async def test_relays_of_many_users_share_commits_and_wake_a_lane(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = []
    insert = relays.insert

    async def counted(connection: Any, drafts: Sequence[Any]) -> list[int | None]:
        commits.append(len(drafts))
        return await insert(connection, drafts)

    monkeypatch.setattr(relays, "insert", counted)
    wakeups = WakeupHub("")
    wakeup = wakeups.subscribe(RELAYS)
    async with admitting(pool, wakeups) as admission:
        drafts = [a_draft(bytes([number]), a_wallet(number)) for number in range(1, 41)]
        answers = await all_at_once(admission, drafts)
    async with asyncio.timeout(20):
        await wakeup.wait(30)
    assert sum(commits) == 40
    assert len(commits) <= 3, "one commit holds many relays"
    async with session(pool) as connection:
        rows = await connection.fetch("SELECT id, user_address, data FROM relays ORDER BY id")
    by_id = {row["id"]: (row["user_address"], row["data"]) for row in rows}
    for draft, answer in zip(drafts, answers, strict=True):
        assert isinstance(answer, Admitted)
        assert answer.is_new
        assert (answer.window.limit, answer.window.remaining) == (35, 34)
        assert by_id[answer.id] == (draft.plan.user, draft.plan.data)


class CommittedHub(WakeupHub):
    """Counts the connections that its pool had lent at each announcement."""

    def __init__(self, url: str, pool: Pool) -> None:
        super().__init__(url)
        self._pool = pool
        self.lent: list[int] = []

    def announce(self, channel: str) -> None:
        self.lent.append(self._pool.in_use)
        super().announce(channel)


class OneSlotLane:
    """Stores the first of the relays, as a lane that has room for no more."""

    wallet = a_wallet(99)
    direct_slots = 1

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def admit(self, new: Sequence[NewRelay]) -> list[int | None]:
        async with session(self._pool) as connection:
            return await relays.insert(connection, new[:1])


async def test_a_signed_relay_is_admitted_though_the_database_is_lost_for_the_others_of_its_batch(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of 503 says that nothing was sent, and its caller sends the call again."""
    insert, calls = relays.insert, 0

    async def lost_after_the_first(connection: Any, new: Sequence[Any]) -> list[int | None]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ConnectionResetError
        return await insert(connection, new)

    monkeypatch.setattr(relays, "insert", lost_after_the_first)
    lanes = DirectLanes()
    lanes.add(OneSlotLane(pool))
    admission = RelayAdmission(pool, WakeupHub(""), NO_BUDGETS, lanes)
    drafts = [a_draft(bytes([number]), a_wallet(number)) for number in range(1, 4)]
    waiting = asyncio.ensure_future(all_at_once(admission, drafts))

    async def are_one_batch() -> bool:
        return admission._writer._waiting_count == len(drafts)

    await until(are_one_batch)
    async with running(admission.run()):
        signed, *others = await waiting
    assert isinstance(signed, Admitted)
    assert [type(other) for other in others] == [DatabaseUnavailable] * 2
    assert await value(pool, "SELECT array_agg(id) FROM relays") == [signed.id]


BUDGETS = pytest.mark.parametrize(
    "budgets", [NO_BUDGETS, GasBudgets(total_wei=100 * MAX_COST_WEI)], ids=["none", "set"]
)


@BUDGETS
async def test_other_processes_learn_of_a_relay_after_its_commit(
    pool: Pool, database_url: str, budgets: GasBudgets
) -> None:
    hub = CommittedHub(database_url, pool)
    async with announced(database_url, hub, RELAYS), admitting(pool, hub, budgets) as admission:
        await admission.admit(a_draft())
    assert hub.lent == [0], "announced once, when no transaction was open"


async def test_of_forty_concurrent_relays_of_one_user_thirty_five_are_admitted_in_an_hour(
    pool: Pool,
) -> None:
    async with admitting(pool) as first, admitting(pool) as other:
        drafts = [a_draft(bytes([number])) for number in range(20)]
        answers = await all_at_once(first, drafts)
        answers += await asyncio.gather(
            *[
                admission.admit(a_draft(bytes([n, side])))
                for n in range(20, 30)
                for side, admission in enumerate((first, other))
            ],
            return_exceptions=True,
        )
    written = [answer for answer in answers if isinstance(answer, Admitted)]
    refused = [answer for answer in answers if isinstance(answer, RateLimited)]
    assert (len(written), len(refused)) == (35, 5)
    assert sorted(answer.window.remaining for answer in written) == list(range(35))
    assert len({answer.window.reset_at for answer in written}) == 1
    for refusal in refused:
        assert 3590 < int(str(refusal.details["retryAfterSeconds"])) <= 3600


async def test_relays_of_one_user_are_written_in_the_order_they_came(pool: Pool) -> None:
    async with admitting(pool) as admission:
        answers = await all_at_once(admission, [a_draft(bytes([number])) for number in range(12)])
    ids = [answer.id for answer in answers if isinstance(answer, Admitted)]
    assert ids == sorted(ids)
    assert len(ids) == 12


async def test_of_concurrent_serialized_relays_the_first_is_written_and_the_others_conflict(
    pool: Pool,
) -> None:
    async with admitting(pool) as admission:
        first, *others = await all_at_once(admission, [a_claim(most=9) for _ in range(4)])
    assert isinstance(first, Admitted)
    for other in others:
        assert other == Conflict()
    assert await last_serialized_id(pool) == first.id
    assert await row_states(pool) == ["queued"]


async def test_a_simulation_older_than_the_last_serialized_relay_conflicts_even_if_that_is_mined(
    pool: Pool,
) -> None:
    async with admitting(pool) as admission:
        old = a_claim(most=9, last_serialized_id=await last_serialized_id(pool))
        await admission.admit(a_claim(most=9))
        await mine(pool)
        assert await admission.admit(old) == Conflict()

        again = replace(old, last_serialized_id=await last_serialized_id(pool))
        assert isinstance(await admission.admit(again), Admitted)
    assert await row_states(pool) == ["mined", "queued"]


async def test_a_relay_that_is_not_serialized_does_not_wait_for_a_serialized_one(
    pool: Pool,
) -> None:
    async with admitting(pool) as admission:
        await admission.admit(a_claim())
        assert isinstance(await admission.admit(a_draft()), Admitted)


async def test_claims_in_flight_count_towards_the_limit_under_the_lock(pool: Pool) -> None:
    async with admitting(pool) as admission:
        answers = await all_at_once(admission, [a_claim(most=1) for _ in range(3)])
        refused = [answer for answer in answers if isinstance(answer, ClaimLimitReached)]
        assert len(refused) == 2
        assert refused[0].details == {"collectionId": 7, "currentClaims": 1, "maxPerUser": 1}

        await mine(pool)
        with pytest.raises(ClaimLimitReached):
            await admission.admit(
                a_claim(on_chain=1, most=1, last_serialized_id=await last_serialized_id(pool))
            )
        second = a_claim(on_chain=1, most=2, last_serialized_id=await last_serialized_id(pool))
        assert isinstance(await admission.admit(second), Admitted)


async def test_a_days_gas_is_reserved_at_its_maximum_and_the_unused_part_is_released(
    pool: Pool,
) -> None:
    async with admitting(pool, budgets=GasBudgets(3 * MAX_COST_WEI)) as admission:
        answers = await all_at_once(
            admission, [a_draft(bytes([n]), identity="ann") for n in range(5)]
        )
        assert [type(answer) for answer in answers] == [Admitted] * 3 + [RateLimited] * 2
        refusal = answers[-1]
        assert isinstance(refusal, RateLimited)
        assert refusal.details["reason"] == "gas_budget_exhausted"
        await mine(pool)
        assert isinstance(await admission.admit(a_draft(identity="ann")), Admitted)
    assert await value(pool, "SELECT sum(max_cost_wei) FROM relays") == 4 * MAX_COST_WEI


def of_many_wallets(count: int, identity: Callable[[int], str]) -> list[NewRelay]:
    return [
        a_draft(bytes([number]), a_wallet(number), identity=identity(number))
        for number in range(1, count + 1)
    ]


async def admit_in_two_processes(
    pool: Pool, budgets: GasBudgets, drafts: Sequence[NewRelay]
) -> list[Admission | BaseException]:
    async with admitting(pool, budgets=budgets) as first, admitting(pool, budgets=budgets) as other:
        return await asyncio.gather(
            *[(first, other)[n % 2].admit(draft) for n, draft in enumerate(drafts)],
            return_exceptions=True,
        )


async def test_fifty_wallets_of_one_identity_share_one_budget_across_two_processes(
    pool: Pool,
) -> None:
    drafts = of_many_wallets(50, lambda _: "ann")
    answers = await admit_in_two_processes(pool, GasBudgets(10 * MAX_COST_WEI), drafts)
    kinds = [type(answer) for answer in answers]
    assert (kinds.count(Admitted), kinds.count(RateLimited)) == (10, 40)
    async with session(pool) as connection:
        spent = await gas_budgets.spent(connection, ["ann"])
    assert (spent.by_identity, spent.total_wei) == ({"ann": 10 * MAX_COST_WEI}, 10 * MAX_COST_WEI)


async def test_an_identity_that_spent_its_budget_does_not_stop_other_identities(pool: Pool) -> None:
    budgets = GasBudgets(3 * MAX_COST_WEI)
    drafts = of_many_wallets(40, lambda number: "ann" if number % 2 else f"user {number}")
    answers = await admit_in_two_processes(pool, budgets, drafts)
    refused = [
        draft.identity
        for draft, answer in zip(drafts, answers, strict=True)
        if isinstance(answer, RateLimited)
    ]
    assert refused == ["ann"] * 17


async def test_fifty_concurrent_identities_share_one_total_budget_across_two_processes(
    pool: Pool,
) -> None:
    drafts = of_many_wallets(50, lambda number: f"user {number}")
    answers = await admit_in_two_processes(pool, GasBudgets(0, 10 * MAX_COST_WEI), drafts)
    refused = [answer for answer in answers if isinstance(answer, ValidationFailed)]
    assert len(refused) == 40
    assert sum(isinstance(answer, Admitted) for answer in answers) == 10
    assert refused[0].details["reason"] == "total_gas_budget_exhausted"
    assert 0 < int(str(refused[0].details["retryAfterSeconds"])) <= 86_400
    assert len(await row_states(pool)) == 10


async def test_a_relay_that_cost_less_than_its_maximum_frees_the_rest_of_the_total_budget(
    pool: Pool,
) -> None:
    budgets = GasBudgets(0, 2 * MAX_COST_WEI)
    drafts = of_many_wallets(4, lambda number: f"user {number}")
    async with admitting(pool, budgets=budgets) as admission:
        answers = await all_at_once(admission, drafts[:3])
        assert [type(answer) for answer in answers] == [Admitted, Admitted, ValidationFailed]
        await mine(pool)
        assert isinstance(await admission.admit(drafts[3]), Admitted)


async def test_equal_requests_with_one_idempotency_key_are_one_relay(pool: Pool) -> None:
    async with admitting(pool) as admission:
        answers = await all_at_once(admission, [a_claim(idempotency_key="k") for _ in range(4)])
        written = [answer for answer in answers if isinstance(answer, Admitted)]
        assert [answer.is_new for answer in written] == [True, False, False, False]
        assert len({answer.id for answer in written}) == 1
        assert {answer.window.remaining for answer in written} == {34}
        with pytest.raises(IdempotencyKeyReused):
            await admission.admit(a_draft(b"another", idempotency_key="k"))
        of_another_user = a_draft(b"another", a_wallet(5), idempotency_key="k")
        assert isinstance(await admission.admit(of_another_user), Admitted)
    assert await row_states(pool) == ["queued", "queued"]


async def test_an_idempotency_key_is_answered_even_if_the_users_hour_is_full(pool: Pool) -> None:
    async with admitting(pool) as admission:
        first = await admission.admit(a_draft(idempotency_key="k"))
        await all_at_once(admission, [a_draft(bytes([9, n])) for n in range(34)])
        with pytest.raises(RateLimited):
            await admission.admit(a_draft())
        again = await admission.admit(a_draft(idempotency_key="k"))
    assert isinstance(first, Admitted)
    assert isinstance(again, Admitted)
    assert (again.id, again.window.remaining) == (first.id, 0)


async def test_a_simulated_failure_is_kept_for_its_idempotency_key_and_does_not_count(
    pool: Pool,
) -> None:
    failing = a_claim(idempotency_key="k", failure="ClaimsPaused()")
    async with admitting(pool) as admission:
        first = await admission.admit(failing)
        again = await admission.admit(failing)
        assert isinstance(first, Admitted)
        assert isinstance(again, Admitted)
        assert (first.is_new, again.is_new, again.id) == (True, False, first.id)
        assert (first.window.remaining, again.window.remaining) == (35, 35)
        assert isinstance(await admission.admit(a_claim()), Admitted), (
            "the failure serializes nothing"
        )
    assert await row_states(pool) == ["failed", "queued"]
    async with session(pool) as connection:
        failed = (await relays.progress(connection, [first.id]))[first.id]
    assert (failed.reason, failed.transaction_hash) == ("ClaimsPaused()", None)


async def test_a_repeated_call_conflicts_with_the_first_until_that_settles(pool: Pool) -> None:
    plan = a_plan(b"transfer")
    async with admitting(pool) as admission:
        first, second = await all_at_once(admission, [a_draft(plan=plan), a_draft(plan=plan)])
        assert isinstance(first, Admitted)
        assert second == Conflict(first.id)
        other = await admission.admit(a_draft(plan=a_plan(b"another transfer")))
        assert isinstance(other, Admitted)
        await mine(pool)
        assert isinstance(await admission.admit(a_draft(plan=plan)), Admitted)


async def test_each_relay_is_logged_with_the_request_that_asked_for_it(pool: Pool) -> None:
    async def admitted(admission: RelayAdmission, number: int) -> Admission:
        begin_request(f"r-{number}")
        return await admission.admit(a_draft(bytes([number])))

    with capture_logs() as logs:
        async with admitting(pool) as admission:
            outcomes = await asyncio.gather(*(admitted(admission, number) for number in (1, 2)))
    pairs = [pair for line in logs if line["event"] == "relays.written" for pair in line["relays"]]
    ids = [outcome.id for outcome in outcomes if isinstance(outcome, Admitted)]
    assert sorted(pairs) == sorted(zip(ids, ("r-1", "r-2"), strict=True))


async def test_the_newest_users_versions_are_remembered_and_no_more(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a process would remember every user who has ever sent a relay through it."""
    monkeypatch.setattr("ltzd.actions.relayer.admission._MOST_VERSIONS", 3)
    async with admitting(pool) as admission:
        for number in (1, 2, 3, 4, 5):
            await admission.admit(a_draft(bytes([number]), a_wallet(number)))
        assert list(admission._versions) == [a_wallet(number) for number in (3, 4, 5)]
