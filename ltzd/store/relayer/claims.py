"""Claims of queued relays by lanes, and the signed transactions that lanes store for them.

A claim is a lane's short right to sign a relay: `relays.claimed_by` names the wallet. The lane
commits its claims before it signs, since the signer may be at the other end of a network. The
column stays as it is once the relay is sent. A claim excludes no lane for good: claims of a lane
that is not alive may be taken over, and `store_signed` stores what the lane still holds and nothing
else.

The relays of one user are sent in the order of their ids, over all lanes: a lane takes a relay if
it holds all earlier open relays of the user, or if there are none. Redemptions of perk charges are
brands' relays, not their holders'; each token's name one wallet, which keeps their order.
"""

from collections.abc import Collection, Sequence

import msgspec

from ltzd.errors import LaneLost
from ltzd.store.database import Connection
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import lane_lease_sql
from ltzd.store.operator.transactions import Attempt, OpenTransaction, newly_signed
from ltzd.store.relayer.relays import LAPSE
from ltzd.store.wakeups import origin
from ltzd.values import Address


class ClaimedRelay(msgspec.Struct, frozen=True):
    """A relay that a lane may sign; its one transaction has these fields.

    `user` sends relays in an order; the redemptions of brands have none.
    """

    id: int
    to: Address
    data: bytes
    gas_limit: int
    user: Address | None = None


# `other` has the other relay lanes. Claims of a lane that `is_alive` are respected: its lease
# (`leases.lane_lease`) has not expired, and its row was reported. An earlier relay holds back its
# user's later ones while the lane that has sent it `may_publish` it, or while the lane whose wallet
# it names `may_sign` it. A retired wallet and a lane that was not served for a minute hold back
# nothing. A lane that is paused for more than five seconds holds back nothing that it has not
# signed.
# `locked` leaves out what another lane holds or has to send first, as of the statement's beginning.
# Another lane may have taken a relay since: SKIP LOCKED, or the second read of a row that has
# changed, leaves that relay out. `chosen` then leaves out its user's later relays. No other lane
# can take a relay in `locked` before this statement commits.
# A relay with a gas limit from $6 to below $7 is left out before the limit counts, with its user's
# later relays: a hundred relays that the wallet cannot pay for would else be all that it looks at.
_CLAIM = f"""
WITH other AS MATERIALIZED (
  SELECT l.wallet,
         coalesce(l.served_at > now() - interval '15 seconds', false)
           AND EXISTS (SELECT FROM leases
                        WHERE name = {lane_lease_sql("l")}
                          AND expires_at > now()) AS is_alive,
         coalesce(l.served_at > now() - interval '1 minute', false)
           AND w.state IS DISTINCT FROM 'retired' AS may_publish,
         coalesce(l.served_at > now() - interval '1 minute', false)
           AND w.state IS DISTINCT FROM 'retired'
           AND (l.paused_for IS NULL OR l.paused_for = 'draining'
                OR l.paused_since > now() - interval '5 seconds') AS may_sign
    FROM lanes l
    LEFT JOIN operator_wallets w ON w.chain_id = l.chain_id AND w.wallet = l.wallet
   WHERE l.chain_id = $1 AND l.wallet <> $2 AND l.kind = 'relay'
), locked AS MATERIALIZED (
  SELECT r.id, r.user_address, r.brand_id
    FROM relays r
   WHERE r.state = 'queued'
     AND r.created_at > now() - {LAPSE}
     AND (r.wallet = $2 OR $5 AND r.wallet IS NULL)
     AND NOT (r.gas_limit >= $6 AND r.gas_limit < $7)
     AND (r.claimed_by IS NULL
          OR r.claimed_by NOT IN (SELECT wallet FROM other WHERE is_alive))
     AND (r.brand_id IS NOT NULL
          OR NOT EXISTS (
               SELECT FROM relays e
                WHERE e.user_address = r.user_address AND e.state IN ('queued', 'sent')
                  AND e.id < r.id AND e.brand_id IS NULL
                  AND CASE WHEN e.state = 'sent'
                           THEN e.claimed_by IN (SELECT wallet FROM other WHERE may_publish)
                           WHEN e.created_at <= now() - {LAPSE} THEN false
                           WHEN e.wallet <> $2
                           THEN e.wallet IN (SELECT wallet FROM other WHERE may_sign)
                           ELSE e.gas_limit >= $6 AND e.gas_limit < $7
                                OR e.claimed_by IN (SELECT wallet FROM other WHERE is_alive) END))
   ORDER BY r.id
   LIMIT $4
     FOR UPDATE SKIP LOCKED
), chosen AS MATERIALIZED (
  SELECT l.id
    FROM locked l
   WHERE l.brand_id IS NOT NULL
      OR NOT EXISTS (
           SELECT FROM relays e
            WHERE e.user_address = l.user_address AND e.state = 'queued'
              AND e.id < l.id AND e.brand_id IS NULL
              AND e.created_at > now() - {LAPSE}
              AND (e.wallet IS NULL OR e.wallet = $2)
              AND e.id NOT IN (SELECT id FROM locked))
), term AS MATERIALIZED (
  SELECT FROM lanes
   WHERE chain_id = $1 AND wallet = $2 AND epoch = $3
     FOR SHARE
), claimed AS (
  UPDATE relays r
     SET claimed_by = $2
    FROM chosen, term
   WHERE r.id = chosen.id
RETURNING r.id, r.to_address, r.data, r.gas_limit,
          CASE WHEN r.brand_id IS NULL THEN r.user_address END AS user_address
)
SELECT id, to_address, data, gas_limit, user_address, set_config('synchronous_commit', 'off', true)
  FROM claimed
 ORDER BY id
"""  # noqa: S608


