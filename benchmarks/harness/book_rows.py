"""Fills all tables that `ltzd books` compares with rewards that balance.

Each event has a reward, a mint, a transfer and a delivered webhook; a user has ten of them at one
brand, spread over two years. A transaction mints `MINTS` rewards, and a block holds one of them.
"""

from typing import Final

from benchmarks.harness import event_rows
from ltzd.store.database import Connection
from ltzd.store.indexer import partitions

MINTS: Final = 200
_FILL_SECONDS: Final = 3_600.0


async def fill(connection: Connection, rewards: int) -> None:
    await connection.execute("SET session_replication_role = replica")  # no checks of references
    await event_rows.fill_events(connection, rewards, is_spread=True)
    await partitions.ensure(connection, rewards // MINTS + 1)
    for statement in _STATEMENTS:
        await connection.execute(statement, timeout=_FILL_SECONDS)
    await connection.execute(_CHAIN, rewards // MINTS + 1)
    await connection.execute("SET session_replication_role = DEFAULT")
    await connection.execute("VACUUM ANALYZE", timeout=_FILL_SECONDS)


_STATEMENTS: Final = (
    f"""
    INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq, transaction_id, created_at,
                         earned_on, mint_block_number, mint_block_hash, mint_transaction_hash)
    SELECT e.id, 1, brand_id, u.wallet, ltz, n, block, e.created_at, e.created_at::date, block,
           sha256(int8send(block)), sha256(int8send(-block))
      FROM (SELECT *, row_number() OVER (ORDER BY created_at, id) - 1 AS n FROM events) AS e
      JOIN users u ON u.id = e.user_id
     CROSS JOIN LATERAL (SELECT n / {MINTS} + 1 AS block) AS mined
    """,
    f"""
    INSERT INTO mints (block_hash, log_index, block_number, transaction_hash, recipient, reference,
                       amount)
    SELECT mint_block_hash, seq % {MINTS} * 2 + 1, mint_block_number, mint_transaction_hash, wallet,
           uuid_send(id) || '\\x0100000000000000'::bytea || int8send(seq), ltz * 10::numeric ^ 18
      FROM rewards
     ORDER BY seq
    """,
    f"""
    INSERT INTO transfers (block_hash, log_index, block_number, transaction_hash, sender, recipient,
                           amount)
    SELECT mint_block_hash, seq % {MINTS} * 2, mint_block_number, mint_transaction_hash,
           decode(repeat('00', 20), 'hex'), wallet, ltz * 10::numeric ^ 18
      FROM rewards
     ORDER BY seq
    """,
    "INSERT INTO balances SELECT recipient, sum(amount) FROM transfers GROUP BY 1",
    """
    INSERT INTO webhooks (brand_id, kind, subject, transaction_hash, state, attempts, created_at,
                          delivered_at)
    SELECT brand_id, 'ltz_distributed', id, mint_transaction_hash, 'delivered', 1, created_at,
           created_at
      FROM rewards
    """,
    """
    INSERT INTO earnings (brand_id, wallet, period, starts, ltz, rewards, bought)
    SELECT brand_id, wallet, period,
           CASE period WHEN 'all' THEN '1970-01-01'
                       ELSE date_trunc(period, earned_on::timestamp)::date END,
           sum(ltz), count(*), 0
      FROM rewards
     CROSS JOIN unnest(ARRAY['week', 'month', 'all']) AS each (period)
     GROUP BY 1, 2, 3, 4
    """,
)
_CHAIN: Final = """
INSERT INTO chains (chain_id, genesis_hash, ltz, first_block, epoch, cursor_number, cursor_hash,
                    head_number, final_number)
VALUES (31337, sha256('genesis'), decode(repeat('17', 20), 'hex'), 1, 1, $1::bigint,
        sha256(int8send($1::bigint)), $1::bigint, $1::bigint)
"""
