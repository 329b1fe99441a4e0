"""BusinessEscrow's facts, and the deals derived from them. Amounts are in LTZ's smallest unit.

Facts are inserted and undone only in the database transaction that moves the cursor. A deal has at
most two facts: the lock and the end.
"""

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Final

from ltzd.rules.indexer.contract_facts import (
    DealLocked,
    DealRefunded,
    DealReleased,
    DealSplit,
    EscrowFact,
)
from ltzd.store.database import Connection
from ltzd.store.indexer.derived_rows import DerivedTable
from ltzd.store.indexer.fact_rows import (
    Corrections,
    FactRow,
    FactTable,
    copy_facts,
    exchange,
)
from ltzd.values import Address

TABLES: Final = ("deal_facts", "deals")


async def insert(connection: Connection, facts: Sequence[EscrowFact]) -> None:
    """Write new facts, and rebuild their deals."""
    await _settle(connection, await copy_facts(connection, DEALS, facts))


async def undo_above(connection: Connection, fork: int) -> None:
    """Delete every fact above block `fork` and rebuild its deal."""
    gone = await connection.fetch(
        "DELETE FROM deal_facts WHERE block_number > $1 RETURNING deal_id", fork
    )
    await _settle(connection, gone)


async def correct(connection: Connection, corrections: Corrections) -> None:
    """Correct facts anywhere in the history, and rebuild their deals."""
    changed = (await exchange(connection, DEALS, corrections)).rows
    await rebuild_deals(connection, [row["deal_id"] for row in changed])


async def rebuild_deals(connection: Connection, ids: Sequence[bytes]) -> None:
    """Rebuild deals from their facts."""
    await connection.execute("DELETE FROM deals WHERE deal_id = ANY($1::bytea[])", ids)
    await _settle(connection, [{"deal_id": id_} for id_ in ids])


async def read_parties(connection: Connection, deal_id: bytes) -> tuple[Address, Address] | None:
    """The user and the business of a deal, or None if it is not indexed."""
    row = await connection.fetchrow(
        "SELECT user_address, business FROM deals WHERE deal_id = $1", deal_id
    )
    return None if row is None else (Address(row["user_address"]), Address(row["business"]))


async def derive(connection: Connection, first: int, last: int) -> None:
    """Rebuild the deals of the facts of the blocks first…last, which were copied here."""
    rows = await connection.fetch(
        "SELECT deal_id FROM deal_facts WHERE block_number BETWEEN $1 AND $2", first, last
    )
    await _settle(connection, rows)


def _columns(fact: EscrowFact) -> tuple[str, Decimal, Decimal, Decimal, int | None, Address | None]:
    """The state, the locked amount, the user's and the business's shares, when the deal may be
    reclaimed, and who decided.
    """
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


async def _settle(connection: Connection, rows: Collection[FactRow]) -> None:
    """Rebuild the deals of these rows from the facts that remain."""
    if not rows:
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
        sorted({row["deal_id"] for row in rows}),
    )


DEALS: Final = FactTable(
    "deal_facts",
    (DealLocked, DealReleased, DealRefunded, DealSplit),
    (
        "deal_id",
        "user_address",
        "business",
        "state",
        "locked",
        "to_user",
        "to_business",
        "refund_after",
        "decided_by",
    ),
    lambda fact: (fact.deal_id, fact.user, fact.business, *_columns(fact)),
)
FACT_TABLES: Final = (DEALS,)

DERIVED: Final = (
    DerivedTable(
        "deals",
        """
        SELECT deal_id
          FROM (SELECT DISTINCT ON (deal_id) *
                  FROM deal_facts
                 WHERE state = 'locked'
                 ORDER BY deal_id) AS f
          FULL JOIN deals d USING (deal_id)
          LEFT JOIN (SELECT DISTINCT ON (deal_id) deal_id, state, to_user, to_business
                       FROM deal_facts
                      ORDER BY deal_id, block_number DESC, log_index DESC) AS newest
         USING (deal_id)
         WHERE (f.user_address, f.business, f.locked, f.refund_after, newest.state, newest.to_user,
                newest.to_business)
               IS DISTINCT FROM
               (d.user_address, d.business, d.amount, d.refund_after, d.state, d.to_user,
                d.to_business)
        """,
        rebuild_deals,
    ),
)
