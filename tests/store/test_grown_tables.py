"""Repeated questions read few rows of tables that have grown for years.

The bounds are pages, far below those of the tables, with statistics and without.
"""

from typing import Any, cast
from uuid import uuid4

from benchmarks.harness.hot_queries import HotQuery, Sample, touched
from ltzd.rules.event_handler.event_partitions import MOST_WIDTH
from ltzd.store import status
from ltzd.store.constraints import chat_claims
from ltzd.store.database import Pool, connect, session
from ltzd.store.event_handler import partitions
from ltzd.store.indexer import totals
from ltzd.store.operator import lost_mints, top_ups, transaction_views, transactions
from ltzd.store.webhooks import queue, records
from ltzd.store.webhooks.queue import WebhookState
from ltzd.values import Address

_CHAIN = 31337
_MINTER, _RELAYER = Address(b"\x1a" * 20), Address(b"\x1b" * 20)
_ROWS = 20_000
_SAMPLE = Sample(_ROWS)


async def _list_transactions(connection: Any, _sample: Sample) -> None:
    assert await transaction_views.list_transactions(connection) == []


async def _list_unsuccessful(connection: Any, _sample: Sample) -> None:
    for states, wallet in ((["displaced"], None), (["reverted"], _RELAYER)):
        listed = await transaction_views.list_transactions(connection, states=states, wallet=wallet)
        assert len(listed) == 1


async def _list_confirmed(connection: Any, _sample: Sample) -> None:
    states = [*transaction_views.OPEN, "confirmed", "reverted"]
    listed = await transaction_views.list_transactions(connection, states=states, limit=5)
    assert [tx.id for tx in listed] == [_ROWS + 1, *range(_ROWS, _ROWS - 4, -1)]


async def _link(connection: Any, _sample: Sample) -> None:
    reward = await connection.fetchval("SELECT id FROM rewards")
    assert await lost_mints.link_rewards(connection, [reward, uuid4()]) == 1


async def _list_webhooks(connection: Any, _sample: Sample) -> None:
    brand = Address(b"\xbb" * 20)
    for state, count in (("pending", 5), ("exhausted", 3), ("delivered", 2)):
        listed = await records.list_webhooks(connection, None, cast("WebhookState", state), 5)
        assert [webhook.state for webhook in listed] == [state] * count
    assert len(await records.list_webhooks(connection, brand, None, 5)) == 5


_DAEMON = (
    HotQuery("expired webhooks", lambda c, _: queue.delete_expired(c), 80),
    HotQuery("voided?", lambda c, _: transactions.has_voided(c, _CHAIN, _MINTER), 20),
    HotQuery("wallets to fill", lambda c, _: top_ups.targets(c, _CHAIN), 40),
    HotQuery("unused chat claims", lambda c, _: chat_claims.delete_unused(c, page=20), 250),
    HotQuery("the lost mint of a reward", _link, 100),
    HotQuery("a sample of tokens", lambda c, _: totals.holders(c, b"\xf0" * 32), 60),
)


_COMMANDS = (
    HotQuery("open transactions", _list_transactions, 40),
    HotQuery("unsuccessful transactions", _list_unsuccessful, 80),
    HotQuery("confirmed transactions", _list_confirmed, 200),
    HotQuery("webhooks of a state", _list_webhooks, 120),
)
"""Asked on a connection that has the planner's usual settings."""


async def test_they_touch_few_pages(pool: Pool, database_url: str) -> None:
    async with session(pool) as connection:
        await connection.execute("SET session_replication_role = replica")  # no references
        for statement in _FILL:
            await connection.execute(statement)
        await connection.execute("SET session_replication_role = DEFAULT")
        command = await connect(database_url, "test")
        for prepare in ("SELECT 1", "ANALYZE"):
            await connection.execute(prepare)
            for asks, queries in ((connection, _DAEMON), (command, _COMMANDS)):
                for query in queries:
                    pages, _ = await touched(asks, query, _SAMPLE)
                    assert 0 < pages <= query.pages, (query.name, pages)
        await command.close()


