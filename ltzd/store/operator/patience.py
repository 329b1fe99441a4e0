"""Reads which brands let their rewards wait for cheaper blocks, and how long theirs have waited."""

from collections.abc import Collection

from ltzd.store.brands.patience import PATIENCE_SECONDS
from ltzd.store.database import Connection
from ltzd.values import Address

_MOST_READ = 10
"""Rewards at the head of a brand's queue: almost always the first is the oldest."""


async def patient_brands(connection: Connection) -> dict[Address, int]:
    """The seconds for which brands let their rewards wait; reads every brand's configuration."""
    rows = await connection.fetch(
        f"""
        SELECT id, seconds
          FROM (SELECT id, {PATIENCE_SECONDS} AS seconds FROM brands) AS brand
         WHERE seconds > 0
        """  # noqa: S608
    )
    return {Address(row[0]): row[1] for row in rows}


async def oldest_seconds(
    connection: Connection, brands: Collection[Address]
) -> dict[Address, float]:
    """The age of each brand's oldest queued reward; a brand without one is missing.

    The age is negative if the database's clock was set back, and only then: it ends at a time read
    after the rows, as now() may be earlier than a row's commit. Payments are left out: they wait
    for no fees.
    """
    rows = await connection.fetch(
        """
        SELECT brand.id, waiting.seconds
          FROM unnest($1::bytea[]) AS brand (id)
         CROSS JOIN LATERAL (
               SELECT extract(epoch FROM clock_timestamp() - min(head.created_at))::float8
                        AS seconds
                 FROM (SELECT created_at
                         FROM rewards r
                        WHERE r.brand_id BETWEEN brand.id AND brand.id
                          AND num_nulls(r.transaction_id, r.failed_at) = 2
                          AND r.mint_block_hash IS NULL
                          AND NOT r.above_limit AND r.kind <> 2
                        ORDER BY r.brand_id, r.position
                        LIMIT $2) AS head) AS waiting
         WHERE waiting.seconds IS NOT NULL
        """,
        list(brands),
        _MOST_READ,
    )
    return {Address(row[0]): row[1] for row in rows}


async def count_waiting(connection: Connection, at_most: int) -> int:
    """Queued rewards whose brand lets them wait, and whose wait is not over; up to `at_most`."""
    count: int = await connection.fetchval(
        f"""
        SELECT count(*)
          FROM (SELECT
                  FROM (SELECT id, {PATIENCE_SECONDS} AS seconds
                          FROM brands
                         WHERE paused_at IS NULL) AS brand
                 CROSS JOIN LATERAL (
                       SELECT
                         FROM rewards r
                        WHERE r.brand_id BETWEEN brand.id AND brand.id
                          AND num_nulls(r.transaction_id, r.failed_at) = 2
                          AND NOT r.above_limit AND r.kind <> 2 AND r.mint_block_hash IS NULL
                          AND r.created_at > now() - make_interval(secs => brand.seconds)
                        LIMIT $1) AS waiting
                 WHERE brand.seconds > 0
                 LIMIT $1) AS counted
        """,  # noqa: S608
        at_most,
    )
    return count
