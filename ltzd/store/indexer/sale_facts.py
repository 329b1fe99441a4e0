"""PointsSale's facts, and the items derived from them. Prices are in LTZ's smallest unit.

Facts are inserted and undone only in the database transaction that moves the cursor. An item's
settings are those of its newest fact. `sold` is moved by each purchase that is inserted or undone,
since a popular item has too many purchases to add up in every block.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from typing import Final

from ltzd.rules.indexer.contract_facts import ItemSet, Purchased, SaleFact
from ltzd.store.database import Connection
from ltzd.store.indexer.derived_rows import DerivedTable
from ltzd.store.indexer.fact_rows import (
    Corrections,
    FactRow,
    FactTable,
    copy_facts,
    exchange,
)

TABLES: Final = ("item_settings", "purchases", "items")
SETTINGS: Final = FactTable(
    "item_settings",
    (ItemSet,),
    (
        "item_id",
        "brand",
        "payout",
        "price",
        "stock",
        "max_per_order",
        "is_active",
        "burns",
        "metadata",
    ),
    lambda fact: (
        Decimal(fact.item_id),
        fact.brand,
        fact.payout,
        Decimal(fact.price),
        fact.stock,
        fact.max_per_order,
        fact.is_active,
        fact.burns,
        fact.metadata,
    ),
)
PURCHASES: Final = FactTable(
    "purchases",
    (Purchased,),
    ("buyer", "item_id", "reference", "quantity", "paid"),
    lambda fact: (
        fact.buyer,
        Decimal(fact.item_id),
        fact.reference,
        fact.quantity,
        Decimal(fact.paid),
    ),
)
FACT_TABLES: Final = (SETTINGS, PURCHASES)

_SUM_SECONDS = 600.0
"""The time limit of a sum, which reads all purchases: no index finds those of an item."""


async def insert(connection: Connection, facts: Sequence[SaleFact]) -> None:
    """Write new facts, and update their items."""
    await _settle(connection, await copy_facts(connection, SETTINGS, facts))
    bought = await copy_facts(connection, PURCHASES, facts)
    await _move_sold(connection, ((row["item_id"], row["quantity"]) for row in bought))


async def undo_above(connection: Connection, fork: int) -> None:
    """Delete every fact above block `fork`."""
    bought = await connection.fetch(
        "DELETE FROM purchases WHERE block_number > $1 RETURNING item_id, quantity", fork
    )
    await _move_sold(connection, ((row["item_id"], -row["quantity"]) for row in bought))
    settings = await connection.fetch(
        "DELETE FROM item_settings WHERE block_number > $1 RETURNING item_id", fork
    )
    await _settle(connection, settings)


async def correct(connection: Connection, corrections: Corrections) -> None:
    """Correct facts anywhere in the history, and rebuild the items from the facts that remain."""
    settings = (await exchange(connection, SETTINGS, corrections)).rows
    bought = (await exchange(connection, PURCHASES, corrections)).rows
    await rebuild_items(connection, [row["item_id"] for row in (*settings, *bought)])


async def rebuild_items(connection: Connection, items: Sequence[Decimal]) -> None:
    """Rebuild items from their facts; counts what was sold anew."""
    await connection.execute("DELETE FROM items WHERE item_id = ANY($1::numeric[])", items)
    await _settle(connection, [{"item_id": item} for item in items])
    await connection.execute(
        """
        UPDATE items
           SET sold = (SELECT coalesce(sum(quantity), 0)
                         FROM purchases
                        WHERE purchases.item_id = items.item_id)
         WHERE item_id = ANY($1::numeric[])
        """,
        items,
        timeout=_SUM_SECONDS,
    )


async def derive(connection: Connection, first: int, last: int) -> None:
    """Update the items from the facts of the blocks first…last, which were copied here."""
    settings, bought = [
        await connection.fetch(
            f"SELECT * FROM {table} WHERE block_number BETWEEN $1 AND $2",  # noqa: S608
            first,
            last,
        )
        for table in ("item_settings", "purchases")
    ]
    await _settle(connection, settings)
    await _move_sold(connection, ((row["item_id"], row["quantity"]) for row in bought))


async def _settle(connection: Connection, settings: Collection[FactRow]) -> None:
    """Rebuild the settings of these rows' items."""
    if not settings:
        return
    await connection.execute(
        """
        WITH gone AS (
          DELETE FROM items
           WHERE item_id = ANY($1::numeric[])
             AND NOT EXISTS (SELECT FROM item_settings f WHERE f.item_id = items.item_id)
        )
        INSERT INTO items (item_id, brand, payout, price, stock, sold, max_per_order, is_active,
                           burns, metadata)
        SELECT item.id, f.brand, f.payout, f.price, f.stock, 0, f.max_per_order, f.is_active,
               f.burns, f.metadata
          FROM unnest($1::numeric[]) AS item (id)
         CROSS JOIN LATERAL (
               SELECT *
                 FROM item_settings
                WHERE item_id = item.id
                ORDER BY block_number DESC, log_index DESC
                LIMIT 1) AS f
            ON CONFLICT (item_id) DO UPDATE
           SET brand = excluded.brand,
               payout = excluded.payout,
               price = excluded.price,
               stock = excluded.stock,
               max_per_order = excluded.max_per_order,
               is_active = excluded.is_active,
               burns = excluded.burns,
               metadata = excluded.metadata
        """,
        sorted({row["item_id"] for row in settings}),
    )


async def _move_sold(connection: Connection, moves: Iterable[tuple[Decimal, int]]) -> None:
    deltas: Counter[Decimal] = Counter()
    for item, quantity in moves:
        deltas[item] += quantity
    if not deltas:
        return
    await connection.execute(
        """
        UPDATE items
           SET sold = sold + moved.delta
          FROM unnest($1::numeric[], $2::bigint[]) AS moved (item_id, delta)
         WHERE items.item_id = moved.item_id
        """,
        list(deltas),
        list(deltas.values()),
    )


DERIVED: Final = (
    DerivedTable(
        "items",
        """
        SELECT item_id
          FROM (SELECT DISTINCT ON (item_id) *
                  FROM item_settings
                 ORDER BY item_id, block_number DESC, log_index DESC) AS f
          FULL JOIN items i USING (item_id)
          LEFT JOIN (SELECT item_id, sum(quantity) AS quantity
                       FROM purchases
                      GROUP BY item_id) AS bought
         USING (item_id)
         WHERE (f.brand, f.payout, f.price, f.stock, f.max_per_order, f.is_active, f.burns,
                f.metadata, coalesce(bought.quantity, 0))
               IS DISTINCT FROM
               (i.brand, i.payout, i.price, i.stock, i.max_per_order, i.is_active, i.burns,
                i.metadata, i.sold::numeric)
        """,
        rebuild_items,
    ),
)
