"""BusinessEscrow's facts, and the deals that are settled from them. Amounts in LTZ's smallest unit.

They come and go only together with the cursor, as `facts` says. A deal has at most two facts: it
was locked, and it ended.
"""

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Final

import asyncpg

from ltzd.rules.indexer.contract_facts import (
    DealLocked,
    DealRefunded,
    DealReleased,
    DealSplit,
    EscrowFact,
)
from ltzd.store.database import Connection
from ltzd.store.indexer.fact_rows import position_columns
from ltzd.values import Address

TABLES: Final = ("deal_facts", "deals")


async def insert(connection: Connection, those: Sequence[EscrowFact]) -> None:
    """Write facts, and settle the deals of those that are new."""
    if not those:
        return
    said = list(map(_said, those))
    new = await connection.fetch(
        """
        INSERT INTO deal_facts (block_hash, log_index, block_number, transaction_hash, deal_id,
                                user_address, business, state, locked, to_user, to_business,
                                refund_after, decided_by)
        SELECT * FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::bytea[], $5::bytea[],
                             $6::bytea[], $7::bytea[], $8::text[], $9::numeric[], $10::numeric[],
                             $11::numeric[], $12::bigint[], $13::bytea[])
            ON CONFLICT (block_hash, log_index) DO NOTHING
     RETURNING deal_id
        """,
        *position_columns(those),
        [one.deal_id for one in those],
        [one.user for one in those],
        [one.business for one in those],
        *map(list, zip(*said, strict=True)),
    )
    await _settle(connection, new)


async def undo_above(connection: Connection, fork: int) -> None:
    """Take back every fact above block `fork`."""
    gone = await connection.fetch(
        "DELETE FROM deal_facts WHERE block_number > $1 RETURNING deal_id", fork
    )
    await _settle(connection, gone)


def _said(fact: EscrowFact) -> tuple[str, Decimal, Decimal, Decimal, int | None, Address | None]:
    """State, what is locked, what user and business got, when it may be reclaimed, who decided."""
    nothing = Decimal(0)
    match fact:
        case DealLocked():
            return "locked", Decimal(fact.amount), nothing, nothing, fact.refund_after, None
        case DealReleased():
            return "released", nothing, nothing, Decimal(fact.amount), None, fact.by
        case DealRefunded():
            return "refunded", nothing, Decimal(fact.amount), nothing, None, fact.by
        case DealSplit():
            to_user, to_business = Decimal(fact.to_user), Decimal(fact.to_business)
            return "split", nothing, to_user, to_business, None, None


async def _settle(connection: Connection, those: Collection[asyncpg.Record]) -> None:
    """Find the deals of these rows anew from the facts that remain."""
    if not those:
        return
    await connection.execute(
        """
        WITH gone AS (
          DELETE FROM deals
           WHERE deal_id = ANY($1::bytea[])
             AND NOT EXISTS (SELECT FROM deal_facts f WHERE f.deal_id = deals.deal_id)
        )
        INSERT INTO deals (deal_id, user_address, business, amount, refund_after, state, to_user,
                           to_business, block_number)
        SELECT deal.id, locked.user_address, locked.business, locked.locked, locked.refund_after,
               newest.state, newest.to_user, newest.to_business, newest.block_number
          FROM unnest($1::bytea[]) AS deal (id)
         CROSS JOIN LATERAL (
               SELECT *
                 FROM deal_facts
                WHERE deal_id = deal.id AND state = 'locked'
                LIMIT 1) AS locked
         CROSS JOIN LATERAL (
               SELECT *
                 FROM deal_facts
                WHERE deal_id = deal.id
                ORDER BY block_number DESC, log_index DESC
                LIMIT 1) AS newest
            ON CONFLICT (deal_id) DO UPDATE
           SET state = excluded.state,
               to_user = excluded.to_user,
               to_business = excluded.to_business,
               block_number = excluded.block_number
        """,
        sorted({row["deal_id"] for row in those}),
    )
