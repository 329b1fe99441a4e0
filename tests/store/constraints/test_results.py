"""A constraint's result is valid until it expires or is deleted by an invalidation."""

import asyncio
from typing import Any

import pytest

from ltzd.store.constraints import results as constraint_results
from ltzd.store.constraints.results import FIRST_KEY, ConstraintSubject, ResultKey
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID, FakeNode
from tests.support.rows.core import a_wallet, follow, value
from tests.support.waiting import until

ANN, BOB = a_wallet(1), a_wallet(2)
BRAND, OTHER_BRAND = a_wallet(0xB), a_wallet(0xC)
URL = "https://api.example/check?user={user_address}"
API = ConstraintSubject(BRAND, "external_api", URL)
HOLDING = ConstraintSubject(BRAND, "nft_holding")
KEY = ResultKey(ANN, 7, 0)


async def keep(
    pool: Pool,
    key: ResultKey = KEY,
    subject: ConstraintSubject = API,
    outcome: bool = True,
    seconds: float = 60,
) -> None:
    async with session(pool) as connection:
        ticket = await constraint_results.begin(connection, key, subject, 30)
        assert await constraint_results.put(connection, key, ticket, outcome, seconds)


async def results(pool: Pool, user: Address = ANN, collection: int = 7) -> dict[int, bool]:
    async with session(pool) as connection:
        outcomes = await constraint_results.get(connection, user, collection)
    return {position: outcome for position, (_, outcome) in outcomes.items()}


async def test_results_are_read_by_wallet_and_collection(pool: Pool) -> None:
    await keep(pool)
    await keep(pool, ResultKey(ANN, 7, 1), HOLDING, outcome=False)
    await keep(pool, ResultKey(ANN, 8, 0))
    await keep(pool, ResultKey(BOB, 7, 0))

    async with session(pool) as connection:
        outcomes = await constraint_results.get(connection, ANN, 7)
    assert outcomes == {0: (API, True), 1: (HOLDING, False)}


async def test_a_result_expires(pool: Pool) -> None:
    await keep(pool, seconds=0)
    await keep(pool, ResultKey(ANN, 7, 1))

    assert await results(pool) == {1: True}
    async with session(pool) as connection:
        await constraint_results.delete_expired(connection)
    assert await value(pool, "SELECT count(*) FROM constraint_results") == 1


async def test_an_evaluation_in_progress_is_no_result_and_removes_the_old_one(pool: Pool) -> None:
    await keep(pool)
    async with session(pool) as connection:
        await constraint_results.begin(connection, KEY, API, 30)
    assert await results(pool) == {}


async def test_of_two_evaluations_the_later_started_one_is_stored(pool: Pool) -> None:
    async with session(pool) as connection:
        first = await constraint_results.begin(connection, KEY, API, 30)
        second = await constraint_results.begin(connection, KEY, API, 30)
        assert await constraint_results.put(connection, KEY, second, True, 60)
        assert not await constraint_results.put(connection, KEY, first, False, 60)
    assert await results(pool) == {0: True}


@pytest.mark.parametrize("by", ["wallet", "url"])
async def test_a_result_invalidated_during_its_evaluation_is_not_stored(
    pool: Pool, by: str
) -> None:
    async with session(pool) as connection:
        ticket = await constraint_results.begin(connection, KEY, API, 30)
        match by:
            case "wallet":
                await constraint_results.invalidate(connection, {ANN})
            case "url":
                assert await constraint_results.invalidate_api(connection, URL) == 0
        assert not await constraint_results.put(connection, KEY, ticket, True, 60)
    assert await results(pool) == {}


async def test_an_evaluation_waits_for_the_block_that_is_being_written(pool: Pool) -> None:
    """Otherwise it could read the state before that block and be stored after it."""
    node = FakeNode()
    await follow(pool, node)
    async with session(pool) as connection:
        epoch = await chains.begin_term(connection, CHAIN_ID)
    begun = asyncio.Event()

    async def evaluate() -> None:
        async with session(pool) as connection:
            await constraint_results.begin(connection, KEY, API, 30)
            begun.set()

    async with transaction(pool) as connection:
        base = node.blocks[0].hash
        await chains.move_cursor(connection, CHAIN_ID, epoch, base, (1, base), 1)
        await constraint_results.invalidate(connection, {ANN})
        task = asyncio.create_task(evaluate())
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        )
        await until(lambda: value(pool, waiting))
        assert not begun.is_set()
    await task
    assert begun.is_set()


