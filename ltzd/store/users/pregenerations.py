"""Wallets created for accounts at OAuth providers: a row for each account and each request.

An account's row is written once and never changes. Of concurrent writers, in any process and for
any brand, one writes it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ltzd.rules.oauth.accounts import OAuthAccount, OAuthProvider
from ltzd.store.database import Connection
from ltzd.values import Address


class AccountWallet(msgspec.Struct, frozen=True):
    """A wallet, and its owner's subject at the identity provider."""

    subject: str
    wallet: Address


class RecordedPregeneration(msgspec.Struct, frozen=True):
    """The stored wallet, and whether this request created it."""

    kept: AccountWallet
    created_new: bool


class DailyUsage(msgspec.Struct, frozen=True):
    """A brand's use of its UTC day. Times are the database's."""

    is_within: bool
    seconds_left: int


async def count_today(
    connection: Connection, brand_id: Address, most: int, *, is_signed: bool
) -> DailyUsage:
    """Count one more request of the brand, unless `most` of its kind have been counted today."""
    row = await connection.fetchrow(
        """
        WITH counted AS (
          INSERT INTO brand_usage AS u (brand_id, kind, window_start, used, maximum)
          VALUES ($1, $3, date_trunc('day', now(), 'UTC'), 1, $2)
              ON CONFLICT (brand_id, kind, window_start) DO UPDATE
             SET used = u.used + 1, maximum = excluded.maximum
           WHERE u.used < excluded.maximum
       RETURNING 1
        )
        SELECT EXISTS (SELECT FROM counted),
               ceil(extract(epoch FROM date_trunc('day', now(), 'UTC') + interval '1 day' - now()))
                 ::integer
        """,
        brand_id,
        most,
        "signed_pregenerations_per_day" if is_signed else "pregenerations_per_day",
    )
    return DailyUsage(row[0], max(1, row[1]))


async def find(connection: Connection, account: OAuthAccount) -> AccountWallet | None:
    row = await connection.fetchrow(
        """
        SELECT identity_subject, wallet FROM pregenerations
         WHERE oauth_provider = $1 AND oauth_user_id = $2
        """,
        account.provider,
        account.user_id,
    )
    return AccountWallet(*row) if row else None


async def ids_of_wallet(
    connection: Connection, wallet: Address, provider: OAuthProvider
) -> tuple[str, ...]:
    """The accounts at this provider that have the wallet."""
    rows = await connection.fetch(
        "SELECT oauth_user_id FROM pregenerations WHERE wallet = $1 AND oauth_provider = $2",
        wallet,
        provider,
    )
    return tuple(row[0] for row in rows)


async def record(
    connection: Connection,
    brand: Address,
    account: OAuthAccount,
    new: AccountWallet,
    metadata: Mapping[str, Any] | None,
) -> RecordedPregeneration:
    """Insert the request, and the wallet `new` unless the account has a wallet: then that one
    counts.

    Takes a connection outside a transaction: rows that another process has just committed must be
    visible.
    """
    created_new: bool = await connection.fetchval(
        _RECORD,
        account.provider,
        account.user_id,
        account.username,
        new.subject,
        new.wallet,
        brand,
        metadata,
    )
    kept = new if created_new else await find(connection, account)
    assert kept is not None, "rows of accounts are never deleted"
    return RecordedPregeneration(kept, created_new)


# Foreign keys are checked at the end of the statement, and see rows committed meanwhile.
_RECORD = """
WITH created AS (
  INSERT INTO pregenerations
         (oauth_provider, oauth_user_id, oauth_username, identity_subject, wallet)
  VALUES ($1, $2, $3, $4, $5)
      ON CONFLICT (oauth_provider, oauth_user_id) DO NOTHING
  RETURNING true
)
INSERT INTO pregeneration_requests
       (brand_id, oauth_provider, oauth_user_id, created_new, metadata)
SELECT $6::bytea, $1::text, $2::text, EXISTS (SELECT FROM created), $7::jsonb
RETURNING created_new
"""