async def claim(
    connection: Connection,
    lane: Lane,
    limit: int,
    *,
    only_named: bool = False,
    unaffordable: range = range(0),
) -> list[ClaimedRelay]:
    """Claim the oldest relays that this lane may send, in the order in which it must send them.

    Takes again what the lane has claimed before and not stored. Claims nothing if the lane's term
    is over. With `only_named` the lane takes relays that name its wallet, and no others. A relay
    with an `unaffordable` gas limit stays in the queue, and its user's later relays stay behind it.
    Relays that have lapsed (`relays.LAPSE`) stay where they are.

    Run outside a database transaction, the statement commits without waiting for the disk: a crash
    of the server may undo the claim, and `store_signed` then stores nothing.
    """
    rows = await connection.fetch(
        _CLAIM,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        limit,
        not only_named,
        unaffordable.start,
        unaffordable.stop,
    )
    return [ClaimedRelay(*row[:5]) for row in rows]


async def least_gas_in(connection: Connection, lane: Lane, gas: range) -> int | None:
    """The lowest gas limit in this range of the queued relays that the lane's wallet may send.

    Returns None if there is no such relay.
    """
    least: int | None = await connection.fetchval(
        f"""
        SELECT min(gas_limit)
          FROM relays
         WHERE state = 'queued' AND created_at > now() - {LAPSE}
           AND gas_limit >= $2 AND gas_limit < $3 AND (wallet IS NULL OR wallet = $1)
        """,  # noqa: S608
        lane.wallet,
        gas.start,
        gas.stop,
    )
    return least


async def give_back(
    connection: Connection, lane: Lane, claimed: Collection[ClaimedRelay] | None = None
) -> int:
    """Release claims of unsigned relays, by default all of the lane's; return how many.

    Wakes the other processes if there are any. The caller wakes the lanes of its own.
    """
    rows = await connection.fetch(
        """
        WITH released AS (
          UPDATE relays
             SET claimed_by = NULL
           WHERE state = 'queued' AND claimed_by = $1
             AND ($2::bigint[] IS NULL OR id = ANY($2::bigint[]))
       RETURNING id
        ), counted AS (
          SELECT count(*)::int AS relays FROM released
        )
        SELECT relays, pg_notify('ltzd_relays', $3) FROM counted WHERE relays > 0
        """,
        lane.wallet,
        None if claimed is None else [relay.id for relay in claimed],
        origin(),
    )
    return rows[0]["relays"] if rows else 0