async def test_a_transfer_deletes_the_results_of_the_wallets_concerned_and_no_others(
    pool: Pool,
) -> None:
    await keep(pool)
    await keep(pool, ResultKey(ANN, 8, 3), HOLDING)
    await keep(pool, ResultKey(BOB, 7, 0))
    async with session(pool) as connection:
        await constraint_results.invalidate(connection, set())
        assert await results(pool) == {0: True}
        await constraint_results.invalidate(connection, {ANN, a_wallet(99)})

    assert (await results(pool), await results(pool, ANN, 8)) == ({}, {})
    assert await results(pool, BOB) == {0: True}


@pytest.mark.parametrize(
    ("narrowed", "count"),
    [
        ({}, 4),
        ({"brand": BRAND}, 3),
        ({"brand": a_wallet(0xD)}, 0),
        ({"user": ANN}, 3),
        ({"brand": BRAND, "user": ANN}, 2),
        ({"collection_id": 8}, 1),
        ({"brand": BRAND, "user": BOB, "collection_id": 7}, 1),
    ],
)
async def test_an_apis_results_can_be_deleted_by_user_and_collection(
    pool: Pool, narrowed: dict[str, Any], count: int
) -> None:
    await keep(pool)
    await keep(pool, ResultKey(BOB, 7, 0))
    await keep(pool, ResultKey(ANN, 8, 0))
    await keep(pool, ResultKey(ANN, 9, 0), ConstraintSubject(OTHER_BRAND, "external_api", URL))
    await keep(pool, ResultKey(ANN, 7, 1), ConstraintSubject(BRAND, "external_api", URL + "&x"))
    await keep(pool, ResultKey(ANN, 7, 2), HOLDING)
    await keep(pool, ResultKey(BOB, 8, 0), seconds=0)

    async with session(pool) as connection:
        gone = await constraint_results.invalidate_api(connection, URL, **narrowed)

    assert gone == count, "an expired result does not count"
    in_force = "SELECT count(*) FROM constraint_results WHERE expires_at > now()"
    assert await value(pool, in_force) == 6 - count


ROLE = ConstraintSubject(BRAND, "chat_role", fingerprint=b"has he the role?")
LEVEL = ConstraintSubject(BRAND, "chat_level", fingerprint=b"which level?")
CHAT = ("chat_role", "chat_level")


async def test_results_are_read_by_kind_and_page_with_their_constraints(pool: Pool) -> None:
    keys = [ResultKey(ANN, 7, 0), ResultKey(ANN, 7, 1), ResultKey(ANN, 8, 0), ResultKey(BOB, 7, 0)]
    for key, subject in zip(keys, (ROLE, LEVEL, ROLE, LEVEL), strict=True):
        await keep(pool, key, subject, outcome=key.position == 0)
    await keep(pool, ResultKey(ANN, 7, 2), API)
    await keep(pool, ResultKey(ANN, 7, 3), ROLE, seconds=0)
    async with session(pool) as connection:
        await constraint_results.begin(connection, ResultKey(ANN, 7, 4), ROLE, 30)
        first = await constraint_results.list_in_force(connection, CHAT, FIRST_KEY, 3)
        second = await constraint_results.list_in_force(connection, CHAT, first[-1].key, 3)

    assert [result.key for result in (*first, *second)] == keys
    assert [result.question for result in first] == [
        ROLE.fingerprint,
        LEVEL.fingerprint,
        ROLE.fingerprint,
    ]
    assert [result.outcome for result in first] == [True, False, True]


async def test_a_result_evaluated_again_since_it_was_read_is_not_deleted(pool: Pool) -> None:
    await keep(pool, ResultKey(ANN, 7, 0), ROLE)
    await keep(pool, ResultKey(ANN, 8, 0), ROLE)
    await keep(pool, ResultKey(BOB, 7, 0), ROLE)
    async with session(pool) as connection:
        read = await constraint_results.list_in_force(connection, CHAT, FIRST_KEY, 10)
        await keep(pool, ResultKey(ANN, 8, 0), ROLE, outcome=False)

        assert await constraint_results.delete(connection, read[:2]) == 1
        assert await constraint_results.delete(connection, []) == 0

    assert (await results(pool), await results(pool, ANN, 8)) == ({}, {0: False})
    assert await results(pool, BOB) == {0: True}
