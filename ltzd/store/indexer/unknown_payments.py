"""Mints of payments that this database does not know: the rows were lost with a server.

The id of a payment's reward depends on its checkout session alone. When the session is reported
again, by its buyer or by the payment provider, its mint is found here and is not repeated.
"""

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from ltzd.rules.indexer.mint_facts import RewardMinted
from ltzd.store.database import Connection
from ltzd.store.mint_references import PAYMENT_REWARD


async def note(connection: Connection, mints: Sequence[RewardMinted]) -> None:
    """Remember the references of the payments' mints among these whose payment is unknown."""
    references = [mint.reference for mint in mints if mint.reference[16] == PAYMENT_REWARD]
    if not references:
        return
    # The table of payments decides: a rebuild has an empty table of rewards.
    await connection.execute(
        """
        INSERT INTO unknown_payments (reward_id, reference)
        SELECT reward_id, reference
          FROM unnest($1::uuid[], $2::bytea[]) AS mint (reward_id, reference)
         WHERE NOT EXISTS (SELECT FROM payments p WHERE p.reward_id = mint.reward_id)
            ON CONFLICT DO NOTHING
        """,
        [UUID(bytes=reference[:16]) for reference in references],
        references,
    )


async def mint_of(connection: Connection, reward: UUID) -> asyncpg.Record | None:
    """The row in `mints` of an unknown payment's reward, if the index has it now."""
    return await connection.fetchrow(
        """
        SELECT m.*
          FROM unknown_payments u
          JOIN mints m ON substring(m.reference FROM 25) = substring(u.reference FROM 25)
                      AND m.reference = u.reference
         WHERE u.reward_id = $1
         LIMIT 1
        """,
        reward,
    )
