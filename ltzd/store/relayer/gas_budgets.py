"""The gas that relays cost by UTC day, for each identity and for everybody.

A relay's row holds the part of it that is counted. A writer that changes this part counts the
difference in the same transaction, so a crash leaves rows and sums in agreement. The day is the
database's. A relay counts on the day of its admission, even if it is mined on the next.
"""

from collections.abc import Sequence
from datetime import UTC, date
from decimal import Decimal

import msgspec

from ltzd.rules.relayer.gas_budgets import GasBudgets, GasSpent, is_far_from_spent
from ltzd.store.database import Connection
from ltzd.store.retention import batches
from ltzd.values import Address, hex_of

EVERYBODY = ""


class GasChange(msgspec.Struct, frozen=True):
    """`identity` is None for gas that counts only for everybody."""

    day: date
    identity: str | None
    wei: int


async def lock_identities(connection: Connection, identities: Sequence[str]) -> None:
    """Serialise admissions of relays of these identities until the transaction ends; in one
    order.
    """
    await connection.execute(
        """
        SELECT pg_advisory_xact_lock(hashtextextended('gas of ' || identity, 0))
          FROM (SELECT DISTINCT identity FROM unnest($1::text[]) AS given (identity)
                 ORDER BY identity) AS ordered
        """,
        list(identities),
    )


async def spent(connection: Connection, identities: Sequence[str]) -> GasSpent:
    """The gas of these identities and of everybody today."""
    rows = await connection.fetch(
        """
        SELECT account.identity, coalesce(sum(g.wei), 0) AS wei, now() AS at
          FROM unnest($1::text[]) AS account (identity)
          LEFT JOIN gas_spent g
            ON g.identity = account.identity AND g.day = (now() AT TIME ZONE 'UTC')::date
         GROUP BY account.identity
        """,
        [EVERYBODY, *dict.fromkeys(identities)],
    )
    by_identity = {row["identity"]: int(row["wei"]) for row in rows}
    total_wei = by_identity.pop(EVERYBODY)
    return GasSpent(rows[0]["at"].astimezone(UTC), by_identity, total_wei)


async def spent_for(
    connection: Connection, budgets: GasBudgets, identities: Sequence[str], asked_wei: int
) -> GasSpent:
    """As `spent`, before a write of `asked_wei`.

    While little is left of the total, its writers are serialised until they commit, so that they do
    not exceed it together.
    """
    current = await spent(connection, identities)
    if is_far_from_spent(budgets, current, asked_wei):
        return current
    await connection.execute(
        """
        INSERT INTO gas_spent AS g (day, identity, slot, wei)
        VALUES ((now() AT TIME ZONE 'UTC')::date, '', 0, 0)
            ON CONFLICT (day, identity, slot) DO UPDATE SET wei = g.wei
        """
    )
    return await spent(connection, identities)


ADD_CHANGES = """
INSERT INTO gas_spent AS g (day, identity, slot, wei)
SELECT day, identity, slot, sum(wei)
  FROM (SELECT day, '' AS identity, 1 + pg_backend_pid() % 15 AS slot, wei FROM changes
         UNION ALL
        SELECT day, identity, 0, wei FROM changes WHERE identity IS NOT NULL) AS change
 WHERE wei <> 0
 GROUP BY 1, 2, 3
 ORDER BY 1, 2, 3
    ON CONFLICT (day, identity, slot) DO UPDATE SET wei = g.wei + excluded.wei
"""
"""Adds the rows of the common table expression `changes (day, identity, wei)`.

A statement that changes relays' gas has it as its last part, so that both are written together.
Each connection has a slot of its own in everybody's sum; rows are locked in one order.
"""


async def count(connection: Connection, changes: Sequence[GasChange]) -> None:
    """Add the changes, in the transaction that made them."""
    if not any(change.wei for change in changes):
        return
    await connection.execute(
        f"""
        WITH changes AS (
          SELECT * FROM unnest($1::date[], $2::text[], $3::numeric[]) AS given (day, identity, wei)
        )
        {ADD_CHANGES}
        """,  # noqa: S608 - only constants
        [change.day for change in changes],
        [change.identity for change in changes],
        [Decimal(change.wei) for change in changes],
    )


async def identity_of(connection: Connection, wallet: Address) -> str:
    """The subject whose tokens name the wallet, as far as ltzd knows it, else the wallet itself.

    Of a wallet that ltzd keeps it is the log-in of its owner, of another that of the user for whom
    the identity provider made it.
    """
    subject: str | None = await connection.fetchval(
        """
        SELECT coalesce(
                 (SELECT substr(login.name, strpos(login.name, ' ') + 1)
                    FROM custodial_users u
                    JOIN custodial_accounts owned ON owned.kind = 'owned' AND owned.name = u.subject
                    JOIN custodial_accounts login
                      ON login.kind = 'subject' AND login.subject = owned.subject
                   WHERE u.wallet = $1
                   ORDER BY login.name
                   LIMIT 1),
                 (SELECT identity_subject
                    FROM users
                   WHERE wallet = $1
                   ORDER BY proven_by IS NULL, created_at, id
                   LIMIT 1))
        """,
        wallet,
    )
    return subject or hex_of(wallet)


async def delete_expired(connection: Connection) -> None:
    """Delete the sums of days that no relay in flight can change any more."""
    await batches.run(
        connection,
        """
        DELETE FROM gas_spent
         WHERE (day, identity, slot) IN (SELECT day, identity, slot
                                           FROM gas_spent
                                          WHERE day < (now() AT TIME ZONE 'UTC')::date - 7
                                          ORDER BY day
                                          LIMIT $1
                                            FOR UPDATE SKIP LOCKED)
        """,
    )
