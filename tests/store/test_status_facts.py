"""The facts of `ltzd status`, read from real rows."""

from collections.abc import AsyncIterator
from datetime import datetime
from uuid import uuid4

import pytest_asyncio

from ltzd.rules.event_handler.event_ids import event_id
from ltzd.store import database
from ltzd.store.database import Connection
from ltzd.store.operator import lanes
from ltzd.store.operator.lanes import Lane
from ltzd.store.status import read_status
from ltzd.values import Address
from tests.support.rows.explained import Explained

WALLET = Address(b"\x11" * 20)
BRAND = b"\xab" * 20


@pytest_asyncio.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    yield connection
    await connection.close()


async def a_transaction(connection: Connection, nonce: int, state: str) -> int:
    mined = b"\x33" * 32 if state in {"mined", "confirmed"} else None
    number: int = await connection.fetchval(
        """
        INSERT INTO transactions (chain_id, wallet, nonce, kind, to_address, data, gas_limit, state,
                                  block_hash, block_number, created_at)
        VALUES (1, $1, $2, 'mint', $1, '', 1, $3, $4, 5, now() - interval '10 seconds')
     RETURNING id
        """,
        WALLET,
        nonce,
        state,
        mined,
    )
    return number


async def a_reward(
    connection: Connection, transaction: int | None = None, minted: bool = False
) -> None:
    """A minted reward also has its mint's fact, as the indexer writes both."""
    mark = b"\x44" * 32 if minted else None
    if minted:
        await connection.execute(
            """
            INSERT INTO mints (block_hash, log_index, block_number, transaction_hash, recipient,
                               reference, amount)
            VALUES ($1, (SELECT count(*) FROM mints), 7, $1, $2, $1, 5)
            """,
            mark,
            WALLET,
        )
    await connection.execute(
        """
        INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq, transaction_id,
                             mint_block_number, mint_block_hash, mint_transaction_hash, created_at)
        VALUES ($1, 1, $2, $3, 5, (SELECT count(*) FROM rewards), $4, $5, $6, $6,
                now() - interval '20 seconds')
        """,
        uuid4(),
        BRAND,
        WALLET,
        transaction,
        7 if minted else None,
        mark,
    )


async def test_an_empty_database_has_empty_facts(connection: Connection) -> None:
    facts = await read_status(connection)
    assert facts.chain is None
    assert facts.lanes == ()
    assert (facts.rewards.queued, facts.rewards.in_flight, facts.rewards.minted) == (0, 0, 0)
    assert facts.rewards.oldest_queued_seconds is None
    assert facts.events_last_minute == 0


async def test_the_cursors_lag_is_counted_in_blocks(connection: Connection) -> None:
    await connection.execute(
        """
        INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, cursor_number, cursor_hash,
                            head_number, final_number, updated_at)
        VALUES (31337, $1, $2, 1, 10, $1, 13, 4, now() - interval '5 seconds')
        """,
        b"\x01" * 32,
        b"\x02" * 20,
    )
    chain = (await read_status(connection)).chain
    assert chain is not None
    assert (chain.chain_id, chain.head_number, chain.cursor_number) == (31337, 13, 10)
    assert (chain.final_number, chain.block_seconds) == (4, None)
    assert 5 <= chain.idle_seconds < 10


async def test_the_block_time_is_measured_over_the_newest_blocks(connection: Connection) -> None:
    await connection.execute(
        """
        INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, cursor_number, cursor_hash,
                            head_number, final_number, updated_at)
        VALUES (8453, $1, $2, 1, 100, $1, 100, 4, now())
        """,
        b"\x01" * 32,
        b"\x02" * 20,
    )
    await connection.execute(
        """
        INSERT INTO blocks (number, hash, parent_hash, mined_at)
        SELECT number, int4send(number), int4send(number - 1),
               CASE WHEN number < 60 THEN to_timestamp(number)
                    ELSE to_timestamp(1700000000 + 2 * number) END
          FROM generate_series(1, 100) AS number
        """
    )
    chain = (await read_status(connection)).chain
    assert chain is not None
    assert chain.block_seconds == 2.0


async def test_a_lane_counts_its_unsettled_transactions(connection: Connection) -> None:
    await connection.execute(
        """
        INSERT INTO lanes (chain_id, wallet, kind, epoch, next_nonce)
        VALUES (1, $1, 'mint', 2, 6)
        """,
        WALLET,
    )
    states = ("confirmed", "mined", "published", "published", "signed", "displaced")
    for nonce, state in enumerate(states):
        await a_transaction(connection, nonce, state)
    (lane,) = (await read_status(connection)).lanes
    assert (lane.wallet, lane.kind, lane.epoch, lane.next_nonce) == (WALLET, "mint", 2, 6)
    assert (lane.signed, lane.published, lane.mined, lane.in_flight) == (1, 2, 1, 4)
    assert lane.oldest_seconds is not None
    assert 10 <= lane.oldest_seconds < 15


