"""A lane's row as far as it concerns restores: server, adopted nonces, and foreign uses.

A promoted replica and a restored backup may lack the last commits, among them signed transactions
that are mined or pending. `ltzd restore` and `ltzd lane adopt` write what a person decides.
"""

import asyncpg
import msgspec

from ltzd.errors import DatabaseUnavailable, LaneLost
from ltzd.rules.operator.references import LaneReferences
from ltzd.store import server_facts
from ltzd.store.database import Connection
from ltzd.store.operator.lanes import Lane
from ltzd.values import Address

RESTORED = "restored"
"""The timeline of a lane that a person has restored: it differs from every server's timeline."""


class LaneRecord(msgspec.Struct, frozen=True):
    """`timeline` is None for a lane that has not signed since the column exists.

    `references` are the seqs that the lane may still give out. `last_signed` is the highest nonce
    of a stored transaction, or -1.
    """

    references: LaneReferences
    wallet: Address
    kind: str
    next_nonce: int
    timeline: str | None
    resumed_nonce: int
    foreign_use: str | None
    last_signed: int
    in_flight: tuple[int, ...]
    """The nonces of the transactions without a receipt, in order."""


_LANE = """
SELECT l.next_seq, l.end_seq, l.following_seq, l.wallet, l.kind, l.next_nonce, l.timeline,
       l.resumed_nonce, l.foreign_use,
       coalesce((SELECT max(nonce) FROM transactions t
                  WHERE t.chain_id = l.chain_id AND t.wallet = l.wallet), -1) AS last_signed,
       ARRAY(SELECT nonce FROM transactions t
              WHERE t.chain_id = l.chain_id AND t.wallet = l.wallet
                AND t.state IN ('signed', 'published')
              ORDER BY nonce) AS in_flight
  FROM lanes l
 WHERE l.chain_id = $1 AND l.wallet = $2
"""


async def list_wallets(connection: Connection, chain_id: int) -> list[Address]:
    """The wallets of all lanes, without retired wallets, which sign nothing."""
    rows = await connection.fetch(
        """
        SELECT wallet
          FROM lanes l
         WHERE chain_id = $1
           AND NOT EXISTS (SELECT FROM operator_wallets w
                            WHERE w.chain_id = l.chain_id AND w.wallet = l.wallet
                              AND w.state = 'retired')
         ORDER BY kind, wallet
        """,
        chain_id,
    )
    return [Address(row[0]) for row in rows]


async def find_lane(connection: Connection, chain_id: int, wallet: Address) -> LaneRecord | None:
    row = await connection.fetchrow(_LANE, chain_id, wallet)
    return None if row is None else _record(row)


def _record(row: asyncpg.Record) -> LaneRecord:
    next_seq, end_seq, following_seq, wallet, *others = row
    has_word = next_seq is not None
    held = LaneReferences(next_seq, end_seq, following_seq) if has_word else LaneReferences()
    kind, next_nonce, timeline, resumed_nonce, foreign_use, last_signed, in_flight = others
    return LaneRecord(
        references=held,
        wallet=Address(wallet),
        kind=kind,
        next_nonce=next_nonce,
        timeline=timeline,
        resumed_nonce=resumed_nonce,
        foreign_use=foreign_use,
        last_signed=last_signed,
        in_flight=tuple(in_flight),
    )


async def count_waiting(connection: Connection) -> int:
    """Rewards that wait for their first transaction."""
    count: int = await connection.fetchval(
        """
        SELECT count(*) FROM rewards
         WHERE transaction_id IS NULL AND seq IS NULL AND failed_at IS NULL
           AND mint_block_hash IS NULL
        """
    )
    return count


_START = "SELECT pg_postmaster_start_time()::text"


