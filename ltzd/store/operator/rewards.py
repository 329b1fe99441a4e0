"""Rewards: the LTZ owed to wallets, and the progress of each to its mint."""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import msgspec

from ltzd.rules.operator.mint_gas import MOST_OUT_OF_GAS
from ltzd.store.database import Connection
from ltzd.store.mint_references import PAYMENT_REWARD
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import lane_lease_sql
from ltzd.store.wakeups import REWARDS, notify
from ltzd.store.webhooks import queue as webhooks
from ltzd.values import ZERO_ADDRESS, Address, Hash32

BRANDS_AT_ONCE = 100
"""Brands in one answer of `queued`: as many as one mint has rewards."""

_BEHIND_ALL = b"\xff" * 21
"""Greater than every address in a comparison of bytes."""


class QueuedReward(msgspec.Struct, frozen=True):
    """`seq` is None until the reward's first batch gives it one; then it never changes.

    `has_failed` says that LTZ refused the reward before, and that a person put it back.
    `cancelled` and `out_of_gas` count its mints that were cancelled, and that ran out of gas.
    `is_contended` says that another mint lane was served when the queue was read, or that the
    reward has a claim, which the next lane replaces.
    """

    id: UUID
    kind: int
    wallet: Address
    ltz: int
    seq: int | None
    has_failed: bool = False
    brand_id: Address = ZERO_ADDRESS
    cancelled: int = 0
    out_of_gas: int = 0
    is_contended: bool = True

    @property
    def is_payment(self) -> bool:
        return self.kind == PAYMENT_REWARD


async def queued(
    connection: Connection,
    limit: int,
    after: bytes = b"",
    saving_for: UUID | None = None,
    lane: Lane | None = None,
    held: Collection[Address] = (),
    passed_over: Collection[UUID] = (),
) -> list[QueuedReward]:
    """Rewards that wait for a transaction, in the order in which they should be minted.

    Payments come first, oldest first. Then comes the reward `saving_for`, if it still waits, then
    up to BRANDS_AT_ONCE brands in turn, beginning after the brand `after`: each brand's oldest
    reward, then each brand's second oldest. Rewards of paused brands, rewards above the mint
    limit's capacity and rewards that a lane other than `lane` has claimed are left out, and so are
    the rewards of `held` brands, except for payments. The rewards `passed_over` are left out, too,
    and take no place or turn of others. The caller claims the contended rewards that it mints. A
    claim counts while its lane has a lease.

    Returns up to `limit` payments and up to `limit` rewards of brands; `limit` is at most 100.
    """
    return [
        QueuedReward(*row)
        for row in await connection.fetch(
            QUEUED, *queue_parameters(limit, after, saving_for, lane, held, passed_over)
        )
    ]


def queue_parameters(
    limit: int,
    after: bytes = b"",
    saving_for: UUID | None = None,
    lane: Lane | None = None,
    held: Collection[Address] = (),
    passed_over: Collection[UUID] = (),
) -> tuple[object, ...]:
    """The parameters of `QUEUED`."""
    claim = b"" if lane is None else lane.claim_token
    brands, ids = list(held), list(passed_over)
    return limit, after, BRANDS_AT_ONCE, saving_for, _BEHIND_ALL, claim, brands, ids


def _busy(own_claim: str) -> str:
    """The common table `busy`: the claims of the other mint lanes that are being served."""
    return f"""busy AS MATERIALIZED (
  SELECT wallet || int8send(epoch) AS claim
    FROM lanes l
    JOIN leases ON leases.name = {lane_lease_sql("l")}
   WHERE l.kind = 'mint' AND leases.expires_at > now()
     AND wallet || int8send(epoch) <> {own_claim}
)"""  # noqa: S608