async def test_a_reward_is_queued_then_in_flight_then_minted(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO brands (id, name, configuration, revision) VALUES ($1, 'Demo', '{}', 1)", BRAND
    )
    published = await a_transaction(connection, 0, "published")
    confirmed = await a_transaction(connection, 1, "confirmed")
    for _ in range(3):
        await a_reward(connection)
    await a_reward(connection, published)
    await a_reward(connection, published, minted=True)
    await a_reward(connection, confirmed, minted=True)
    rewards = (await read_status(connection)).rewards
    assert (rewards.queued, rewards.in_flight, rewards.minted) == (3, 1, 2)
    assert rewards.minted_is_estimate is False
    assert rewards.oldest_queued_seconds is not None
    assert 20 <= rewards.oldest_queued_seconds < 25


async def test_a_failed_reward_is_counted_as_failed_and_not_as_queued(
    connection: Connection,
) -> None:
    await a_reward(connection)
    await connection.execute("UPDATE rewards SET failed_at = now(), failure = 'ZeroAmount'")
    assert (await read_status(connection)).rewards.queued == 0


async def test_a_reward_above_the_mint_limit_is_queued_and_does_not_age_the_queue(
    connection: Connection,
) -> None:
    await a_reward(connection)
    await connection.execute("UPDATE rewards SET above_limit = true")
    rewards = (await read_status(connection)).rewards

    assert (rewards.queued, rewards.above_limit, rewards.oldest_queued_seconds) == (1, 1, None)


async def test_a_patient_brands_rewards_age_the_queue_from_the_end_of_their_wait(
    connection: Connection,
) -> None:
    await a_reward(connection)
    await connection.execute("UPDATE rewards SET created_at = now() - interval '90 s'")
    await connection.execute(  # A patience that this version cannot read counts as none.
        "INSERT INTO brands (id, name, configuration, revision)"
        """ VALUES ($1, 'Other', '{"patience_seconds": "soon"}', 1)""",
        WALLET,
    )
    await connection.execute(
        "INSERT INTO brands (id, name, configuration, revision)"
        " SELECT brand_id, 'Patient', $1::text::jsonb, 1 FROM rewards"
        " ON CONFLICT (id) DO UPDATE SET configuration = excluded.configuration",
        '{"patience_seconds": 100}',
    )
    rewards = (await read_status(connection)).rewards
    assert (rewards.queued, rewards.may_wait, rewards.oldest_queued_seconds) == (1, 1, 0.0)

    await connection.execute("UPDATE rewards SET created_at = now() - interval '130 s'")
    rewards = (await read_status(connection)).rewards
    assert (rewards.may_wait, round(rewards.oldest_queued_seconds or 0, -1)) == (0, 30)


async def test_a_lanes_pause_reason_is_shown_for_a_minute(connection: Connection) -> None:
    await connection.execute(
        """
        INSERT INTO lanes (chain_id, wallet, kind, epoch, next_nonce)
        VALUES (1, $1, 'mint', 2, 6)
        """,
        WALLET,
    )
    lane = Lane(1, WALLET, 2, "mint")

    async def shown() -> tuple[str | None, datetime | None]:
        (facts,) = (await read_status(connection)).lanes
        return facts.paused_for, facts.paused_since

    assert await shown() == (None, None)
    await lanes.report_working(connection, lane, "fees")
    reason, since = await shown()
    assert (reason, since is None) == ("fees", False)
    await lanes.report_working(connection, lane, "fees")
    assert await shown() == ("fees", since), "the age counts from the begin of the pause"
    await lanes.report_working(connection, lane, "mint_limit")
    reason, later = await shown()
    assert (reason, since != later) == ("mint_limit", True)

    await connection.execute("UPDATE lanes SET paused_seen_at = now() - interval '61 seconds'")
    assert await shown() == (None, None), "the process that reported the pause is gone"
    await lanes.report_working(connection, lane, "mint_limit")
    await lanes.report_working(connection, lane)
    assert await shown() == (None, None)
    await lanes.report_pause(connection, lane, "node")
    assert (await shown())[0] == "node"
    await lanes.begin_term(connection, 1, WALLET, "mint", 0)
    assert await shown() == (None, None)


async def test_only_events_of_the_last_minute_are_counted(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO brands (id, name, configuration, revision) VALUES ($1, 'Demo', '{}', 1)", BRAND
    )
    now = await connection.fetchval("SELECT extract(epoch FROM now())::bigint")
    for number, age in enumerate((0, 10, 59, 61, 3600)):
        await connection.execute(
            """
            INSERT INTO events (id, brand_id, event_type, email, user_id, domain, ltz, created_at)
            VALUES ($1, $2, 'a', 'ada@example.com', $1, 'shop.example', 1,
                    now() - make_interval(secs => $3))
            """,
            event_id(now - age, number),
            BRAND,
            age,
        )
    assert (await read_status(connection)).events_last_minute == 3


async def test_rewards_in_flight_are_counted_without_those_of_settled_transactions(
    connection: Connection,
) -> None:
    settled = [await a_transaction(connection, nonce, "confirmed") for nonce in range(3)]
    await connection.execute(
        """
        INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq, transaction_id)
        SELECT gen_random_uuid(), 1, $1, $2, 5, n + 100000, $3 + n % 3
          FROM generate_series(1, 20000) AS n
        """,
        *(BRAND, WALLET, settled[0]),
    )
    for nonce in range(3, 6):
        await a_reward(connection, await a_transaction(connection, nonce, "mined"))
    await connection.execute("ANALYZE transactions, rewards")
    explained = Explained(connection)

    facts = await read_status(explained)

    assert facts.rewards.in_flight == 3
    assert explained.read < 1_000
