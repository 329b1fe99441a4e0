"""The accounts of the chat platform that claims were accepted for.

An account that moves from wallet to wallet satisfies no more claims of a collection than the
collection allows to one wallet. A claim is reserved for its accounts before it is relayed. The
reservation counts for an hour, and after that if the claim is on chain.
"""

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from ltzd.store.database import Connection
from ltzd.store.retention import progress
from ltzd.values import Address

MOST_CLAIMS: Final = 65_535
"""The most claims of one wallet in one collection: PerkNFT counts them in 16 bits."""
PAGE: Final = 1_000
"""Reservations that one call of `delete_unused` looks at."""
_RULE: Final = "chat_claims"
_FIRST: Final = (0, "", b"", 0)
"""Smaller than every key of a reservation."""


class ChatClaim(msgspec.Struct, frozen=True):
    """`number` is the claim's number among the wallet's claims of the collection, from 1 to
    MOST_CLAIMS.

    The number is None before the claim.
    """

    collection_id: int
    wallet: Address
    number: int | None


async def exhausted_accounts(
    connection: Connection, claim: ChatClaim, accounts: Sequence[str]
) -> set[str]:
    """The accounts that have as many other claims as the collection allows to one wallet."""
    rows = await connection.fetch(
        """
        SELECT asked.account
          FROM unnest($2::text[]) AS asked (account)
          JOIN collections c ON c.collection_id = $1 AND c.max_per_user > 0
         WHERE c.max_per_user <= (
               SELECT count(*)
                 FROM chat_claims u
                WHERE u.collection_id = $1 AND u.account = asked.account
                  AND (u.wallet <> $3 OR u.claims <> $4)
                  AND (u.reserved_at > now() - interval '1 hour'
                       OR EXISTS (SELECT FROM perk_claims p
                                   WHERE p.user_address = u.wallet AND p.collection_id = $1
                                     AND p.claims = u.claims)
                       -- An index that is being rebuilt does not have all claims yet.
                       OR EXISTS (SELECT FROM chains WHERE cursor_number < head_number)))
        """,
        claim.collection_id,
        accounts,
        claim.wallet,
        claim.number,
    )
    return {row["account"] for row in rows}


async def reserve(connection: Connection, claim: ChatClaim, accounts: Sequence[str]) -> set[str]:
    """Reserve the claim for these accounts, or return those that are exhausted.

    Two claims for one account wait for each other.
    """
    async with connection.transaction():
        await connection.execute(
            """
            SELECT pg_advisory_xact_lock(hashtextextended($1 || ' claims by ' || account, 0))
              FROM (SELECT account FROM unnest($2::text[]) AS given (account)
                     ORDER BY account) AS ordered
            """,
            str(claim.collection_id),
            accounts,
        )
        taken = await exhausted_accounts(connection, claim, accounts)
        if taken:
            return taken
        await connection.execute(
            """
            INSERT INTO chat_claims (collection_id, account, wallet, claims)
            SELECT $1, account, $3, $4 FROM unnest($2::text[]) AS given (account)
                ON CONFLICT (collection_id, account, wallet, claims) DO UPDATE
               SET reserved_at = now()
            """,
            claim.collection_id,
            accounts,
            claim.wallet,
            claim.number,
        )
    return set()


async def delete_unused(connection: Connection, page: int = PAGE) -> None:
    """Delete reservations older than a day whose claim is not on chain, among the next `page` ones.

    Used reservations stay for ever, so each call looks at a part of the table, in the order of its
    key, and begins again after the last row. Deletes nothing while the index is behind.
    """
    key = await progress.last_key(connection, _RULE)
    last = await connection.fetchrow(
        """
        WITH page AS MATERIALIZED (
          SELECT collection_id, account, wallet, claims
            FROM chat_claims
           WHERE (collection_id, account, wallet, claims) > ($1, $2, $3, $4)
           ORDER BY collection_id, account, wallet, claims
           LIMIT $5
        ), deleted AS (
          DELETE FROM chat_claims u
           USING page
           WHERE (u.collection_id, u.account, u.wallet, u.claims)
                 = (page.collection_id, page.account, page.wallet, page.claims)
             AND u.reserved_at < now() - interval '1 day'
             AND NOT EXISTS (SELECT FROM chains WHERE cursor_number < head_number)
             AND NOT EXISTS (SELECT FROM perk_claims p
                              WHERE p.user_address = u.wallet
                                AND p.collection_id = u.collection_id AND p.claims = u.claims)
        )
        SELECT collection_id, account, encode(wallet, 'hex'), claims
          FROM page
         ORDER BY collection_id DESC, account DESC, wallet DESC, claims DESC
         LIMIT (SELECT count(*) / $5 FROM page)  -- none after a page that is not full
        """,
        *(_FIRST if key is None else _parsed(key)),
        page,
    )
    await progress.move(connection, _RULE, None if last is None else json.dumps(list(last)))


def _parsed(key: str) -> tuple[int, str, bytes, int]:
    collection_id, account, wallet, claims = json.loads(key)
    return collection_id, account, bytes.fromhex(wallet), claims