# The brands are read by key, from each brand to the next, and of each brand only the rewards that
# the batch can take. So a million rewards of one brand, paused or not, add no cost. (BETWEEN and
# not "=", which would make the order redundant and let the planner walk the whole queue by
# position. LIMIT 100, because the planner expects a tenth of all rows for a limit that is no
# constant, and would sort them. OFFSET 0 keeps `ahead` from being evaluated once for each
# reference to it. num_nulls, because no index but the two of this query has it: with statistics of
# an empty queue the planner takes any index that it may take, and then walks the whole queue.)
# A brand all of whose rewards were minted without a transaction of ours, as after a restore, has no
# turn: else a hundred such brands would keep the turn from everybody behind them.
# `place` counts no brand that is paused or held; `laps` is 1 once the search has started again
# before the first brand, as behind a held brand ''. The search then ends at $2, a bound of the
# index: with an OR, PostgreSQL would read all rows of the brand behind $2.
QUEUED = f"""
WITH RECURSIVE paused AS MATERIALIZED (
  SELECT id FROM brands WHERE paused_at IS NOT NULL
), held AS MATERIALIZED (
  SELECT id FROM paused
   UNION ALL
  SELECT unnest($7::bytea[] || ''::bytea)
), passed_over AS MATERIALIZED (
  SELECT unnest($8::uuid[]) AS id
), {_busy("$6")}, turn (brand_id, laps, place, is_held) AS (
  SELECT $2::bytea, 0, 0, true
   UNION ALL
  SELECT next.brand_id, next.laps,
         CASE WHEN next.brand_id IN (SELECT id FROM held) THEN turn.place
              ELSE turn.place + 1 END,
         next.brand_id IN (SELECT id FROM held)
    FROM turn
   CROSS JOIN LATERAL (
         SELECT CASE WHEN ahead.brand_id IS NULL THEN turn.laps + 1 ELSE turn.laps END AS laps,
                CASE WHEN ahead.brand_id IS NOT NULL THEN ahead.brand_id
                     WHEN turn.laps = 0 THEN ''::bytea
                END AS brand_id
           FROM (SELECT (SELECT r.brand_id
                           FROM rewards r
                          WHERE num_nulls(r.transaction_id, r.failed_at) = 2
                            AND r.mint_block_hash IS NULL
                            AND NOT r.above_limit AND r.kind <> 2
                            AND r.brand_id > turn.brand_id
                            AND r.brand_id <= CASE turn.laps WHEN 0 THEN $5 ELSE $2 END
                            AND r.id NOT IN (SELECT id FROM passed_over)
                          ORDER BY r.brand_id
                          LIMIT 1) AS brand_id
                 OFFSET 0) AS ahead
         OFFSET 0) AS next
   WHERE turn.place < $3 AND next.brand_id IS NOT NULL
), due AS MATERIALIZED (
  SELECT brand_id, place FROM turn WHERE NOT is_held
), depth AS MATERIALIZED (
  SELECT least($1, greatest(2, 1000 / greatest(1, count(*)))) AS rewards FROM due
)
SELECT id, kind, wallet, ltz, seq, has_failed, brand_id, cancelled_mints, out_of_gas_mints,
       claimed_by IS NOT NULL OR EXISTS (SELECT FROM busy)
  FROM ((SELECT id, kind, wallet, ltz, seq, failure IS NOT NULL AS has_failed, brand_id,
                cancelled_mints, out_of_gas_mints, claimed_by, 0 AS class, position AS rank,
                0 AS place
           FROM rewards
          WHERE num_nulls(transaction_id, failed_at) = 2 AND mint_block_hash IS NULL
            AND NOT above_limit AND kind = 2
            AND id NOT IN (SELECT id FROM passed_over)
            AND brand_id NOT IN (SELECT id FROM paused)
            AND (claimed_by IS NULL OR claimed_by NOT IN (SELECT claim FROM busy))
          ORDER BY position
          LIMIT $1)
         UNION ALL
        (SELECT id, kind, wallet, ltz, seq, failure IS NOT NULL, brand_id,
                cancelled_mints, out_of_gas_mints, claimed_by, 1, 0, 0
           FROM rewards
          WHERE id = $4 AND kind <> 2
            AND num_nulls(transaction_id, failed_at, mint_block_hash) = 3
            AND NOT above_limit
            AND id NOT IN (SELECT id FROM passed_over)
            AND brand_id NOT IN (SELECT id FROM held)
            AND (claimed_by IS NULL OR claimed_by NOT IN (SELECT claim FROM busy)))
         UNION ALL
        (SELECT reward.id, reward.kind, reward.wallet, reward.ltz, reward.seq,
                reward.has_failed, due.brand_id, reward.cancelled_mints,
                reward.out_of_gas_mints, reward.claimed_by, 2, reward.rank, due.place
           FROM due
          CROSS JOIN LATERAL (
                SELECT *, row_number() OVER (ORDER BY position) AS rank
                  FROM (SELECT *
                          FROM (SELECT id, kind, wallet, ltz, seq, position,
                                       cancelled_mints, out_of_gas_mints, claimed_by,
                                       failure IS NOT NULL AS has_failed
                                  FROM rewards r
                                 WHERE r.brand_id BETWEEN due.brand_id AND due.brand_id
                                   AND num_nulls(transaction_id, failed_at) = 2
                                   AND mint_block_hash IS NULL AND NOT above_limit AND kind <> 2
                                   AND id IS DISTINCT FROM $4
                                   AND id NOT IN (SELECT id FROM passed_over)
                                   AND (claimed_by IS NULL
                                        OR claimed_by NOT IN (SELECT claim FROM busy))
                                 ORDER BY r.brand_id, position
                                 LIMIT 100) AS oldest
                         LIMIT (SELECT rewards FROM depth)) AS oldest) AS reward
          ORDER BY reward.rank, due.place
          LIMIT $1)) AS waiting
 ORDER BY class, rank, place
"""  # noqa: S608