async def store_signed(
    connection: Connection,
    lane: Lane,
    claimed: Sequence[ClaimedRelay],
    attempts: Sequence[Attempt],
    first_nonce: int,
) -> list[OpenTransaction]:
    """Write a transaction and its attempt for each relay, in order, and take their nonces.

    The nonces follow each other from `first_nonce`. A relay that the lane holds no longer, because
    it was withdrawn or another lane has taken it over, ends the list: this relay and the later ones
    are not stored, and their signatures must be thrown away. Raises LaneLost, and stores nothing,
    when another process has changed the lane's nonce or epoch.
    """
    rows = await connection.fetch(
        """
        WITH term AS MATERIALIZED (
          SELECT FROM lanes
           WHERE chain_id = $1 AND wallet = $2 AND epoch = $3 AND next_nonce = $10
             FOR UPDATE
        ), given AS MATERIALIZED (
          SELECT *
            FROM unnest($4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bigint[],
                        $9::bigint[])
                 AS given (relay_id, nonce, hash, raw, max_fee_per_gas, max_priority_fee_per_gas)
        ), held AS MATERIALIZED (
          SELECT given.*, r.to_address, r.data, r.gas_limit
            FROM term
           CROSS JOIN given
            JOIN relays r ON r.id = given.relay_id
           WHERE r.state = 'queued' AND r.claimed_by = $2
           ORDER BY given.nonce
             FOR UPDATE OF r
        ), signed AS MATERIALIZED (
          SELECT *
            FROM held
           WHERE nonce < coalesce((SELECT min(nonce)
                                     FROM given
                                    WHERE nonce NOT IN (SELECT nonce FROM held)), nonce + 1)
        ), lane AS (
          UPDATE lanes
             SET next_nonce = next_nonce + (SELECT count(*) FROM signed)
            FROM term
           WHERE chain_id = $1 AND wallet = $2
       RETURNING 1
        ), intent AS (
          INSERT INTO transactions
                 (chain_id, wallet, nonce, kind, to_address, data, gas_limit, state)
          SELECT $1, $2, nonce, 'relay', to_address, data, gas_limit, 'signed'
            FROM signed
           ORDER BY nonce
       RETURNING id, nonce
        ), attempt AS (
          INSERT INTO attempts
                 (hash, transaction_id, raw, max_fee_per_gas, max_priority_fee_per_gas)
          SELECT hash, intent.id, raw, max_fee_per_gas, max_priority_fee_per_gas
            FROM signed
            JOIN intent USING (nonce)
        ), tied AS (
          UPDATE relays
             SET state = 'sent', transaction_id = intent.id
            FROM signed
            JOIN intent USING (nonce)
           WHERE relays.id = signed.relay_id
        )
        SELECT id, nonce
          FROM lane
          LEFT JOIN intent ON true
         ORDER BY nonce
        """,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        [relay.id for relay in claimed],
        list(range(first_nonce, first_nonce + len(claimed))),
        [attempt.hash for attempt in attempts],
        [attempt.raw for attempt in attempts],
        [attempt.fees.max_fee_per_gas for attempt in attempts],
        [attempt.fees.max_priority_fee_per_gas for attempt in attempts],
        first_nonce,
    )
    if not rows:
        raise LaneLost("Another process serves this lane")
    stored = [row for row in rows if row["id"] is not None]
    return [
        newly_signed(row["id"], row["nonce"], relay.gas_limit, attempt)
        for relay, attempt, row in zip(claimed, attempts, stored, strict=False)
    ]