_FILL = (
    f"""
    INSERT INTO lanes (chain_id, wallet, kind, epoch, next_nonce)
    VALUES ({_CHAIN}, decode(repeat('1a', 20), 'hex'), 'mint', 1, 1),
           ({_CHAIN}, decode(repeat('1b', 20), 'hex'), 'relay', 1, 1)
    """,
    """
    INSERT INTO operator_wallets (chain_id, wallet, kind)
    SELECT chain_id, wallet, kind FROM lanes
    """,
    # The newest transaction has reverted, and one in the middle is displaced.
    f"""
    INSERT INTO transactions (id, chain_id, wallet, nonce, kind, to_address, data, gas_limit, state,
                              succeeded, block_number, block_hash, mined_attempt, gas_used,
                              effective_gas_price)
    OVERRIDING SYSTEM VALUE
    SELECT n, {_CHAIN}, lanes.wallet, n, 'mint', lanes.wallet, decode(repeat('ab', 200), 'hex'), 1,
           CASE WHEN n > {_ROWS} THEN 'reverted' ELSE 'confirmed' END, n <= {_ROWS}, 1,
           sha256('b'), sha256(int8send(n)), 1, 1
      FROM generate_series(1, {_ROWS} + 1) AS n
      JOIN lanes ON lanes.kind = CASE WHEN n > {_ROWS} THEN 'relay' ELSE 'mint' END
    """,
    f"""
    UPDATE transactions SET state = 'displaced', succeeded = NULL, block_hash = NULL
     WHERE id = {_ROWS} / 2
    """,
    """
    INSERT INTO attempts (hash, transaction_id, raw, max_fee_per_gas, max_priority_fee_per_gas)
    SELECT mined_attempt, id, decode(repeat('02', 100), 'hex'), 1, 1 FROM transactions
    """,
    f"""
    INSERT INTO blocks (number, hash, parent_hash, mined_at, seen_at)
    SELECT n, sha256(int8send(n)), sha256(int8send(n - 1)), now(),
           now() - ({_ROWS} - n) * interval '1 hour'
      FROM generate_series(1, {_ROWS}) AS n
    """,
    f"""
    INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, epoch, cursor_number, cursor_hash,
                        head_number, final_number)
    VALUES ({_CHAIN}, sha256('g'), decode(repeat('17', 20), 'hex'), 1, 1, {_ROWS}, sha256('c'),
            {_ROWS}, {_ROWS})
    """,
    """
    INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
    SELECT gen_random_uuid(), 1, ltz, ltz, 7 FROM chains
    """,
    # The mint of the reward is the newest one.
    f"""
    INSERT INTO mints
    SELECT b.hash, 0, b.number, sha256(b.hash), r.wallet,
           CASE WHEN b.number = {_ROWS} THEN uuid_send(r.id) ELSE substring(b.hash FOR 16) END
             || decode('0100000000000000', 'hex') || int8send(b.number),
           7 * 10::numeric ^ 18
      FROM blocks b
     CROSS JOIN rewards r
    """,
    f"""
    INSERT INTO chat_claims (collection_id, account, wallet, claims, reserved_at)
    SELECT 1, 'account ' || n, substring(sha256(int8send(n)) FOR 20), 1, now() - interval '9 days'
      FROM generate_series(1, {_ROWS}) AS n
    """,
    """
    INSERT INTO perk_claims
    SELECT sha256(wallet), row_number() OVER (), 1, sha256(wallet), wallet, 1, 1, 1, 1,
           sha256(wallet)
      FROM chat_claims
    """,
    """
    INSERT INTO tokens (token_id, collection_id, holder, claimed_at, block_number)
    SELECT 4294967296 + row_number() OVER (), 1, wallet, now(), 1 FROM chat_claims
    """,
    """
    INSERT INTO brands (id, name, configuration, revision)
    VALUES (decode(repeat('bb', 20), 'hex'), 'Demo', '{}', 1)
    """,
    # An endpoint that has been dead for three months, but for the oldest webhooks.
    f"""
    INSERT INTO webhooks (brand_id, kind, subject, state, created_at)
    SELECT brands.id, 'ltz_distributed', gen_random_uuid(),
           CASE WHEN n <= 2 THEN 'delivered' WHEN n <= 5 THEN 'exhausted' ELSE 'pending' END,
           now() - interval '89 days' * (1 - n / {_ROWS}.0)
      FROM generate_series(1, {_ROWS}) AS n
     CROSS JOIN brands
    """,
)


async def test_the_events_of_a_minute_are_counted_in_the_newest_partitions(pool: Pool) -> None:
    async with session(pool) as connection:
        now = await connection.fetchval("SELECT extract(epoch FROM now())::bigint")
        for ago in range(12, -1, -1):
            await partitions.ensure(connection, now - ago * MOST_WIDTH)
        await connection.execute(
            """
            INSERT INTO brands (id, name, configuration, revision)
            SELECT substring(sha256(int8send(n)) FOR 20), 'Demo', '{}', 1
              FROM generate_series(1, 100) AS n
            """
        )
        counted = HotQuery("status", lambda c, _: status.read_status(c), 900)
        for prepare in ("SELECT 1", "ANALYZE"):
            await connection.execute(prepare)
            pages, _ = await touched(connection, counted, _SAMPLE)
            assert 0 < pages <= counted.pages, pages
