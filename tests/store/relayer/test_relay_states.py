"""The SQL statements change relays' states exactly as `rules/relayer/states` says."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args

import pytest

from ltzd.rules.operator.transactions import State
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

RelayState = Literal["queued", "sent", "mined", "failed"]
STATES: tuple[RelayState, ...] = get_args(RelayState)
IN_FLIGHT = ("queued", "sent")
"""A relay in flight keeps its user's other claims and purchases waiting."""
SETTLED = ("mined", "failed")
"""A caller that waits for a relay is answered in these states."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The relay's transaction has moved to `state`. `is_cancelled`: the self-transfer was mined."""

    state: State
    is_cancelled: bool = False


Observation = Literal["signed", "not sendable", "withdrawn"] | Moved

FOLLOWED: dict[Moved, RelayState] = {
    Moved(State.SIGNED): "sent",
    Moved(State.PUBLISHED): "sent",
    Moved(State.MINED): "mined",
    Moved(State.MINED, is_cancelled=True): "sent",
    Moved(State.CONFIRMED): "mined",
    Moved(State.REVERTED): "mined",
    Moved(State.DISPLACED): "mined",
    Moved(State.CANCELLED): "mined",
    Moved(State.CANCELLED, is_cancelled=True): "mined",
    Moved(State.VOIDED): "mined",
}
CHANGES: dict[tuple[RelayState, Observation], RelayState | None] = {
    ("queued", "signed"): "sent",
    ("queued", "not sendable"): "failed",
    ("queued", "withdrawn"): None,
    **{("sent", moved): state for moved, state in FOLLOWED.items()},
    **{("mined", moved): state for moved, state in FOLLOWED.items()},
}
"""Every change of a state, with None for a row that is deleted. Other pairs change nothing."""
OBSERVATIONS: list[Observation] = ["signed", "not sendable", "withdrawn", *FOLLOWED]
MINED = (State.MINED, State.CONFIRMED, State.REVERTED, State.CANCELLED)


async def a_relay_in(pool: Pool, lane: Lane, state: RelayState) -> int:
    """Writes a relay in this state, with a transaction if it is sent or mined."""
    plan = a_plan(serialized_per_user=True)
    failure = "ClaimsPaused()" if state == "failed" else None
    (relay,) = await write(pool, a_relay(plan, failure=failure))
    if state in ("sent", "mined"):
        await send(pool, lane)
    await value(pool, "UPDATE relays SET state = $2 WHERE id = $1", relay, state)
    return relay


async def observe(pool: Pool, lane: Lane, relay: int, seen: Observation) -> None:
    """Runs the statement for the observation; a refused statement changes nothing."""
    match seen:
        case "signed":
            queued = [ClaimedRelay(relay, a_plan().to, a_plan().data, 100_000)]
            async with transaction(pool) as connection:
                if await claims.claim(connection, lane, 9):
                    await store_signed(connection, lane, queued)
        case "not sendable":
            await run(pool, lambda connection: relays.refuse(connection, {relay: "too much"}))
        case "withdrawn":
            await run(pool, lambda connection: relays.withdraw(connection, relay))
        case Moved(state, is_cancelled):
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


@pytest.mark.parametrize(("state", "seen"), list(product(STATES, OBSERVATIONS)))
async def test_every_statement_changes_states_as_the_table_says(
    pool: Pool, state: RelayState, seen: Observation
) -> None:
    lane = await a_relay_lane(pool)
    relay = await a_relay_in(pool, lane, state)
    await observe(pool, lane, relay, seen)
    expected = CHANGES.get((state, seen), state)
    assert await row_states(pool) == ([] if expected is None else [expected])


@pytest.mark.parametrize("state", STATES)
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
async def test_a_relay_is_charged_its_worst_case_unless_its_nonce_is_lost(
    pool: Pool, state: State
) -> None:
    lane = await a_relay_lane(pool)
    relay = await a_relay_in(pool, lane, "sent")
    await observe(pool, lane, relay, Moved(state))
    charged = 0 if state is State.DISPLACED else MAX_COST_WEI
    assert await value(pool, "SELECT gas_wei FROM relays WHERE id = $1", relay) == charged


async def test_a_transaction_is_stored_for_claimed_relays_only(pool: Pool) -> None:
    lane = await a_relay_lane(pool)
    sent = await a_relay_in(pool, lane, "sent")
    queued = await a_relay_in(pool, lane, "queued")
    async with session(pool) as connection:
        for relay in (1_000, sent, queued):
            unclaimed = ClaimedRelay(relay, a_plan().to, a_plan().data, 100_000)
            assert await store_signed(connection, lane, [unclaimed], first_nonce=1) == []
    assert await value(pool, "SELECT next_nonce FROM lanes") == 1
    assert await value(pool, "SELECT count(*) FROM transactions") == 1
