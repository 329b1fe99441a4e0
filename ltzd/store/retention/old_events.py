"""Takes away whole partitions of events that are older than the settings allow (decision 0045).

Claims, limits and totals are counted in tables of their own. The sums of a partition are
stored in the transaction that drops it, so the books add up as before. A process that dies in
between has changed nothing, and a second process finds nothing to do.
"""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
import structlog

from ltzd.rules.event_handler.event_ids import first_id
from ltzd.store.database import Connection
from ltzd.store.event_handler import partitions
from ltzd.store.event_handler.partitions import Partition
from ltzd.store.migrations.event_partitions import EVENTS
from ltzd.store.retention.erasure import SCAN_SECONDS

log = structlog.get_logger()

_NO_ID: Final = UUID(int=0)


class _Sum(msgspec.Struct, frozen=True):
    """The number and the whole LTZ of one brand's events that are worth LTZ."""

    brand_id: bytes
    events: int
    ltz: int


class _Content(msgspec.Struct, frozen=True):
    """`unsettled` is an event whose reward may still change; `read_at` is the database's time."""

    sums: list[_Sum]
    newest: datetime | None
    unsettled: UUID | None
    read_at: datetime


class _TableLocked(Exception):
    """Another session holds the table of events, which each partition's end needs."""


class _LateEvent(Exception):
    """An event came after the sums were read."""


async def close(connection: Connection, after: timedelta) -> int:
    """Drop the partitions whose events are all older than `after` and settled; returns how many.

    An event is settled if it is worth nothing, if its mint is final, or if its reward has failed.
    The newest partition and the default one stay. Writers and readers of events wait for half a
    second at most. A partition that cannot be dropped now is left for the next call, and does not
    keep the others; but while another session holds the whole table, such as a backup, only the
    first one is tried, since writers wait with each.
    """
    now = await connection.fetchval("SELECT now()")
    oldest = first_id(int((now - after).timestamp()))
    candidates = (await partitions.list_partitions(connection))[:-1]
    closed = 0
    try:
        for each in candidates:
            if each.upper <= oldest:
                closed += await _close(connection, each, now - after)
    except _TableLocked:
        """The next call tries again."""
    return closed


async def _close(connection: Connection, partition: Partition, before: datetime) -> bool:
    queued = await _queued(connection, partition)
    if queued is not None:
        _log_unsettled(partition, queued)
        return False
    try:
        content = await _read(connection, partition)
    except asyncpg.UndefinedTableError:
        return False  # Another process has just dropped the partition.
    if content.unsettled is not None:
        _log_unsettled(partition, content.unsettled)
        return False
    if content.newest is not None and content.newest >= before:
        return False
    try:
        async with partitions.exclusive(connection):
            if partition not in await partitions.list_partitions(connection):
                return False
            await _lock_table(connection)
            await _drop(connection, partition, content)
    except _TableLocked:
        log.info("old_events.wait", partition=partition.name, reason="the table is locked")
        raise
    except (asyncpg.LockNotAvailableError, _LateEvent) as error:
        reason = (
            "an event came late" if isinstance(error, _LateEvent) else "the partition is locked"
        )
        log.info("old_events.wait", partition=partition.name, reason=reason)
        return False
    events = sum(each.events for each in content.sums)
    log.info("old_events.closed", partition=partition.name, rewarded_events=events)
    return True


def _log_unsettled(partition: Partition, event: UUID) -> None:
    log.info("old_events.wait", partition=partition.name, unsettled_event=str(event))


async def _queued(connection: Connection, partition: Partition) -> UUID | None:
    """An event of the partition whose reward is queued, or None.

    Reads the queue alone. A reward may be queued for years, such as a paused brand's, and the whole
    partition would be read in each hour of them.
    """
    event: UUID | None = await connection.fetchval(
        """
        SELECT id
          FROM rewards
         WHERE transaction_id IS NULL AND failed_at IS NULL
           AND mint_block_hash IS NULL AND kind = 1 AND id >= $1 AND id < $2
         ORDER BY position
         LIMIT 1
        """,
        partition.lower or _NO_ID,
        partition.upper,
    )
    return event


async def _read(connection: Connection, partition: Partition) -> _Content:
    """Read the whole partition and its rewards, without a lock that anybody waits for."""
    read_at = await connection.fetchval("SELECT clock_timestamp()")
    rows = await connection.fetch(
        f"""
        SELECT e.brand_id, max(e.created_at) AS newest,
               count(*) FILTER (WHERE e.ltz > 0) AS events,
               coalesce(sum(e.ltz) FILTER (WHERE e.ltz > 0), 0)::bigint AS ltz,
               (array_agg(e.id) FILTER (WHERE e.ltz > 0 AND
                  ((r.ltz, r.brand_id) IS DISTINCT FROM (e.ltz, e.brand_id)
                   OR r.failed_at IS NULL
                      AND r.mint_block_number <= c.final_number IS NOT TRUE)))[1] AS unsettled
          FROM {partition.name} e
          LEFT JOIN rewards r ON r.id = e.id AND r.kind = 1
          LEFT JOIN chains c ON true
         GROUP BY e.brand_id
        """,  # noqa: S608
        timeout=SCAN_SECONDS,
    )
    return _Content(
        [_Sum(row["brand_id"], row["events"], row["ltz"]) for row in rows if row["events"]],
        max((row["newest"] for row in rows), default=None),
        next((row["unsettled"] for row in rows if row["unsettled"]), None),
        read_at,
    )


async def _lock_table(connection: Connection) -> None:
    try:
        await connection.execute(f"LOCK TABLE ONLY {EVENTS} IN ACCESS EXCLUSIVE MODE")
    except asyncpg.LockNotAvailableError as error:
        raise _TableLocked from error


async def _drop(connection: Connection, partition: Partition, content: _Content) -> None:
    await connection.execute(f"ALTER TABLE {EVENTS} DETACH PARTITION {partition.name}")
    is_late = await connection.fetchval(
        f"""
        SELECT EXISTS (
          SELECT FROM brands b
           WHERE EXISTS (SELECT FROM {partition.name}
                          WHERE brand_id = b.id AND created_at >= $1))
        """,  # noqa: S608
        content.read_at,
    )
    if is_late:
        raise _LateEvent
    await connection.executemany(
        """
        INSERT INTO closed_event_sums (brand_id, first_id, end_id, events, ltz)
        VALUES ($1, $2, $3, $4, $5)
        """,
        [
            (each.brand_id, partition.lower or _NO_ID, partition.upper, each.events, each.ltz)
            for each in content.sums
        ],
    )
    await connection.execute(f"DROP TABLE {partition.name}")
