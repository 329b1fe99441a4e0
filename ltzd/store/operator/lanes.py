"""Lanes: the wallets that sign, their next nonce, and the references that they may give out.

Every write of a lane's holder names its epoch (`transactions.store_signed`, `transactions.save`). A
holder whose term is over gets LaneLost.
"""

import msgspec

from ltzd.errors import LaneLost
from ltzd.rules.operator.references import LaneReferences
from ltzd.store.database import Connection
from ltzd.values import Address

SHOWN_FOR_SECONDS = 60.0
"""A lane counts as served this long after its last report."""


class Lane(msgspec.Struct, frozen=True):
    chain_id: int
    wallet: Address
    epoch: int
    kind: str

    @property
    def claim_token(self) -> bytes:
        """The value of `rewards.claimed_by` for rewards that this term has claimed."""
        return self.wallet + self.epoch.to_bytes(8, "big")


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


async def require_term(connection: Connection, lane: Lane) -> None:
    """Fence the writes of this database transaction that name no epoch; raises LaneLost."""
    is_current = await connection.fetchval(
        """
        SELECT true FROM lanes
         WHERE chain_id = $1 AND wallet = $2 AND epoch = $3
           FOR SHARE
        """,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
    )
    if not is_current:
        raise LaneLost("Another process serves this lane")


async def report_working(connection: Connection, lane: Lane, paused_for: str | None = None) -> None:
    """Record that this lane is served, and why it signs nothing, if it is paused.

    Raises LaneLost if another process serves the lane.
    """
    await _report(connection, lane, paused_for, "now()")


async def report_watching(connection: Connection, lane: Lane, reason: str) -> None:
    """Record why a retired wallet is still watched; it does not count as served.

    Raises LaneLost if another process serves the lane.
    """
    await _report(connection, lane, reason, "NULL")


async def report_pause(connection: Connection, lane: Lane, paused_for: str) -> None:
    """Record why the lane's holder cannot begin its work; such a lane is not served.

    Raises LaneLost if another process holds the lane.
    """
    await _report(connection, lane, paused_for, "served_at")


async def _report(
    connection: Connection, lane: Lane, paused_for: str | None, served_at: str
) -> None:
    done = await connection.fetchval(
        f"""
        UPDATE lanes
           SET served_at = {served_at}, paused_for = $4::text, paused_seen_at = now(),
               paused_since = CASE WHEN $4::text IS NULL THEN NULL
                                   WHEN paused_for = $4::text THEN paused_since ELSE now() END
         WHERE chain_id = $1 AND wallet = $2 AND epoch = $3
     RETURNING true
        """,  # noqa: S608
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        paused_for,
    )
    if not done:
        raise LaneLost("Another process serves this lane")


async def count_working(connection: Connection, chain_id: int, kind: str) -> int:
    """How many lanes of this kind are served and have no reason to wait."""
    count: int = await connection.fetchval(
        """
        SELECT count(*) FROM lanes
         WHERE chain_id = $1 AND kind = $2 AND paused_for IS NULL
           AND served_at > now() - make_interval(secs => $3)
        """,
        chain_id,
        kind,
        SHOWN_FOR_SECONDS,
    )
    return count


async def list_mint_wallets(connection: Connection, chain_id: int) -> list[Address]:
    """The wallets whose mint lanes were served within the last minute.

    Returns all mint wallets with a lane if none was served.
    """
    rows = await connection.fetch(
        """
        WITH minters AS (
          SELECT wallet,
                 coalesce(served_at > now() - make_interval(secs => $2), false) AS is_served
            FROM lanes
           WHERE chain_id = $1 AND kind = 'mint'
        )
        SELECT wallet FROM minters
         WHERE is_served OR NOT EXISTS (SELECT FROM minters WHERE is_served)
        """,
        chain_id,
        SHOWN_FOR_SECONDS,
    )
    return [Address(row["wallet"]) for row in rows]


async def next_seq(connection: Connection, chain_id: int, ltz: Address) -> int | None:
    """The counter: no lane has a reference at or above it. Returns None before it is created."""
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


async def references(connection: Connection, chain_id: int, wallet: Address) -> LaneReferences:
    """The references that the lane may still give out; none for a wallet without a lane."""
    row = await connection.fetchrow(
        """
        SELECT next_seq, end_seq, following_seq FROM lanes
         WHERE chain_id = $1 AND wallet = $2 AND next_seq IS NOT NULL
        """,
        chain_id,
        wallet,
    )
    return LaneReferences() if row is None else LaneReferences(*row)


async def take_word(
    connection: Connection, lane: Lane, ltz: Address, held: LaneReferences
) -> LaneReferences:
    """Take the counter's next whole word for a lane with the references `held`; return all.

    A counter within a word is moved to the next word first. Raises LaneLost if the lane's term is
    over, or `held` is not what the lane's row says. Call it outside a database transaction: its
    commit waits for no disk, since a crash of the database that loses it also ends the lane's term,
    and no mint with these references can be stored before it.
    """
    first: int | None = await connection.fetchval(
        """
        WITH word AS (
          UPDATE reference_counters
             SET next_seq = (next_seq + 255) / 256 * 256 + 256
           WHERE chain_id = $1 AND ltz = $4
             AND EXISTS (SELECT FROM lanes
                          WHERE chain_id = $1 AND wallet = $2 AND epoch = $3
                            AND coalesce(next_seq, 0) = $5 AND coalesce(end_seq, 0) = $6
                            AND following_seq IS NULL
                            FOR UPDATE)
       RETURNING next_seq - 256 AS first
        )
        UPDATE lanes
           SET next_seq = CASE WHEN $5::bigint = $6::bigint THEN word.first ELSE next_seq END,
               end_seq = CASE WHEN $5::bigint = $6::bigint THEN word.first + 256 ELSE end_seq END,
               following_seq = CASE WHEN $5::bigint = $6::bigint THEN NULL ELSE word.first END
          FROM word
         WHERE chain_id = $1 AND wallet = $2
     RETURNING word.first, set_config('synchronous_commit', 'off', true)
        """,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        ltz,
        held.next_seq,
        held.end_seq,
    )
    if first is None:
        raise LaneLost("Another process serves the lane, or has taken references for it")
    return held.with_word(first)
