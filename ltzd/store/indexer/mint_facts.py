"""Facts of the chain and what is derived from them: balances, and how rewards learn of their mint.

Facts go in and come out only together with the cursor (`chains.move_cursor`), in one database
transaction of the indexer. Amounts are LTZ's smallest unit. LTZ's facts are here; those of the
other contracts have modules of their own, and `undo` covers what all of them share.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

from ltzd.rules.indexer.mint_facts import Fact, RewardMinted, Transfer
from ltzd.store.database import Connection
from ltzd.store.site_plugin import leaderboard_totals as standings
from ltzd.store.wakeups import WEBHOOKS
from ltzd.values import LTZ, ZERO_ADDRESS, Address

TABLES: Final = ("transfers", "mints", "balances")


async def insert(connection: Connection, facts: Sequence[Fact]) -> int:
    """Writes facts; returns how many of them are mints that match no reward."""
    await insert_transfers(connection, [fact for fact in facts if isinstance(fact, Transfer)])
    mints = [fact for fact in facts if isinstance(fact, RewardMinted)]
    return len(mints) - await insert_mints(connection, mints)


async def insert_transfers(connection: Connection, those: Sequence[Transfer]) -> None:
    """Write transfers and move the balances by them."""
    if not those:
        return
    await connection.copy_records_to_table(
        "transfers",
        columns=[
            "block_hash",
            "log_index",
            "block_number",
            "transaction_hash",
            "sender",
            "recipient",
            "amount",
        ],
        records=[
            (
                row.position.block_hash,
                row.position.log_index,
                row.position.block_number,
                row.position.transaction_hash,
                row.sender,
                row.recipient,
                Decimal(row.amount),
            )
            for row in those
        ],
    )
    await _move_balances(connection, ((row.sender, row.recipient, row.amount) for row in those))


async def insert_mints(connection: Connection, those: Sequence[RewardMinted]) -> int:
    """Write mints and tell their rewards; answers how many matched a reward of ours exactly.

    Those that did not know of one count as earned from here on. What a brand is to hear of is
    written with it, once for each reward: a reorg's second mint finds the row of the first, and an
    index that is read again tells final rewards what they know.
    """
    if not those:
        return 0
    await connection.copy_records_to_table(
        "mints",
        columns=[
            "block_hash",
            "log_index",
            "block_number",
            "transaction_hash",
            "recipient",
            "reference",
            "amount",
        ],
        records=[
            (
                row.position.block_hash,
                row.position.log_index,
                row.position.block_number,
                row.position.transaction_hash,
                row.recipient,
                row.reference,
                Decimal(row.amount),
            )
            for row in those
        ],
    )
    told = await connection.fetchrow(
        """
        WITH told AS (
          UPDATE rewards
             SET mint_block_number = fact.block_number,
                 mint_block_hash = fact.block_hash,
                 mint_transaction_hash = fact.transaction_hash
            FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bytea[], $5::bigint[],
                        $6::bigint[], $7::bytea[], $8::bytea[])
                 AS fact (id, kind, seq, wallet, ltz, block_number, block_hash, transaction_hash)
           WHERE rewards.id = fact.id AND rewards.kind = fact.kind AND rewards.seq = fact.seq
             AND rewards.wallet = fact.wallet AND rewards.ltz = fact.ltz
       RETURNING rewards.id, rewards.kind, rewards.brand_id,
                 -- As it was before this statement.
                 (SELECT mint_block_hash IS NULL FROM rewards was WHERE was.id = rewards.id)
                   AS is_news
        ), news AS (
          -- Brand by brand, so that each one's file is looked into once.
          SELECT brand_id, array_agg(id) AS rewards
            FROM told
           WHERE kind <> 2 AND is_news  -- who bought LTZ was told by the payment
           GROUP BY brand_id
        ), written AS (
          INSERT INTO webhooks (brand_id, kind, subject)
          SELECT news.brand_id, 'ltz_distributed', unnest(news.rewards)
            FROM news
            JOIN brands ON brands.id = news.brand_id
           WHERE brands.configuration ->> 'webhook_url' IS NOT NULL AND brands.disabled_at IS NULL
              ON CONFLICT (subject, kind) WHERE NOT revoked DO NOTHING
       RETURNING 1)
        SELECT (SELECT count(*) FROM told) AS matched,
               ARRAY(SELECT id FROM told WHERE is_news) AS news,
               (SELECT pg_notify($9, '') WHERE EXISTS (SELECT FROM written))
        """,
        [UUID(bytes=row.reference[:16]) for row in those],
        # With other padding than ours (values.reward_reference) it is nobody's reward either.
        [row.reference[16] if not any(row.reference[17:24]) else -1 for row in those],
        [int.from_bytes(row.reference[24:], "big", signed=True) for row in those],
        [row.recipient for row in those],
        # An amount that is not whole LTZ is nobody's reward.
        [
            row.amount // LTZ if row.amount % LTZ == 0 and row.amount // LTZ < 2**63 else -1
            for row in those
        ],
        [row.position.block_number for row in those],
        [row.position.block_hash for row in those],
        [row.position.transaction_hash for row in those],
        WEBHOOKS,
    )
    await standings.add(connection, told["news"])
    matched: int = told["matched"]
    return matched


async def undo_above(connection: Connection, fork: int) -> None:
    """Deletes the transfers and mints above block `fork`, and what is derived from them."""
    gone = await connection.fetch(
        "DELETE FROM transfers WHERE block_number > $1 RETURNING sender, recipient, amount", fork
    )
    await _move_balances(
        connection, ((row["recipient"], row["sender"], int(row["amount"])) for row in gone)
    )
    await undo_mints_above(connection, fork)


async def undo_mints_above(connection: Connection, fork: int) -> None:
    unminted = await connection.fetch(
        """
        WITH gone AS (
          DELETE FROM mints
           WHERE block_number > $1
       RETURNING encode(substring(reference FOR 16), 'hex')::uuid AS reward, block_hash
        )
        UPDATE rewards
           SET mint_block_number = NULL, mint_block_hash = NULL, mint_transaction_hash = NULL
          FROM gone
         WHERE rewards.id = gone.reward AND rewards.mint_block_hash = gone.block_hash
     RETURNING rewards.id
        """,
        fork,
    )
    await standings.subtract(connection, [row["id"] for row in unminted])


async def balance(connection: Connection, wallet: Address) -> int:
    """LTZ's smallest units, as of the indexed block."""
    amount: Decimal | None = await connection.fetchval(
        "SELECT amount FROM balances WHERE wallet = $1", wallet
    )
    return int(amount or 0)


async def _move_balances(
    connection: Connection, moves: Iterable[tuple[Address, Address, int]]
) -> None:
    """Apply transfers (from, to, amount) to the balances, each wallet once, in one order."""
    deltas: defaultdict[Address, int] = defaultdict(int)
    for sender, recipient, amount in moves:
        deltas[sender] -= amount
        deltas[recipient] += amount
    deltas.pop(ZERO_ADDRESS, None)
    changed = sorted((wallet, delta) for wallet, delta in deltas.items() if delta)
    # Two statements: a new row's CHECK would see a bare negative delta of an upsert.
    await connection.execute(
        """
        INSERT INTO balances (wallet, amount)
        SELECT wallet, 0 FROM unnest($1::bytea[]) AS new (wallet)
            ON CONFLICT (wallet) DO NOTHING
        """,
        [wallet for wallet, delta in changed if delta > 0],
    )
    await connection.execute(
        """
        UPDATE balances
           SET amount = balances.amount + moved.delta
          FROM unnest($1::bytea[], $2::numeric[]) AS moved (wallet, delta)
         WHERE balances.wallet = moved.wallet
        """,
        [wallet for wallet, _ in changed],
        [Decimal(delta) for _, delta in changed],
    )
