"""Each user's relays are sent in order, however the statements of several lanes meet."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from ltzd.chain.signing import Signer
from ltzd.errors import LaneLost
from ltzd.rules.operator.transactions import Inclusion, State, Transaction
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.operator.lanes import Lane
from ltzd.store.relayer import claims, relays
from ltzd.store.relayer.claims import ClaimedRelay
from tests.support.relays.lanes import a_plan, a_relay, a_relay_lane, store_signed, write
from tests.support.rows.core import a_hash, a_wallet, save, value

T = TypeVar("T")

LANES = 3
WAITS_SECONDS = 0.5
SIGNERS = [Signer(bytes([number + 2]) * 32) for number in range(LANES)]

lanes_ = st.integers(0, LANES - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 1), st.none() | lanes_),
        st.tuples(st.just("claim"), lanes_, st.integers(1, 3)),
        st.tuples(st.just("begin to claim"), lanes_, st.integers(1, 3)),
        st.tuples(st.just("claim and store"), lanes_, st.integers(1, 3)),
        st.tuples(st.just("store"), lanes_, st.none()),
        st.tuples(st.just("give back"), lanes_, st.none()),
        st.tuples(st.just("mine"), lanes_, st.none()),
        st.tuples(st.just("withdraw"), st.integers(0, 5), st.none()),
        st.tuples(st.just("freeze"), lanes_, st.none()),
        st.tuples(st.just("wake"), lanes_, st.none()),
        st.tuples(st.just("restart"), lanes_, st.none()),
    ),
    min_size=4,
    max_size=40,
)


@dataclass
class LaneModel:
    """A lane's memory. With `is_open` its last claim is not committed yet."""

    lane: Lane
    connection: Connection
    held: list[ClaimedRelay] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    nonce: int = 0
    is_open: bool = False


