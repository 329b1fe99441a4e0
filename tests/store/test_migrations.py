"""A database that an earlier version has filled is brought forward with all that it holds."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest_asyncio
from alembic import command

from ltzd.rules.fees import Fees
from ltzd.rules.transactions import Bill, Place, State, Transaction
from ltzd.store import brand_keys, brands, database, lanes, relays, rewards, transactions
from ltzd.store.lanes import Lane
from ltzd.values import Address, Hash32
from tests.support.core import BRAND, a_wallet
from tests.support.event_action import SEALER, a_brand
from tests.support.postgres import Databases
from tests.support.relay_world import RELAYER, a_relay, signed

CHAIN = 31337
MINTER = a_wallet(0x77)
QUEUED, SENT = UUID(int=1), UUID(int=2)


@pytest_asyncio.fixture
async def empty_url(databases: Databases) -> AsyncIterator[str]:
    async with databases.fresh() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.close()
        yield url


async def fill(connection: asyncpg.Connection) -> None:
    """As 0001 writes: a brand with keys, a reward that waits, and one in flight with two attempts,
    the dearer of which is the older."""
    async with connection.transaction():
        await _fill_brand(connection)
        await connection.execute(
            """
            INSERT INTO lanes (chain_id, wallet, kind, epoch, next_nonce)
            VALUES ($1, $2, 'mint', 1, 1)
            """,
            CHAIN,
            MINTER,
        )
        intent = await connection.fetchval(
            """
            INSERT INTO transactions
                   (chain_id, wallet, nonce, kind, to_address, data, gas_limit, state)
            VALUES ($1, $2, 0, 'mint', $3, '\\x01', 100000, 'published')
         RETURNING id
            """,
            CHAIN,
            MINTER,
            a_wallet(9),
        )
        for number, fee in enumerate((30, 20)):
            await connection.execute(
                """
                INSERT INTO attempts (hash, transaction_id, raw, max_fee_per_gas,
                                      max_priority_fee_per_gas, created_at)
                VALUES ($1, $2, $3, $4, $5, $6)
                """,
                bytes([number]) * 32,
                intent,
                bytes([number]),
                fee,
                fee // 10,
                datetime(2026, 1, 1 + number, tzinfo=UTC),
            )
        await connection.execute(
            """
            INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq, transaction_id)
            VALUES ($1, 1, $3, $4, 5, NULL, NULL), ($2, 1, $3, $4, 7, 0, $5)
            """,
            QUEUED,
            SENT,
            BRAND,
            a_wallet(1),
            intent,
        )


async def _fill_brand(connection: asyncpg.Connection) -> None:
    await connection.execute(
        """
        INSERT INTO brands (id, name, configuration, revision)
        VALUES ($1, 'Demo', $2::text::jsonb, nextval('brand_revisions'))
        """,
        BRAND,
        a_brand().model_dump_json(),
    )
    for name in brand_keys.FIELDS:
        await connection.execute(
            """
            INSERT INTO brand_secrets (brand_id, name, key_id, sealed) VALUES ($1, $2, $3, $4)
            """,
            BRAND,
            name,
            SEALER.key_id,
            SEALER.seal(f"key of {name}", BRAND, name),
        )


async def test_lanes_and_their_transactions_go_on_where_they_were_when_relays_came(
    empty_url: str,
) -> None:
    await asyncio.to_thread(command.upgrade, database._alembic(empty_url), "0002")
    connection = await database.connect(empty_url, "test")
    await fill(connection)
    await connection.close()

    await database.migrate(empty_url)

    pool = await database.open_pool(empty_url, size=2)
    place = Place(5, Hash32(b"\x05" * 32), True, Bill(Hash32(b"\x01" * 32), 40_000, 9))
    try:
        async with database.transaction(pool) as connection:
            assert await lanes.working(connection, CHAIN, "mint") == []
            lane = await lanes.begin_term(connection, CHAIN, Address(MINTER), "mint", 7)
            await lanes.show(connection, lane)
            assert await lanes.working(connection, CHAIN, "mint") == [MINTER]
            assert await lanes.next_nonce(connection, CHAIN, Address(MINTER)) == 1

            (flying,) = await transactions.in_flight(connection, lane)
            mined = replace(flying, tx=Transaction(State.MINED, place))
            await transactions.save(connection, lane, [(flying.tx, mined)])
            watched = "SELECT state, mined_attempt, gas_used FROM watched_transactions"
            assert tuple(await connection.fetchrow(watched)) == ("mined", b"\x01" * 32, 40_000)

            other = await lanes.begin_term(connection, CHAIN, RELAYER.address, "relay", 0)
            await relays.insert(connection, [a_relay()])
            waiting = await relays.queued(connection, other, 9)
            await relays.store_signed(connection, other, signed(waiting))
            assert len(await transactions.in_flight(connection, other)) == 1
    finally:
        await pool.close()


async def test_what_the_first_version_left_is_there_after_the_second_came(empty_url: str) -> None:
    await asyncio.to_thread(command.upgrade, database._alembic(empty_url), "0001")
    connection = await database.connect(empty_url, "test")
    await fill(connection)
    await connection.close()

    await database.migrate(empty_url)

    pool = await database.open_pool(empty_url, size=2)
    try:
        async with database.session(pool) as connection:
            (waiting,) = await rewards.queued(connection, 10)
            assert (waiting.id, waiting.ltz, waiting.has_failed) == (QUEUED, 5, False)
            lane = Lane(CHAIN, Address(MINTER), 1, "mint")
            (flying,) = await transactions.in_flight(connection, lane)
            assert flying.fees == Fees(30, 3)
            assert flying.raw == b"\x00"
            assert len(flying.hashes) == 2
            assert await brands.load(connection, BRAND) == a_brand()
            (key,) = await brand_keys.secrets_of(connection, BRAND, "security_key", SEALER)
            assert (key.text, key.until) == ("key of security_key", None)
    finally:
        await pool.close()
