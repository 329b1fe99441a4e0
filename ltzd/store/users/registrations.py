"""New users of requests that are not events, and the brand's count of new wallets an hour.

The statement that inserts an event also inserts the event's user (`event_handler/events.py`).
"""

from datetime import datetime

import asyncpg

from ltzd.rules.event_handler.brand_limits import Quota, QuotaKind
from ltzd.store.database import Connection
from ltzd.store.users.users import User
from ltzd.values import Address


async def wallets_this_hour(connection: Connection, brand_id: Address) -> tuple[int, datetime]:
    """The brand's number of new wallets in this hour of UTC, and the database's time."""
    row = await connection.fetchrow(
        """
        SELECT coalesce((SELECT used FROM brand_usage
                          WHERE brand_id = $1 AND kind = $2
                            AND window_start = date_trunc('hour', now(), 'UTC')), 0) AS used,
               now() AS at
        """,
        brand_id,
        QuotaKind.WALLETS_PER_HOUR.value,
    )
    return row["used"], row["at"]


async def insert_user(
    connection: Connection, user: User, brand_id: Address, quota: Quota | None
) -> bool:
    """Insert a user unless the user exists, and count a new user towards the brand's quota.

    Returns False, and writes nothing, if concurrent writers have exhausted the quota.
    """
    try:
        await connection.execute(
            _INSERT_USER,
            user.id,
            user.email_key,
            user.identity_subject,
            user.wallet,
            brand_id,
            None if quota is None else quota.start,
            None if quota is None else quota.maximum,
            QuotaKind.WALLETS_PER_HOUR.value,
        )
    except asyncpg.CheckViolationError as error:
        if error.constraint_name != "usage_within_maximum":
            raise
        return False
    return True


_INSERT_USER = """
WITH inserted AS (
  INSERT INTO users (id, email_key, identity_subject, wallet)
  VALUES ($1, $2, $3, $4)
      ON CONFLICT DO NOTHING
  RETURNING id
)
INSERT INTO brand_usage (brand_id, kind, window_start, used, maximum)
SELECT $5, $8, $6, 1, $7 FROM inserted WHERE $7::bigint IS NOT NULL
    ON CONFLICT (brand_id, kind, window_start) DO UPDATE
   SET used = brand_usage.used + 1, maximum = excluded.maximum
"""
