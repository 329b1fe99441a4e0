"""LTZ's facts and what is derived from them: balances, and the mints recorded on rewards.

Facts are inserted and undone only in the database transaction that moves the cursor
(`chains.move_cursor`). Amounts are in LTZ's smallest unit. The other contracts have modules of
their own, and `undo` covers what all contracts share.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

import asyncpg

from ltzd.errors import ImpossibleFact
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import Fact, RewardMinted, Transfer
from ltzd.store.database import Connection
from ltzd.store.indexer import unknown_payments
from ltzd.store.indexer.derived_rows import DerivedTable
from ltzd.store.indexer.fact_rows import Corrections, FactTable, copy_facts, exchange
from ltzd.store.indexer.impossible import refused_as_impossible
from ltzd.store.site_plugin import leaderboard_totals
from ltzd.store.wakeups import WEBHOOKS
from ltzd.values import LTZ, ZERO_ADDRESS, Address, Hash32, Reference

TABLES: Final = ("transfers", "mints", "balances")
TRANSFERS: Final = FactTable(
    "transfers",
    (Transfer,),
    ("sender", "recipient", "amount"),
    lambda fact: (fact.sender, fact.recipient, Decimal(fact.amount)),
)
MINTS: Final = FactTable(
    "mints",
    (RewardMinted,),
    ("recipient", "reference", "amount"),
    lambda fact: (fact.recipient, fact.reference, Decimal(fact.amount)),
)
FACT_TABLES: Final = (TRANSFERS, MINTS)

_SUM_SECONDS = 3600.0
_SUMS = """
SELECT wallet, sum(amount) AS amount
  FROM (SELECT recipient AS wallet, amount FROM transfers
         UNION ALL
        SELECT sender, -amount FROM transfers) AS moves
 WHERE wallet <> decode(repeat('00', 20), 'hex')
 GROUP BY wallet
HAVING sum(amount) <> 0
"""


def of_row(row: asyncpg.Record) -> RewardMinted:
    """The mint of a row of `mints`."""
    return RewardMinted(
        LogPosition(
            block_number=row["block_number"],
            block_hash=Hash32(row["block_hash"]),
            log_index=row["log_index"],
            transaction_hash=Hash32(row["transaction_hash"]),
        ),
        Address(row["recipient"]),
        Reference(row["reference"]),
        int(row["amount"]),
    )


async def insert(connection: Connection, facts: Sequence[Fact]) -> int:
    """Write facts; returns how many of them are mints that match no reward."""
    await insert_transfers(connection, [fact for fact in facts if isinstance(fact, Transfer)])
    mints = [fact for fact in facts if isinstance(fact, RewardMinted)]
    return len(mints) - await insert_mints(connection, mints)


async def insert_transfers(connection: Connection, facts: Sequence[Transfer]) -> None:
    """Insert transfers and apply them to the balances."""
    if not facts:
        return
    await copy_facts(connection, TRANSFERS, facts)
    await _move_balances(connection, ((row.sender, row.recipient, row.amount) for row in facts))


async def insert_mints(connection: Connection, facts: Sequence[RewardMinted]) -> int:
    """Insert mints and record them on their rewards; returns how many match a reward exactly."""
    if not facts:
        return 0
    await copy_facts(connection, MINTS, facts)
    return await _record_or_note(connection, facts)


async def _record_or_note(connection: Connection, facts: Sequence[RewardMinted]) -> int:
    """As `record_on_rewards`, for mints whose rewards may be unknown."""
    matched = await record_on_rewards(connection, facts)
    if matched < len(facts):
        await unknown_payments.note(connection, facts)
    return matched


async def record_on_rewards(connection: Connection, facts: Sequence[RewardMinted]) -> int:
    """Mark the rewards of mints that are in the index as minted; returns how many match exactly.

    Rewards that had no mint yet count as earned from here on, and their brands' webhooks are
    inserted with them. A second mint after a reorg finds the webhook of the first one, so each
    reward is announced once. When the index is rebuilt, rewards keep their final mints.

    A queued reward is also marked by its mint under another seq, and takes this seq if no other
    reward has it: the commit that assigned the seq was lost with a PostgreSQL server, and the
    transaction was mined all the same.
    """
    row = await connection.fetchrow(
        _RECORD,
        [UUID(bytes=row.reference[:16]) for row in facts],
        # Other padding (values.reward_reference) belongs to no reward: -1 is no kind.
        [row.reference[16] if not any(row.reference[17:24]) else -1 for row in facts],
        [int.from_bytes(row.reference[24:], "big", signed=True) for row in facts],
        [row.recipient for row in facts],
        # No reward has an amount that is not whole LTZ.
        [
            row.amount // LTZ if row.amount % LTZ == 0 and row.amount // LTZ < 2**63 else -1
            for row in facts
        ],
        [row.position.block_number for row in facts],
        [row.position.block_hash for row in facts],
        [row.position.transaction_hash for row in facts],
        WEBHOOKS,
    )
    leaderboard_totals.check_moved(row["has_moved_all"])
    matched: int = row["matched"]
    return matched


# The earnings move in the same statement: it has just read and written each reward's row.
_RECORD = f"""
WITH minted AS (
  UPDATE rewards
     SET seq = CASE WHEN rewards.seq = fact.seq OR fact.seq < 0
                      OR EXISTS (SELECT FROM rewards other WHERE other.seq = fact.seq)
                    THEN rewards.seq ELSE fact.seq END,
         mint_block_number = fact.block_number,
         mint_block_hash = fact.block_hash,
         mint_transaction_hash = fact.transaction_hash
    FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bytea[], $5::bigint[],
                $6::bigint[], $7::bytea[], $8::bytea[])
         AS fact (id, kind, seq, wallet, ltz, block_number, block_hash, transaction_hash)
   WHERE rewards.id = fact.id AND rewards.kind = fact.kind
     AND (rewards.seq = fact.seq
          OR rewards.transaction_id IS NULL AND rewards.mint_block_hash IS NULL)
     AND rewards.wallet = fact.wallet AND rewards.ltz = fact.ltz
