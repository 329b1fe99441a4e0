"""Erases what is older than the settings allow, a bounded batch of it with each call.

Several processes may do so at once: each statement passes over what another has done. Progress is
recorded by rule and brand, so that each call begins where the last one ended.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from ltzd.store.database import Connection
from ltzd.store.retention import erasure, progress
from ltzd.store.retention.refused_rows import RefusedRows
from ltzd.store.users import address_proofs
from ltzd.store.users.erased_addresses import ErasedAddresses

BATCH: Final = 500
_LOOKUPS: Final = 200_000
"""Look-ups of claims in one page of users: some seconds, well below the time of a statement."""


class RetentionPolicy(msgspec.Struct, frozen=True):
    """The age at which each kind of data is erased; data whose age is None here is kept."""

    event_addresses: timedelta | None = None
    """Erases an event's address, identifier and metadata. The age counts from the event."""
    user_addresses: timedelta | None = None
    """Erases an address in all tables. The age counts from the user's last event or last visit at a
    site, or, without a user, from the last time that a token listed the address."""
    pregeneration_requests: timedelta | None = None
    """Erases a request and the name at the OAuth provider. The age counts from the request."""
    events: timedelta | None = None
    """Drops whole partitions of events, once every event in them is this old (`old_events`)."""


KEEP_ALL: Final = RetentionPolicy()


async def expire(
    connection: Connection,
    policy: RetentionPolicy,
    erased: ErasedAddresses,
    refused: RefusedRows,
    batch: int = BATCH,
) -> int:
    """Erase up to `batch` rows of each kind and brand; returns how many were erased or passed over.

    0 says that nothing is left to do for now. `refused` is that of the calls before in this round.
    """
    done = 0
    if policy.event_addresses is not None:
        for brand in await _brands(connection):
            done += await _clear_events(connection, brand, policy.event_addresses, refused, batch)
    if policy.pregeneration_requests is not None:
        after = policy.pregeneration_requests
        for brand in await _brands(connection):
            done += await _delete_requests(connection, brand, after, refused, batch)
    if policy.user_addresses is not None:
        done += await _hide_users(connection, erased, policy.user_addresses, refused, batch)
        done += await _hide_accounts(connection, erased, policy.user_addresses, refused, batch)
        done += await _delete_proofs(connection, policy.user_addresses, refused, batch)
    return done


async def _brands(connection: Connection) -> list[bytes]:
    return [row["id"] for row in await connection.fetch("SELECT id FROM brands ORDER BY id")]


async def _clear_events(
    connection: Connection, brand: bytes, after: timedelta, refused: RefusedRows, batch: int
) -> int:
    """The progress stays before a refused event, so that the next round finds it."""
    rule = "event_addresses", brand.hex()
    # Comparisons of rows, because the planner takes a range between two unknown bounds for a
    # two-hundredth of the rows, and then reads and sorts all events of the brand. The upper bound
    # belongs to the range, because the planner compares the brands alone: it expects no row of the
    # first brand below that brand. A limit in the text, because of an unknown one it expects a
    # tenth of them.
    due = await connection.fetch(
        f"""
        SELECT e.id, e.created_at
          FROM events e
         WHERE (e.brand_id, e.created_at)
               >= ($1, coalesce((SELECT done_to FROM retention_progress
                                  WHERE rule = 'event_addresses' AND brand_id = $1),
                                '-infinity'))
           AND (e.brand_id, e.created_at) <= ($1, now() - $2::interval)
           AND num_nonnulls(e.email, e.user_identifier, e.metadata) > 0
           AND e.id <> ALL($3::uuid[])
         ORDER BY e.brand_id, e.created_at
         LIMIT {batch:d}
        """,  # noqa: S608
        brand,
        after,
        refused.of(rule),
    )

    async def clear(ids: Sequence[UUID]) -> None:
        # A join, so that each event is looked for in its own partition alone.
        await connection.execute(
            """
            UPDATE events e SET email = NULL, user_identifier = NULL, metadata = NULL
              FROM unnest($1::uuid[]) AS due (id)
             WHERE e.id = due.id
            """,
            ids,
        )

    if due:
        await refused.change(rule, [row["id"] for row in due], clear)
    if due and not refused.of(rule):
        await progress.done_to(connection, "event_addresses", brand, due[-1]["created_at"])
    return len(due)