async def claim(connection: Connection, lane: Lane, rewards: Collection[UUID]) -> set[UUID]:
    """Claim queued rewards for the lane, so that other lanes take other ones; return the claimed.

    Rewards that another lane has claimed, or takes at this moment, are left out. Call it outside a
    database transaction: its commit is asynchronous, and a claim that a crash of the database loses
    costs at most a lost race (`transactions.store_signed`).
    """
    rows = await connection.fetch(_CLAIM, list(rewards), lane.claim_token)
    return {row[0] for row in rows}


# num_nulls, because with IS NULL the planner could walk the queue's partial indexes from end to end
# instead of finding the rows by their ids.
_CLAIM = f"""
WITH commit AS MATERIALIZED (
  SELECT set_config('synchronous_commit', 'off', true) AS is_off
), {_busy("$2")}, due AS MATERIALIZED (
  SELECT id
    FROM rewards
   WHERE id = ANY($1::uuid[])
     AND num_nulls(transaction_id, mint_block_hash, failed_at) = 3
     AND NOT above_limit
     AND (claimed_by IS NULL OR claimed_by NOT IN (SELECT claim FROM busy))
     AND (SELECT is_off FROM commit) = 'off'
     FOR UPDATE SKIP LOCKED
)
UPDATE rewards
   SET claimed_by = $2
  FROM due
 WHERE rewards.id = due.id
RETURNING rewards.id
"""  # noqa: S608


async def give_back(connection: Connection, lane: Lane, rewards: Collection[UUID]) -> None:
    """End the lane's claims of these rewards, so that any lane may take them."""
    await connection.execute(
        """
        UPDATE rewards
           SET claimed_by = NULL
         WHERE id = ANY($1::uuid[]) AND claimed_by = $2
        """,
        list(rewards),
        lane.claim_token,
    )


