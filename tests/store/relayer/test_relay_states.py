"""The SQL statements change relays' states exactly as `rules/relayer/states` defines."""

from collections.abc import Awaitable, Callable
from itertools import product

import pytest

from ltzd.errors import IllegalTransition
from ltzd.rules.operator.transactions import State
from ltzd.rules.relayer.states import (
    IN_FLIGHT,
    SETTLED,
    NotSendable,
    RelayObservation,
    RelayState,
    Signed,
    TransactionMoved,
    Withdrawn,
    advance,
    charged_wei,
)
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.operator.lanes import Lane
from ltzd.store.relayer import claims, relays
from ltzd.store.relayer.claims import ClaimedRelay
from tests.support.relays.lanes import (
    MAX_COST_WEI,
    USER,
    a_plan,
    a_relay,
    a_relay_lane,
    row_states,
    send,
    store_signed,
    write,
)
from tests.support.rows.core import value

STORED = [state for state in RelayState if state is not RelayState.WITHDRAWN]
MOVES = [
    TransactionMoved(state, is_cancelled)
    for state, is_cancelled in product(State, [False, True])
    if not is_cancelled or state in (State.MINED, State.CANCELLED)
]
MINED = (State.MINED, State.CONFIRMED, State.REVERTED, State.CANCELLED)
OBSERVATIONS: list[RelayObservation] = [Signed(), NotSendable(), Withdrawn(), *MOVES]


async def a_relay_in(pool: Pool, lane: Lane, state: RelayState) -> int:
    """Writes a relay in this state, with a transaction if it is SENT or MINED."""
    plan = a_plan(serialized_per_user=True)
    failure = "ClaimsPaused()" if state is RelayState.FAILED else None
    (relay,) = await write(pool, a_relay(plan, failure=failure))
    if state in (RelayState.SENT, RelayState.MINED):
        await send(pool, lane)
    await value(pool, "UPDATE relays SET state = $2 WHERE id = $1", relay, state.value)
    return relay


async def observe(pool: Pool, lane: Lane, relay: int, seen: RelayObservation) -> None:
    """Runs the statement for the observation; a refused statement changes nothing."""
    match seen:
        case Signed():
            queued = [ClaimedRelay(relay, a_plan().to, a_plan().data, 100_000)]
            async with transaction(pool) as connection:
                if await claims.claim(connection, lane, 9):
                    await store_signed(connection, lane, queued)
        case NotSendable():
            await run(pool, lambda connection: relays.refuse(connection, {relay: "too much"}))
        case Withdrawn():
            await run(pool, lambda connection: relays.withdraw(connection, relay))
        case TransactionMoved(state, is_cancelled):
            id_ = await value(pool, "SELECT transaction_id FROM relays WHERE id = $1", relay)
            block = (5, bytes(32), False) if state in MINED else (None, None, None)
            await value(
                pool,
                "UPDATE transactions SET state = $2, is_cancelled = $3, block_number = $4, "
                "block_hash = $5, succeeded = $6 WHERE id = $1",
                id_,
                state.value,
                is_cancelled,
                *block,
            )
            await run(pool, lambda connection: relays.follow(connection, [id_]))


async def run(pool: Pool, statement: Callable[[Connection], Awaitable[object]]) -> None:
    async with transaction(pool) as connection:
        await statement(connection)


@pytest.mark.parametrize(("state", "seen"), list(product(STORED, OBSERVATIONS)))
async def test_every_statement_changes_states_as_the_table_says(
    pool: Pool, state: RelayState, seen: RelayObservation
) -> None:
    lane = await a_relay_lane(pool)
    relay = await a_relay_in(pool, lane, state)
    try:
        expected = advance(state, seen)
    except IllegalTransition:
        expected = state
    await observe(pool, lane, relay, seen)
    assert await row_states(pool) == ([] if expected is RelayState.WITHDRAWN else [expected.value])


@pytest.mark.parametrize("state", STORED)
async def test_a_relay_blocks_its_user_and_answers_its_callers_as_the_table_says(
    pool: Pool, state: RelayState
) -> None:
    lane = await a_relay_lane(pool)
    relay = await a_relay_in(pool, lane, state)
    async with session(pool) as connection:
        (usage,) = await relays.read_usage(connection, [(USER, None)])
        busy = await relays.users_with_serialized(connection, [USER])
        settled = await relays.settled(connection, [relay])
    assert usage.has_serialized_in_flight is (state in IN_FLIGHT)
    assert busy == ({USER} if state in IN_FLIGHT else set())
    assert settled.keys() == ({relay} if state in SETTLED else set())


@pytest.mark.parametrize("state", State)
async def test_a_relay_is_charged_as_the_table_says(pool: Pool, state: State) -> None:
    lane = await a_relay_lane(pool)
    relay = await a_relay_in(pool, lane, RelayState.SENT)
    await observe(pool, lane, relay, TransactionMoved(state))
    assert await value(pool, "SELECT gas_wei FROM relays WHERE id = $1", relay) == charged_wei(
        state, None, MAX_COST_WEI
    )


async def test_a_transaction_is_stored_for_claimed_relays_only(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    sent = await a_relay_in(pool, lane, RelayState.SENT)
    queued = await a_relay_in(pool, lane, RelayState.QUEUED)
    async with session(pool) as connection:
        for relay in (1_000, sent, queued):
            unclaimed = ClaimedRelay(relay, a_plan().to, a_plan().data, 100_000)
            assert await store_signed(connection, lane, [unclaimed], first_nonce=1) == []
    assert await value(pool, "SELECT next_nonce FROM lanes") == 1
    assert await value(pool, "SELECT count(*) FROM transactions") == 1