async def _delete_requests(
    connection: Connection, brand: bytes, after: timedelta, refused: RefusedRows, batch: int
) -> int:
    rule = "pregeneration_requests", brand.hex()
    due = await connection.fetch(
        """
        SELECT id
          FROM pregeneration_requests
         WHERE brand_id = $1 AND created_at < now() - $2::interval AND id <> ALL($4::bigint[])
         ORDER BY created_at
         LIMIT $3
        """,
        brand,
        after,
        batch,
        refused.of(rule),
    )

    async def delete(ids: Sequence[int]) -> None:
        await connection.execute(
            """
            WITH deleted AS (
              DELETE FROM pregeneration_requests
               WHERE id = ANY($1::bigint[])
           RETURNING oauth_provider, oauth_user_id
            )
            UPDATE pregenerations p SET oauth_username = NULL
              FROM (SELECT DISTINCT oauth_provider, oauth_user_id FROM deleted) AS d
             WHERE (p.oauth_provider, p.oauth_user_id) = (d.oauth_provider, d.oauth_user_id)
               AND p.oauth_username IS NOT NULL
            """,
            ids,
        )

    if due:
        await refused.change(rule, [row["id"] for row in due], delete)
    return len(due)


async def _delete_proofs(
    connection: Connection, after: timedelta, refused: RefusedRows, batch: int
) -> int:
    passed_over = refused.of("address_proofs")
    due = await address_proofs.expired(connection, after, passed_over, batch)
    if due:
        delete = partial(address_proofs.delete, connection, after)
        await refused.change("address_proofs", due, delete)
    return len(due)


async def _hide_users(
    connection: Connection,
    erased: ErasedAddresses,
    after: timedelta,
    refused: RefusedRows,
    batch: int,
) -> int:
    """Walk the users in the order of their ids, and begin again after the last one.

    A user who is active, or who had no event for long, may be passed over until the next walk. A
    user without an address may have logged in at a site again since it was erased: the address is
    stored with the member then, and is hidden there.
    """
    batch = min(batch, await erasure.addresses_within(connection, _LOOKUPS))
    rows = await connection.fetch(
        """
        WITH page AS MATERIALIZED (
          SELECT id, email_key, created_at
            FROM users
           WHERE id > coalesce((SELECT last_key::uuid FROM retention_progress
                                 WHERE rule = 'user_addresses' AND brand_id = ''),
                               '00000000-0000-0000-0000-000000000000')
           ORDER BY id
           LIMIT $2
        )
        SELECT page.id, page.email_key,
               page.email_key LIKE 'erased:%' AS is_erased,
               (page.email_key NOT LIKE 'erased:%'
                OR EXISTS (SELECT FROM site_members m
                            WHERE m.user_id = page.id AND m.email_key NOT LIKE 'erased:%'))
               AND page.created_at < now() - $1::interval
               AND NOT EXISTS (SELECT FROM site_members m
                                WHERE m.user_id = page.id AND m.seen_at >= now() - $1::interval)
               AND NOT EXISTS (SELECT
                                 FROM claimed_event_types t
                                 JOIN event_claims c
                                   ON (c.brand_id, c.event_type, c.email_key)
                                    = (t.brand_id, t.event_type, page.email_key)
                                WHERE c.last_event_at >= now() - $1::interval) AS is_due
          FROM page
         ORDER BY page.id
        """,
        after,
        batch,
    )
    plain = {row["id"]: row["email_key"] for row in rows if row["is_due"] and not row["is_erased"]}
    due = [row["id"] for row in rows if row["is_due"]]

    async def hide(ids: Sequence[UUID]) -> None:
        await erasure.hide_addresses(
            connection, erased, [plain[id_] for id_ in ids if id_ in plain]
        )
        await erasure.hide_members(connection, erased, ids)

    if due:
        await refused.change("user_addresses", due, hide)
    last = str(rows[-1]["id"]) if len(rows) == batch else None
    await progress.move(connection, "user_addresses", last)
    return len(due)


async def _hide_accounts(
    connection: Connection,
    erased: ErasedAddresses,
    after: timedelta,
    refused: RefusedRows,
    batch: int,
) -> int:
    """Walk the addresses that lead to custodial wallets, and hide those without a user, which have
    no events, unless a token has shown the address since.
    """
    rows = await connection.fetch(
        """
        SELECT a.name,
               a.name NOT LIKE 'erased:%' AND a.created_at < now() - $1::interval
               AND NOT EXISTS (SELECT FROM users u WHERE u.email_key = a.name)
               AND NOT EXISTS (SELECT FROM address_proofs p
                                WHERE p.email_key = a.name
                                  AND p.shown_at >= now() - $1::interval) AS is_due
          FROM custodial_accounts a
         WHERE a.kind = 'email'
           AND a.name > coalesce((SELECT last_key FROM retention_progress
                                   WHERE rule = 'account_addresses' AND brand_id = ''), '')
         ORDER BY a.name
         LIMIT $2
        """,
        after,
        batch,
    )
    due = [row["name"] for row in rows if row["is_due"]]
    if due:
        hide = partial(erasure.hide_addresses, connection, erased)
        await refused.change("account_addresses", due, hide)
    last = rows[-1]["name"] if len(rows) == batch else None
    await progress.move(connection, "account_addresses", last)
    return len(due)