async def database_history(connection: Connection) -> str:
    """The server's identity and timeline, which a promotion changes.

    A server that does not tell its timeline (a managed one) is known by its start instead, so that
    each of its restarts counts as a promotion. Raises DatabaseUnavailable on a standby.
    """
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        raise DatabaseUnavailable("The database is a standby, which accepts no writes")
    timeline = await server_facts.timeline(connection)
    if timeline is None:
        return f"server started {await connection.fetchval(_START)}"
    system = await server_facts.system_identifier(connection) or "unknown"
    return f"system {system} timeline {timeline}"


async def set_timeline(connection: Connection, lane: Lane, timeline: str) -> None:
    """Record that the lane's state was compared with the chain on this server.

    Raises LaneLost if another process serves the lane.
    """
    await _update(connection, lane, timeline=timeline)


async def mark_foreign_use(connection: Connection, lane: Lane, proof: str) -> None:
    """Record that something else signs with the lane's key. Raises LaneLost as `set_timeline`."""
    await _update(connection, lane, foreign_use=proof)


async def _update(
    connection: Connection,
    lane: Lane,
    *,
    timeline: str | None = None,
    foreign_use: str | None = None,
) -> None:
    done = await connection.fetchval(
        """
        UPDATE lanes
           SET timeline = coalesce($4, timeline), foreign_use = coalesce($5, foreign_use)
         WHERE chain_id = $1 AND wallet = $2 AND epoch = $3
     RETURNING true
        """,
        lane.chain_id,
        lane.wallet,
        lane.epoch,
        timeline,
        foreign_use,
    )
    if not done:
        raise LaneLost("Another process serves this lane")


async def resume_lane(
    connection: Connection, chain_id: int, record: LaneRecord, nonce: int, *, keeps_word: bool
) -> bool:
    """Let a known lane continue at `nonce`, or behind what it has signed if that is higher.

    A running term ends, because the epoch changes. Without `keeps_word` the lane takes a new word
    of references. Returns False if the lane's row has changed since it was read.
    """
    done: bool | None = await connection.fetchval(
        """
        UPDATE lanes l
           SET next_nonce = greatest($4, $5 + 1), resumed_nonce = $4, foreign_use = NULL,
               timeline = $6, epoch = epoch + 1,
               next_seq = CASE WHEN $7 THEN next_seq END, end_seq = CASE WHEN $7 THEN end_seq END,
               following_seq = CASE WHEN $7 THEN following_seq END
         WHERE chain_id = $1 AND wallet = $2 AND next_nonce = $3
           AND NOT EXISTS (SELECT FROM transactions t
                            WHERE t.chain_id = $1 AND t.wallet = $2 AND t.nonce > $5)
     RETURNING true
        """,
        chain_id,
        record.wallet,
        record.next_nonce,
        nonce,
        record.last_signed,
        RESTORED,
        keeps_word,
    )
    return bool(done)


async def create_lane(
    connection: Connection, chain_id: int, wallet: Address, kind: str, nonce: int
) -> bool:
    """Insert an adopted wallet's lane; returns False, and changes nothing, if it is there."""
    is_new: bool | None = await connection.fetchval(
        """
        INSERT INTO lanes (chain_id, wallet, kind, epoch, next_nonce, resumed_nonce, timeline)
        VALUES ($1, $2, $3, 0, $4, $4, $5)
            ON CONFLICT DO NOTHING
     RETURNING true
        """,
        chain_id,
        wallet,
        kind,
        nonce,
        RESTORED,
    )
    return bool(is_new)


async def raise_counter(connection: Connection, chain_id: int, ltz: Address, seq: int) -> bool:
    """Move the counter of references up to `seq`; returns whether it was lower, or not there."""
    moved: bool | None = await connection.fetchval(
        """
        INSERT INTO reference_counters AS c (chain_id, ltz, next_seq)
        VALUES ($1, $2, $3)
            ON CONFLICT (chain_id, ltz) DO UPDATE
           SET next_seq = excluded.next_seq
         WHERE c.next_seq < excluded.next_seq
     RETURNING true
        """,
        chain_id,
        ltz,
        seq,
    )
    return bool(moved)