async def last_brand(connection: Connection, next_seq: int) -> bytes:
    """The brand whose turn was the last one before `next_seq`; empty if there was no turn."""
    brand: bytes | None = await connection.fetchval(
        """
        SELECT brand_id
          FROM (SELECT brand_id, kind, seq
                  FROM rewards
                 WHERE seq < $1
                 ORDER BY seq DESC
                 LIMIT 200) AS latest
         WHERE kind <> 2
         ORDER BY seq DESC
         LIMIT 1
        """,
        next_seq,
    )
    return brand or b""


async def set_above_limit(
    connection: Connection, lane: Lane, rewards: Collection[UUID]
) -> list[UUID]:
    """Take rewards that the mint limit can never hold out of the queue; returns their ids.

    A reward that has a transaction by now stays in the queue. All stay if the lane's term is over.
    """
    rows = await connection.fetch(
        """
        UPDATE rewards
           SET above_limit = true
         WHERE id = ANY($1::uuid[]) AND NOT above_limit
           AND transaction_id IS NULL AND mint_block_hash IS NULL AND failed_at IS NULL
           AND EXISTS (SELECT FROM lanes
                        WHERE chain_id = $2 AND wallet = $3 AND epoch = $4
                          FOR SHARE)
     RETURNING id
        """,
        list(rewards),
        lane.chain_id,
        lane.wallet,
        lane.epoch,
    )
    return [row[0] for row in rows]


async def set_within_limit(connection: Connection, lane: Lane, ltz: int, limit: int) -> int:
    """Requeue up to `limit` rewards that a mint limit of `ltz` whole LTZ holds; returns how many.

    Each keeps its place in its brand's queue.
    """
    rows = await connection.fetch(
        """
        UPDATE rewards
           SET above_limit = false
         WHERE id IN (SELECT id FROM rewards WHERE above_limit AND ltz <= $1 LIMIT $2)
           AND EXISTS (SELECT FROM lanes
                        WHERE chain_id = $3 AND wallet = $4 AND epoch = $5
                          FOR SHARE)
     RETURNING id
        """,
        ltz,
        limit,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
    )
    return len(rows)


async def fail(connection: Connection, lane: Lane, failures: Mapping[UUID, str]) -> list[UUID]:
    """Take rewards that LTZ refuses out of the queue, with the reasons; returns their ids.

    A reward that has a transaction or a mint by now stays. Brands that were notified of a failed
    reward get an `ltz_reverted` webhook.
    """
    async with connection.transaction():
        rows = await connection.fetch(
            """
            UPDATE rewards
               SET failed_at = now(), failure = refused.reason
              FROM unnest($1::uuid[], $2::text[]) AS refused (id, reason)
             WHERE rewards.id = refused.id
               AND transaction_id IS NULL AND mint_block_hash IS NULL AND failed_at IS NULL
               AND EXISTS (SELECT FROM lanes
                            WHERE chain_id = $3 AND wallet = $4 AND epoch = $5
                              FOR SHARE)
         RETURNING rewards.id
            """,
            list(failures),
            list(failures.values()),
            lane.chain_id,
            lane.wallet,
            lane.epoch,
        )
        failed = [row[0] for row in rows]
        await webhooks.revoke(connection, failed)
    return failed


async def retry(connection: Connection, reward: UUID) -> bool:
    """Requeue a failed reward and wake the lane; returns False if it is not failed.

    A reward whose mints ran out of gas has one more mint, alone.
    """
    put_back: bool | None = await connection.fetchval(
        """
        UPDATE rewards
           SET failed_at = NULL, out_of_gas_mints = least(out_of_gas_mints, $2)
         WHERE id = $1 AND failed_at IS NOT NULL
     RETURNING true
        """,
        reward,
        MOST_OUT_OF_GAS - 1,
    )
    if put_back:
        await notify(connection, REWARDS)
    return bool(put_back)