RETURNING rewards.id, rewards.kind, rewards.brand_id, rewards.wallet, rewards.ltz,
         rewards.earned_on,
         -- The value before this statement.
         (SELECT mint_block_hash IS NULL FROM rewards was WHERE was.id = rewards.id) AS is_new
), announced AS (
  -- Grouped by brand, so that each configuration is read once.
  SELECT brand_id, array_agg(id) AS rewards
    FROM minted
   WHERE kind <> 2 AND is_new  -- a buyer was notified by the payment
   GROUP BY brand_id
), written AS (
  INSERT INTO webhooks (brand_id, kind, subject)
  SELECT announced.brand_id, 'ltz_distributed', unnest(announced.rewards)
    FROM announced
    JOIN brands ON brands.id = announced.brand_id
   WHERE brands.configuration ->> 'webhook_url' IS NOT NULL AND brands.disabled_at IS NULL
      ON CONFLICT (subject, kind) WHERE NOT revoked DO NOTHING
RETURNING 1
), turned AS (
  SELECT brand_id, kind, wallet, ltz, earned_on, 1 AS sign FROM minted WHERE is_new
), {leaderboard_totals.MOVE}
SELECT (SELECT count(*) FROM minted) AS matched,
       {leaderboard_totals.HAS_MOVED_ALL} AS has_moved_all,
       (SELECT pg_notify($9, '') WHERE EXISTS (SELECT FROM written))
