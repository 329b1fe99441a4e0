"""Rows of the database that must agree and do not.

Every check reads whole tables in a `figures.snapshot`; those that a screen rules out are not run. A
check's query returns rows with `id`, the JSON of both sides (NULL for a side without a row), and
the total. Rewards that wait for their mint are no discrepancy. While the index is rebuilt, rewards
keep final mints above it; these are left out until the index has caught up.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial

from ltzd.rules import books
from ltzd.rules.books import DifferingRow, Disagreement
from ltzd.store import mint_references
from ltzd.store.books import acknowledgements, closed_events
from ltzd.store.books.acknowledgements import Acknowledgement
from ltzd.store.books.charge_reconciliation import CHARGE_CHECKS
from ltzd.store.books.figures import QUERY_TIMEOUT_SECONDS
from ltzd.store.books.readers import Readers, side_by_side
from ltzd.store.books.screens import SCREENS, Screen
from ltzd.store.books.site_reconciliation import SITE_CHECKS, Check
from ltzd.store.database import Connection
from ltzd.values import Address


async def reconcile_all(
    readers: Readers,
    at_most: int,
    brand: Address | None = None,
    begin_step: Callable[[str], None] = lambda _step: None,
) -> tuple[list[Disagreement], list[Disagreement]]:
    """The discrepancies, and beside them the rows that a person has acknowledged.

    `begin_step` is called with the name of each screen and the kind of each check, when it begins
    or is ruled out: `STEPS` in all.
    """
    reasons = reasons_by_kind(await readers.read(acknowledgements.list_all))

    async def find(check: Check) -> Disagreement | None:
        # Acknowledged rows may be the first ones, and are named beside the others.
        rows = None if reasons.get(check.kind) else at_most
        return await readers.read(partial(_ask, begin_step, check, rows, brand))

    async with side_by_side() as group:
        screened = [
            group.create_task(readers.read(partial(_screen, begin_step, screen, brand)))
            for screen in SCREENS
        ]
        searches = {
            check.kind: group.create_task(find(check))
            for check in CHECKS
            if check.kind not in _SCREENED
        }
    suspected = {kind for screen in screened for kind in screen.result()}
    async with side_by_side() as group:
        for check in CHECKS:
            if check.kind in suspected:
                searches[check.kind] = group.create_task(find(check))
            elif check.kind in _SCREENED:
                begin_step(check.kind)

    unexplained, acknowledged = [], []
    for check in CHECKS:
        difference = searches[check.kind].result() if check.kind in searches else None
        if difference is None:
            continue
        left, done = books.explained(difference, reasons.get(check.kind, {}))
        unexplained += [books.first_rows(left, at_most)] if left else []
        acknowledged += [books.first_rows(done, at_most)] if done else []
    return unexplained, acknowledged


def reasons_by_kind(given: Sequence[Acknowledgement]) -> dict[str, dict[str, str]]:
    """The reasons by kind and row."""
    reasons: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for each in given:
        reasons[each.kind][each.subject] = each.reason
    return reasons


async def count_above_index(connection: Connection) -> int:
    """Rewards with a mint above the block that a rebuild of the index has reached."""
    count: int = await connection.fetchval(
        """
        SELECT count(*)
          FROM rewards
         WHERE EXISTS (SELECT FROM chains WHERE cursor_number < head_number)
           AND mint_block_number > (SELECT min(cursor_number) FROM chains)
        """,
        timeout=QUERY_TIMEOUT_SECONDS,
    )
    return count


async def _screen(
    begin_step: Callable[[str], None],
    screen: Screen,
    brand: Address | None,
    connection: Connection,
) -> list[str]:
    """The kinds that may have a row."""
    begin_step(screen.name)
    row = await connection.fetchrow(screen.sql, brand, timeout=QUERY_TIMEOUT_SECONDS)
    return [kind for kind in screen.kinds if row[kind]]


async def _ask(
    begin_step: Callable[[str], None],
    check: Check,
    at_most: int | None,
    brand: Address | None,
    connection: Connection,
) -> Disagreement | None:
    begin_step(check.kind)
    rows = await connection.fetch(check.sql, brand, at_most, timeout=QUERY_TIMEOUT_SECONDS)
    if not rows:
        return None
    differing = tuple(
        DifferingRow(
            row["id"], dict(zip(check.sides, map(_side, (row["one"], row["other"])), strict=True))
        )
        for row in rows
    )
    return Disagreement(check.kind, check.meaning, rows[0]["total"], differing)


def _side(text: str | None) -> Mapping[str, object] | None:
    """Amounts keep every digit."""
    return None if text is None else dict(json.loads(text, parse_float=Decimal))


CHECKS: Sequence[Check] = (
    Check(
        "event_without_reward",
        "events worth LTZ that have no reward",
        ("event", "reward"),
        """
        SELECT e.id::text, count(*) OVER () AS total,
               json_build_object('ltz', e.ltz, 'brandId', '0x' || encode(e.brand_id, 'hex'))::text
                 AS one,
               NULL AS other
          FROM events e
         WHERE e.ltz > 0
           AND ($1::bytea IS NULL OR e.brand_id = $1)
           AND NOT EXISTS (SELECT FROM rewards r WHERE r.id = e.id AND r.kind = 1)
         ORDER BY e.created_at, e.id
         LIMIT $2
        """,
    ),
    Check(
        "event_and_reward_differ",
        "events whose reward has another amount, wallet or brand",
        ("event", "reward"),
        """
        SELECT e.id::text, count(*) OVER () AS total,
               json_build_object('ltz', e.ltz, 'wallet', '0x' || encode(u.wallet, 'hex'),
                                 'brandId', '0x' || encode(e.brand_id, 'hex'))::text AS one,
               json_build_object('ltz', r.ltz, 'wallet', '0x' || encode(r.wallet, 'hex'),
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS other
          FROM events e
          JOIN rewards r ON r.id = e.id AND r.kind = 1
          LEFT JOIN users u ON u.id = e.user_id
         WHERE (e.ltz <> r.ltz OR e.brand_id <> r.brand_id OR (u.wallet IS DISTINCT FROM r.wallet
                     AND NOT EXISTS (SELECT FROM former_wallets f
                                      WHERE f.wallet = r.wallet AND f.user_id = e.user_id)))
           AND ($1::bytea IS NULL OR $1 IN (e.brand_id, r.brand_id))
         ORDER BY e.created_at, e.id
         LIMIT $2
        """,
    ),
    Check(
        "reward_without_event",
        "rewards for events that do not exist",
        ("reward", "event"),
        """
        SELECT r.id::text, count(*) OVER () AS total,
               json_build_object('ltz', r.ltz, 'wallet', '0x' || encode(r.wallet, 'hex'),
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS one,
               NULL AS other
          FROM rewards r
         WHERE r.kind = 1
           AND ($1::bytea IS NULL OR r.brand_id = $1)
           AND NOT EXISTS (SELECT FROM events e WHERE e.id = r.id)
           AND NOT EXISTS (SELECT FROM closed_event_sums c
                            WHERE c.brand_id = r.brand_id
                              AND c.first_id <= r.id AND r.id < c.end_id)
         ORDER BY r.position
         LIMIT $2
        """,
    ),
    Check(
        "closed_events_and_rewards_differ",
        "brands with events that retention has deleted, whose rewards have another sum",
        ("events", "rewards"),
        f"""
        SELECT '0x' || encode(c.brand_id, 'hex') || ' ' || c.end_id AS id,
               count(*) OVER () AS total,
               json_build_object('count', c.events, 'ltz', c.ltz)::text AS one,
               json_build_object('count', coalesce(r.events, 0),
                                 'ltz', coalesce(r.ltz, 0))::text AS other
          FROM closed_event_sums c
          LEFT JOIN (SELECT brand_id, end_id, count(*) AS events, sum(ltz) AS ltz
                       FROM {closed_events.REWARDS} AS closed
                      GROUP BY 1, 2) AS r USING (brand_id, end_id)
         WHERE (c.events, c.ltz) IS DISTINCT FROM (r.events, r.ltz)
           AND ($1::bytea IS NULL OR c.brand_id = $1)
         ORDER BY c.end_id, c.brand_id
         LIMIT $2
        """,  # noqa: S608
    ),
    Check(
        "payment_without_reward",
        "payments that have no reward",
        ("payment", "reward"),
        """
        SELECT p.session_id AS id, count(*) OVER () AS total,
               json_build_object('rewardId', p.reward_id, 'ltz', p.ltz,
                                 'wallet', '0x' || encode(p.wallet, 'hex'),
                                 'brandId', '0x' || encode(p.brand_id, 'hex'))::text AS one,
               NULL AS other
          FROM payments p
         WHERE ($1::bytea IS NULL OR p.brand_id = $1)
           AND NOT EXISTS (SELECT FROM rewards r WHERE r.id = p.reward_id AND r.kind = 2)
         ORDER BY p.created_at, p.session_id
         LIMIT $2
        """,
    ),
    Check(
        "payment_and_reward_differ",
        "payments whose reward has another amount, wallet or brand",
        ("payment", "reward"),
        """
        SELECT p.session_id AS id, count(*) OVER () AS total,
               json_build_object('ltz', p.ltz, 'wallet', '0x' || encode(p.wallet, 'hex'),
                                 'brandId', '0x' || encode(p.brand_id, 'hex'))::text AS one,
               json_build_object('id', r.id, 'ltz', r.ltz,
                                 'wallet', '0x' || encode(r.wallet, 'hex'),
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS other
          FROM payments p
          JOIN rewards r ON r.id = p.reward_id AND r.kind = 2
         WHERE (p.ltz <> r.ltz OR p.brand_id <> r.brand_id OR p.wallet <> r.wallet)
           AND ($1::bytea IS NULL OR $1 IN (p.brand_id, r.brand_id))
         ORDER BY p.created_at, p.session_id
         LIMIT $2
        """,
    ),
    Check(
        "reward_without_payment",
        "rewards for payments that do not exist",
        ("reward", "payment"),
        """
        SELECT r.id::text, count(*) OVER () AS total,
               json_build_object('ltz', r.ltz, 'wallet', '0x' || encode(r.wallet, 'hex'),
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS one,
               NULL AS other
          FROM rewards r
         WHERE r.kind = 2
           AND ($1::bytea IS NULL OR r.brand_id = $1)
           AND NOT EXISTS (SELECT FROM payments p WHERE p.reward_id = r.id)
         ORDER BY r.position
         LIMIT $2
        """,
    ),
    Check(
        "minted_without_mint",
        "rewards with a recorded mint that the index lacks, or that differs there",
        ("reward", "mint"),
        f"""
        SELECT r.id::text, count(*) OVER () AS total,
               json_build_object('ltz', r.ltz, 'wallet', '0x' || encode(r.wallet, 'hex'),
                                 'seq', r.seq, 'block', r.mint_block_number,
                                 'blockHash', '0x' || encode(r.mint_block_hash, 'hex'),
                                 'transaction', '0x' || encode(r.mint_transaction_hash, 'hex'),
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS one,
               NULL AS other
          FROM rewards r
         WHERE r.mint_block_hash IS NOT NULL
           AND ($1::bytea IS NULL OR r.brand_id = $1)
           AND NOT EXISTS (SELECT FROM chains c
                            WHERE r.mint_block_number > c.cursor_number
                              AND c.cursor_number < c.head_number)
           AND NOT EXISTS (
               SELECT FROM mints m
                WHERE m.reference = {mint_references.OF_REWARD}
                  AND m.block_hash = r.mint_block_hash
                  AND m.block_number = r.mint_block_number
                  AND m.transaction_hash = r.mint_transaction_hash
                  AND m.recipient = r.wallet
                  AND m.amount = r.ltz * 1000000000000000000::numeric)
         ORDER BY r.position
         LIMIT $2
        """,  # noqa: S608
    ),
    Check(
        "foreign_mint",
        "mints whose reference belongs to no reward",
        ("mint", "reward"),
        f"""
        SELECT '0x' || encode(m.reference, 'hex') AS id, count(*) OVER () AS total,
               json_build_object('ltz', trim_scale(m.amount * 0.000000000000000001),
                                 'wallet', '0x' || encode(m.recipient, 'hex'),
                                 'block', m.block_number, 'logIndex', m.log_index,
                                 'transaction', '0x' || encode(m.transaction_hash, 'hex'))::text
                 AS one,
               CASE WHEN r.id IS NOT NULL THEN
                 json_build_object('id', r.id, 'kind', r.kind, 'seq', r.seq, 'ltz', r.ltz,
                                   'wallet', '0x' || encode(r.wallet, 'hex'),
                                   'brandId', '0x' || encode(r.brand_id, 'hex'))::text END AS other
          FROM mints m
          LEFT JOIN rewards r ON r.id = {mint_references.REWARD_ID}
         WHERE m.reference IS DISTINCT FROM {mint_references.OF_REWARD}
           AND ($1::bytea IS NULL OR r.brand_id = $1)
         ORDER BY m.block_number, m.log_index
         LIMIT $2
        """,  # noqa: S608
    ),
    Check(
        "mint_and_reward_differ",
        "mints of another amount or to another wallet than their reward's",
        ("mint", "reward"),
        f"""
        SELECT r.id::text, count(*) OVER () AS total,
               json_build_object('ltz', trim_scale(m.amount * 0.000000000000000001),
                                 'wallet', '0x' || encode(m.recipient, 'hex'),
                                 'block', m.block_number, 'logIndex', m.log_index,
                                 'transaction', '0x' || encode(m.transaction_hash, 'hex'))::text
                 AS one,
               json_build_object('ltz', r.ltz, 'wallet', '0x' || encode(r.wallet, 'hex'),
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS other
          FROM mints m
          JOIN rewards r ON r.id = {mint_references.REWARD_ID}
         WHERE m.reference = {mint_references.OF_REWARD}
           AND (m.amount <> r.ltz * 1000000000000000000::numeric OR m.recipient <> r.wallet)
           AND ($1::bytea IS NULL OR r.brand_id = $1)
         ORDER BY m.block_number, m.log_index
         LIMIT $2
        """,  # noqa: S608
    ),
    Check(
        "minted_twice",
        "rewards with more than one mint",
        ("reward", "mints"),
        f"""
        SELECT r.id::text, count(*) OVER () AS total,
               json_build_object('ltz', r.ltz, 'wallet', '0x' || encode(r.wallet, 'hex'),
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS one,
               json_build_object('count', count(*),
                                 'ltz', trim_scale(sum(m.amount) * 0.000000000000000001),
                                 'blocks', string_agg(m.block_number::text, ' '
                                                      ORDER BY m.block_number))::text AS other
          FROM mints m
          JOIN rewards r ON r.id = {mint_references.REWARD_ID}
         WHERE ($1::bytea IS NULL OR r.brand_id = $1)
         GROUP BY r.id
        HAVING count(*) > 1
         ORDER BY r.position
         LIMIT $2
        """,  # noqa: S608
    ),
    Check(
        "mint_not_told",
        "mints that are not recorded on their reward",
        ("mint", "reward"),
        f"""
        SELECT r.id::text, count(*) OVER () AS total,
               json_build_object('block', m.block_number, 'logIndex', m.log_index,
                                 'transaction', '0x' || encode(m.transaction_hash, 'hex'))::text
                 AS one,
               json_build_object('ltz', r.ltz, 'wallet', '0x' || encode(r.wallet, 'hex'),
                                 'block', NULL,
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS other
          FROM mints m
          JOIN rewards r ON r.id = {mint_references.REWARD_ID}
         WHERE r.mint_block_hash IS NULL
           AND m.reference = {mint_references.OF_REWARD}
           AND m.amount = r.ltz * 1000000000000000000::numeric AND m.recipient = r.wallet
           AND ($1::bytea IS NULL OR r.brand_id = $1)
         ORDER BY m.block_number, m.log_index
         LIMIT $2
        """,  # noqa: S608
    ),
    # A reward whose mint a reorg has undone keeps its seq and waits to be minted again, so it is in
    # flight. A reward without a seq was never minted, and a failed reward will not be.
    Check(
        "announced_without_mint",
        "webhooks ltz_distributed delivered for unminted rewards, without a later ltz_reverted",
        ("webhook", "reward"),
        """
        SELECT w.id::text, count(*) OVER () AS total,
               json_build_object('subject', w.subject, 'attempts', w.attempts,
                                 'brandId', '0x' || encode(w.brand_id, 'hex'))::text AS one,
               CASE WHEN r.id IS NOT NULL THEN
                 json_build_object('ltz', r.ltz, 'wallet', '0x' || encode(r.wallet, 'hex'),
                                   'state', CASE WHEN r.failed_at IS NULL THEN 'queued'
                                                 ELSE 'failed' END,
                                   'seq', r.seq)::text END AS other
          FROM webhooks w
          LEFT JOIN rewards r ON r.id = w.subject
               -- Read once: NOT EXISTS would search all webhooks for each that is found.
          LEFT JOIN (SELECT subject, max(created_at) AS reverted_at
                       FROM webhooks
                      WHERE kind = 'ltz_reverted'
                      GROUP BY 1) AS back ON back.subject = w.subject
         WHERE w.kind = 'ltz_distributed' AND w.state = 'delivered' AND NOT w.revoked
           AND r.mint_block_hash IS NULL
           AND (r.seq IS NULL OR r.failed_at IS NOT NULL)
           AND ($1::bytea IS NULL OR w.brand_id = $1)
           AND (back.reverted_at >= w.created_at) IS NOT TRUE
         ORDER BY w.created_at, w.id
         LIMIT $2
        """,
    ),
    Check(
        "mints_and_transfers_differ",
        "transactions whose minted rewards and created LTZ differ",
        ("mints", "transfers"),
        """
        SELECT '0x' || encode(transaction_hash, 'hex') AS id, count(*) OVER () AS total,
               json_build_object('count', coalesce(m.rows, 0), 'ltz',
                 trim_scale(coalesce(m.amount, 0) * 0.000000000000000001))::text AS one,
               json_build_object('count', coalesce(t.rows, 0), 'ltz',
                 trim_scale(coalesce(t.amount, 0) * 0.000000000000000001))::text AS other
          FROM (SELECT transaction_hash, count(*) AS rows, sum(amount) AS amount
                  FROM mints
                 GROUP BY 1) AS m
          FULL JOIN (SELECT transaction_hash, count(*) AS rows, sum(amount) AS amount
                       FROM transfers
                      WHERE sender = decode(repeat('00', 20), 'hex')
                      GROUP BY 1) AS t USING (transaction_hash)
         WHERE $1::bytea IS NULL AND m.amount IS DISTINCT FROM t.amount
         ORDER BY 1
         LIMIT $2
        """,
    ),
    Check(
        "balance_and_transfers_differ",
        "wallets whose balance is not the sum of their transfers",
        ("balance", "transfers"),
        """
        SELECT '0x' || encode(wallet, 'hex') AS id, count(*) OVER () AS total,
               json_build_object('ltz',
                 trim_scale(coalesce(b.amount, 0) * 0.000000000000000001))::text AS one,
               json_build_object('ltz',
                 trim_scale(coalesce(moved.amount, 0) * 0.000000000000000001))::text AS other
          FROM balances b
          FULL JOIN (SELECT wallet, sum(amount) AS amount
                       FROM (SELECT recipient AS wallet, amount FROM transfers
                              UNION ALL
                             SELECT sender, -amount FROM transfers) AS moves
                      GROUP BY wallet) AS moved USING (wallet)
         WHERE $1::bytea IS NULL
           AND wallet <> decode(repeat('00', 20), 'hex')
           AND coalesce(b.amount, 0) <> coalesce(moved.amount, 0)
         ORDER BY 1
         LIMIT $2
        """,
    ),
    *SITE_CHECKS,
    *CHARGE_CHECKS,
)

_SCREENED = frozenset(kind for screen in SCREENS for kind in screen.kinds)
STEPS = len(SCREENS) + len(CHECKS)
