"""Lanes: the wallets that sign, their next nonce, and the counter of references.

Every write of a lane's holder names its epoch (`transactions.store_signed`, `transactions.save`). A
holder whose term is over gets LaneLost.
"""

from dataclasses import dataclass

from ltzd.errors import LaneLost
from ltzd.store.database import Connection
from ltzd.values import Address

SHOWN_FOR_SECONDS = 60.0
"""A lane counts as served this long after its last report."""


@dataclass(frozen=True, slots=True)
class Lane:
    chain_id: int
    wallet: Address
    epoch: int
    kind: str


async def next_nonce(connection: Connection, chain_id: int, wallet: Address) -> int | None:
    """The nonce that the next intent will take; returns None for a wallet without a lane."""
    nonce: int | None = await connection.fetchval(
        "SELECT next_nonce FROM lanes WHERE chain_id = $1 AND wallet = $2", chain_id, wallet
    )
    return nonce


async def begin_term(
    connection: Connection, chain_id: int, wallet: Address, kind: str, first_nonce: int
) -> Lane:
    """Increment the lane's epoch, creating the lane with `first_nonce` if it is new."""
    epoch: int = await connection.fetchval(
        """
        INSERT INTO lanes (chain_id, wallet, kind, epoch, next_nonce)
        VALUES ($1, $2, $3, 1, $4)
            ON CONFLICT (chain_id, wallet) DO UPDATE
           SET epoch = lanes.epoch + 1, kind = excluded.kind, paused_for = NULL, paused_since = NULL
     RETURNING epoch
        """,
        chain_id,
        wallet,
        kind,
        first_nonce,
    )
    return Lane(chain_id, wallet, epoch, kind)


async def report_working(connection: Connection, lane: Lane, paused_for: str | None = None) -> None:
    """Record that this lane is served, and why it signs nothing, if it is paused.

    Raises LaneLost if another process serves the lane.
    """
    done = await connection.fetchval(
        """
        UPDATE lanes
           SET served_at = now(), paused_for = $4::text, paused_seen_at = now(),
               paused_since = CASE WHEN $4::text IS NULL THEN NULL
                                   WHEN paused_for = $4::text THEN paused_since ELSE now() END
         WHERE chain_id = $1 AND wallet = $2 AND epoch = $3
     RETURNING true
        """,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        paused_for,
    )
    if not done:
        raise LaneLost("Another process serves this lane")


async def report_watching(connection: Connection, lane: Lane, reason: str) -> None:
    """Record why a retired wallet is still watched; it does not count as served.

    Raises LaneLost if another process serves the lane.
    """
    done = await connection.fetchval(
        """
        UPDATE lanes
           SET served_at = NULL, paused_for = $4::text, paused_seen_at = now(),
               paused_since = CASE WHEN paused_for = $4::text THEN paused_since ELSE now() END
         WHERE chain_id = $1 AND wallet = $2 AND epoch = $3
     RETURNING true
        """,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        reason,
    )
    if not done:
        raise LaneLost("Another process serves this lane")


async def report_pause(
    connection: Connection, chain_id: int, wallet: Address, paused_for: str
) -> None:
    """Record that the holder of the lane's lock cannot begin a term; nothing is signed."""
    await connection.execute(
        """
        UPDATE lanes
           SET paused_for = $3::text, paused_seen_at = now(),
               paused_since = CASE WHEN paused_for = $3::text THEN paused_since ELSE now() END
         WHERE chain_id = $1 AND wallet = $2
        """,
        chain_id,
        wallet,
        paused_for,
    )


async def list_served(connection: Connection, chain_id: int, kind: str) -> list[Address]:
    """Active wallets whose lane was served within the last minute, the highest nonce first.

    A wallet that a person has paused comes last.
    """
    rows = await connection.fetch(
        """
        SELECT lanes.wallet
          FROM lanes
          LEFT JOIN operator_wallets w ON w.chain_id = lanes.chain_id AND w.wallet = lanes.wallet
         WHERE lanes.chain_id = $1 AND lanes.kind = $2
           AND lanes.served_at > now() - make_interval(secs => $3)
           AND coalesce(w.state, 'active') = 'active'
         ORDER BY w.paused_at IS NOT NULL, lanes.next_nonce DESC, lanes.wallet
        """,
        chain_id,
        kind,
        SHOWN_FOR_SECONDS,
    )
    return [Address(row[0]) for row in rows]


async def next_seq(connection: Connection, chain_id: int, ltz: Address) -> int | None:
    """The next reference's seq; returns None before the counter is created."""
    seq: int | None = await connection.fetchval(
        "SELECT next_seq FROM reference_counters WHERE chain_id = $1 AND ltz = $2", chain_id, ltz
    )
    return seq


async def create_counter(connection: Connection, chain_id: int, ltz: Address, first: int) -> None:
    await connection.execute(
        """
        INSERT INTO reference_counters (chain_id, ltz, next_seq)
        VALUES ($1, $2, $3)
            ON CONFLICT DO NOTHING
        """,
        chain_id,
        ltz,
        first,
    )