class Fleet:
    """Lanes whose statements a test interleaves."""

    def __init__(self, pool: Pool, models: Sequence[LaneModel]) -> None:
        self._pool = pool
        self._models = models

    async def ask(self, user: int, wallet: int | None) -> None:
        named = None if wallet is None else SIGNERS[wallet].address
        await write(self._pool, a_relay(a_plan(user=a_wallet(user), wallet=named)))

    async def claim(self, number: int, limit: int) -> None:
        await self.begin_to_claim(number, limit)
        await self._commit(self._models[number])

    async def claim_and_store(self, number: int, limit: int) -> None:
        await self.claim(number, limit)
        await self.store(number, None)

    async def begin_to_claim(self, number: int, limit: int) -> None:
        model = self._models[number]
        await self._commit(model)
        await model.connection.execute("BEGIN")
        model.is_open = True
        model.held = await claims.claim(model.connection, model.lane, limit)

    async def _commit(self, model: LaneModel) -> None:
        if model.is_open:
            await model.connection.execute("COMMIT")
            model.is_open = False

    async def store(self, number: int, _nothing: None) -> None:
        model = self._models[number]
        await self._commit(model)
        held, model.held = model.held, []
        async with session(self._pool) as connection:
            try:
                rows = await self._beside_open_claims(
                    store_signed(connection, model.lane, held, model.nonce)
                )
            except LaneLost:
                await self.restart(number, None)
                return
        model.nonce += len(rows)
        model.sent += [row.id for row in rows]
        event(f"stored {min(len(rows), 2)} of {min(len(held), 2)}")
        await self._check_order([relay.id for relay in held[: len(rows)]], model)

    async def _check_order(self, sent: Sequence[int], model: LaneModel) -> None:
        overtaken = await value(
            self._pool,
            "SELECT count(*) FROM relays r JOIN relays e USING (user_address) "
            "LEFT JOIN transactions t ON t.id = e.transaction_id "
            "WHERE r.id = ANY($1::bigint[]) AND e.id < r.id AND e.state IN ('queued', 'sent') "
            "AND t.wallet IS DISTINCT FROM $2",
            sent,
            model.lane.wallet,
        )
        assert overtaken == 0, "a relay was sent before an earlier one of its user"

    async def give_back(self, number: int, _nothing: None) -> None:
        model = self._models[number]
        await self._commit(model)
        model.held = []
        async with session(self._pool) as connection:
            await self._beside_open_claims(claims.give_back(connection, model.lane))

    async def _beside_open_claims(self, statement: Coroutine[Any, Any, T]) -> T:
        """A statement that waits for rows of a claim that is not committed yet gets them then."""
        running = asyncio.ensure_future(statement)
        done, _ = await asyncio.wait([running], timeout=WAITS_SECONDS)
        if not done:
            event("waited for another lane's claim")
            for model in self._models:
                await self._commit(model)
        return await running

    async def mine(self, number: int, _nothing: None) -> None:
        model = self._models[number]
        if not model.sent:
            return
        row, inclusion = model.sent.pop(0), Inclusion(5, a_hash("block"), True)
        async with transaction(self._pool) as connection:
            mined = Transaction(State.MINED, inclusion)
            await save(connection, model.lane, row, State.SIGNED, mined)
            await relays.follow(connection, [row])

    async def withdraw(self, number: int, _nothing: None) -> None:
        async with session(self._pool) as connection:
            queued = await connection.fetch(
                "SELECT id FROM relays WHERE state = 'queued' ORDER BY id"
            )
            if queued:
                relay = queued[number % len(queued)]["id"]
                await self._beside_open_claims(relays.withdraw(connection, relay))

    async def freeze(self, number: int, _nothing: None) -> None:
        await self._silent(number, 20)

    async def wake(self, number: int, _nothing: None) -> None:
        await self._silent(number, 0)

    async def _silent(self, number: int, seconds: int) -> None:
        model = self._models[number]
        await self._commit(model)
        await value(
            self._pool,
            "UPDATE lanes SET served_at = now() - make_interval(secs => $2) WHERE wallet = $1",
            model.lane.wallet,
            float(seconds),
        )

    async def restart(self, number: int, _nothing: None) -> None:
        """A new term of the wallet: it gives back what the old term has claimed."""
        model = self._models[number]
        await self._commit(model)
        model.lane = await a_relay_lane(self._pool, SIGNERS[number])
        await self.give_back(number, None)

    async def work_off(self) -> None:
        """All lanes are alive and work in turn: all relays are sent soon."""
        for number in range(LANES):
            await self.wake(number, None)
            await self.give_back(number, None)
        rounds = 0
        while await value(self._pool, "SELECT count(*) FROM relays WHERE state = 'queued'"):
            for number in range(LANES):
                await self.claim(number, 100)
                await self.store(number, None)
            for number in range(LANES):
                while self._models[number].sent:
                    await self.mine(number, None)
            rounds += 1
            assert rounds <= 50, "relays wait although all lanes work"


@asynccontextmanager
async def a_fleet(pool: Pool) -> AsyncIterator[Fleet]:
    async with session(pool) as connection:
        await connection.execute("TRUNCATE relays, transactions, attempts, lanes CASCADE")
    models = []
    connections = [await pool.acquire() for _ in SIGNERS]
    try:
        for signer, connection in zip(SIGNERS, connections, strict=True):
            models.append(LaneModel(await a_relay_lane(pool, signer), connection))
        yield Fleet(pool, models)
    finally:
        for connection in connections:
            await connection.execute("ROLLBACK")
            await pool.release(connection)


TAKEN_OVER: list[tuple[str, int, int | None]] = [
    ("claim", 0, 3),
    ("freeze", 0, None),
    ("begin to claim", 1, 3),
    ("wake", 0, None),
]
"""A lane wakes up while another one is about to commit the claim of its relays."""


@given(steps)
@example([*TAKEN_OVER, ("give back", 0, None)])
@example([*TAKEN_OVER, ("store", 0, None), ("store", 1, None)])
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@pytest.mark.filterwarnings("ignore:there is no transaction in progress")
async def test_each_users_relays_are_sent_in_order_however_the_lanes_meet(
    pool: Pool, happened: Sequence[tuple[str, int, int | None]]
) -> None:
    async with a_fleet(pool) as fleet:
        for user in (0, 0, 1, 0, 1):
            await fleet.ask(user, None)
        for step, number, argument in happened:
            await getattr(fleet, step.replace(" ", "_"))(number, argument)
        await fleet.work_off()