async def published_hashes(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Hash32]:
    """The published hashes of these rewards; a reward without a published hash is missing."""
    rows = await connection.fetch(
        """
        SELECT DISTINCT ON (r.id) r.id, coalesce(r.mint_transaction_hash, a.hash) AS hash
          FROM rewards r
          LEFT JOIN attempts a
            ON a.transaction_id = r.transaction_id AND a.published_at IS NOT NULL
           AND NOT a.is_cancellation
         WHERE r.id = ANY($1::uuid[])
           AND (a.hash IS NOT NULL OR r.mint_transaction_hash IS NOT NULL)
         ORDER BY r.id, a.max_fee_per_gas DESC
        """,
        ids,
    )
    return {row["id"]: Hash32(row["hash"]) for row in rows}


async def count_skipped(connection: Connection, transaction_ids: Collection[int]) -> dict[int, int]:
    """The rewards without a mint whose references other final mints have used, by transaction."""
    rows = await connection.fetch(
        """
        SELECT transaction_id, count(*) FROM skipped_rewards
         WHERE transaction_id = ANY($1::bigint[])
         GROUP BY transaction_id
        """,
        transaction_ids,
    )
    return {row[0]: row[1] for row in rows}


async def renew_skipped(connection: Connection, transaction_id: int) -> int:
    """Requeue the rewards of a final mint that LTZ has skipped, to get new references.

    Returns how many.
    """
    rows = await connection.fetch(
        """
        UPDATE rewards
           SET transaction_id = NULL, seq = NULL
         WHERE id IN (SELECT id FROM skipped_rewards WHERE transaction_id = $1)
           AND transaction_id = $1 AND mint_block_hash IS NULL
     RETURNING id
        """,
        transaction_id,
    )
    return len(rows)


async def renew_queued(connection: Connection, rewards: Collection[UUID]) -> int:
    """Take the references of queued rewards that other final mints have used; returns how many.

    Their next mint gives them new ones.
    """
    rows = await connection.fetch(
        """
        UPDATE rewards
           SET seq = NULL
         WHERE id IN (SELECT id FROM skipped_rewards WHERE id = ANY($1::uuid[]))
           AND transaction_id IS NULL AND mint_block_hash IS NULL
     RETURNING id
        """,
        rewards,
    )
    return len(rows)


async def unminted_of(connection: Connection, transaction_id: int) -> list[UUID]:
    """The rewards of a transaction that have no mint in the index."""
    rows = await connection.fetch(
        "SELECT id FROM rewards WHERE transaction_id = $1 AND mint_block_hash IS NULL",
        transaction_id,
    )
    return [row[0] for row in rows]


async def of_transactions(
    connection: Connection, transaction_ids: Collection[int]
) -> dict[int, list[UUID]]:
    """The rewards that each of the transactions mints."""
    rows = await connection.fetch(
        """
        SELECT transaction_id, array_agg(id) AS ids
          FROM rewards
         WHERE transaction_id = ANY($1::bigint[])
         GROUP BY transaction_id
        """,
        list(transaction_ids),
    )
    return {row["transaction_id"]: row["ids"] for row in rows}


async def requeue(
    connection: Connection,
    transaction_id: int,
    *,
    is_cancelled: bool = False,
    ran_out_of_gas: bool = False,
) -> int:
    """Requeue the unminted rewards of a settled transaction; returns how many.

    Each keeps its seq, so that its reference never changes. Its row counts why the mint failed, so
    that the next one differs.
    """
    rows = await connection.fetch(
        """
        UPDATE rewards
           SET transaction_id = NULL,
               cancelled_mints = least(cancelled_mints + $2::int, 1000)::smallint,
               out_of_gas_mints = least(out_of_gas_mints + $3::int, 1000)::smallint
         WHERE transaction_id = $1 AND mint_block_hash IS NULL
     RETURNING id
        """,
        transaction_id,
        int(is_cancelled),
        int(ran_out_of_gas),
    )
    return len(rows)