"""  # noqa: S608


async def derive(connection: Connection, first: int, last: int) -> None:
    """Apply the transfers of the blocks first…last, which were copied here, to the balances."""
    rows = await connection.fetch(
        "SELECT sender, recipient, amount FROM transfers WHERE block_number BETWEEN $1 AND $2",
        first,
        last,
    )
    await _move_balances(
        connection, ((row["sender"], row["recipient"], int(row["amount"])) for row in rows)
    )


async def undo_above(connection: Connection, fork: int) -> None:
    """Delete the transfers and mints above block `fork`, and what is derived from them."""
    gone = await connection.fetch(
        "DELETE FROM transfers WHERE block_number > $1 RETURNING sender, recipient, amount", fork
    )
    await _move_balances(
        connection, ((row["recipient"], row["sender"], int(row["amount"])) for row in gone)
    )
    await undo_mints_above(connection, fork)


async def undo_mints_above(connection: Connection, fork: int) -> None:
    """Delete the mints above block `fork`, and clear them on their rewards."""
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
    await leaderboard_totals.subtract(connection, [row["id"] for row in unminted])


async def correct(connection: Connection, corrections: Corrections) -> None:
    """Correct facts anywhere in the history, the balances, and the mints recorded on rewards.

    Raises ImpossibleFact if a balance falls below zero by all corrections together.
    """
    moved = await exchange(connection, TRANSFERS, corrections)
    await _move_balances(
        connection,
        [
            *((row["recipient"], row["sender"], int(row["amount"])) for row in moved.gone),
            *((row["sender"], row["recipient"], int(row["amount"])) for row in moved.new),
        ],
    )
    minted = await exchange(connection, MINTS, corrections)
    unminted = await connection.fetch(
        """
        UPDATE rewards
           SET mint_block_number = NULL, mint_block_hash = NULL, mint_transaction_hash = NULL
          FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS gone (reward, block_hash, hash)
         WHERE rewards.id = gone.reward AND rewards.mint_block_hash = gone.block_hash
           AND rewards.mint_transaction_hash = gone.hash
     RETURNING rewards.id
        """,
        [UUID(bytes=row["reference"][:16]) for row in minted.gone],
        [row["block_hash"] for row in minted.gone],
        [row["transaction_hash"] for row in minted.gone],
    )
    await leaderboard_totals.subtract(connection, [row["id"] for row in unminted])
    if minted.facts:
        await _record_or_note(connection, minted.facts)


async def rebuild_balances(connection: Connection, wallets: Sequence[Address]) -> None:
    """Add up the transfers of these wallets, which reads all transfers.

    Raises ImpossibleFact if one has sent more than it has received.
    """
    await connection.execute("DELETE FROM balances WHERE wallet = ANY($1::bytea[])", wallets)
    with refused_as_impossible():
        await connection.execute(
            f"""
            INSERT INTO balances (wallet, amount)
            SELECT wallet, amount
              FROM ({_SUMS}) AS sums
             WHERE wallet = ANY($1::bytea[])
            """,  # noqa: S608
            wallets,
            timeout=_SUM_SECONDS,
        )


async def balance(connection: Connection, wallet: Address) -> int:
    """LTZ's smallest units, as of the indexed block."""
    amount: Decimal | None = await connection.fetchval(
        "SELECT amount FROM balances WHERE wallet = $1", wallet
    )
    return int(amount or 0)


async def _move_balances(
    connection: Connection, moves: Iterable[tuple[Address, Address, int]]
) -> None:
    """Apply transfers (from, to, amount) to the balances, each wallet once, in one order.

    As `move_balances` does.
    """
    deltas: defaultdict[bytes, int] = defaultdict(int)
    for sender, recipient, amount in moves:
        deltas[sender] -= amount
        deltas[recipient] += amount
    await move_balances(connection, deltas)


async def move_balances(connection: Connection, deltas: Mapping[bytes, int]) -> None:
    """Change the balances of wallets, each once, in one order. A wallet without LTZ has no row.

    The caller has locked the chain's row, which keeps out other writers of balances. Raises
    ImpossibleFact if a wallet spends although no transfer to it is known. PostgreSQL refuses a
    balance below zero.
    """
    changed = sorted(
        (wallet, delta) for wallet, delta in deltas.items() if delta and wallet != ZERO_ADDRESS
    )
    received = [(wallet, delta) for wallet, delta in changed if delta > 0]
    spent = [(wallet, delta) for wallet, delta in changed if delta < 0]
    # Numbers travel as text: asyncpg needs ten times as long for a Decimal.
    if received:
        await connection.execute(
            """
            INSERT INTO balances AS balance (wallet, amount)
            SELECT wallet, delta::numeric
              FROM unnest($1::bytea[], $2::text[]) AS moved (wallet, delta)
                ON CONFLICT (wallet) DO UPDATE
               SET amount = balance.amount + excluded.amount
            """,
            [wallet for wallet, _ in received],
            [str(delta) for _, delta in received],
        )
    if not spent:
        return
    # Another statement: the CHECK of an upsert's new row would see a negative delta alone.
    moved = await connection.fetchrow(
        """
        WITH moved AS (
          UPDATE balances
             SET amount = balances.amount + moved.delta::numeric
            FROM unnest($1::bytea[], $2::text[]) AS moved (wallet, delta)
           WHERE balances.wallet = moved.wallet
       RETURNING balances.wallet, balances.amount
        )
        SELECT count(*) AS wallets, array_agg(wallet) FILTER (WHERE amount = 0) AS emptied
          FROM moved
        """,
        [wallet for wallet, _ in spent],
        [str(delta) for _, delta in spent],
    )
    if moved["wallets"] != len(spent):
        raise ImpossibleFact("A wallet without a balance spends LTZ")
    if moved["emptied"]:
        await connection.execute(
            "DELETE FROM balances WHERE wallet = ANY($1::bytea[])", moved["emptied"]
        )


DERIVED: Final = (
    DerivedTable(
        "balances",
        f"""
        SELECT wallet
          FROM ({_SUMS}) AS sums
          FULL JOIN balances b USING (wallet)
         WHERE coalesce(sums.amount, 0) <> coalesce(b.amount, 0)
        """,  # noqa: S608
        rebuild_balances,
    ),
)
