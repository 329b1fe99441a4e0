"""Reads how a running database is doing: archiving, size, slow statements, versions.

A fact that the database's user may not read is None.
"""

import asyncpg
import msgspec

from ltzd.store.database import Connection

SLOW_SECONDS = 10.0
HELD_UP_SECONDS = 5.0
"""No lock of ltzd is held for so long."""


class ArchiveFacts(msgspec.Struct, frozen=True):
    """`seconds_since_archived` is None if nothing was ever archived. `standbys` are connected."""

    archives: bool
    seconds_since_archived: float | None
    has_failed_since: bool
    standbys: int


class SlowStatement(msgspec.Struct, frozen=True):
    """`wait` is PostgreSQL's wait event type, such as `Lock`; `text` is the statement's start."""

    application: str
    seconds: float
    state: str
    wait: str | None
    text: str


class BlockingSession(msgspec.Struct, frozen=True):
    """A session that waits for no lock itself, and for which `held_up` sessions of ltzd wait.

    `seconds` is the age of its database transaction. `state`, `seconds` and `text`, the start of
    its statement, are None if the database's user may not read them.
    """

    pid: int
    application: str
    user: str | None
    held_up: int
    state: str | None
    seconds: float | None
    text: str | None


class ServerFacts(msgspec.Struct, frozen=True):
    """`version` is PostgreSQL's number, such as 150004. `data_directory` is None if unreadable."""

    version: int
    version_text: str
    size_bytes: int
    data_directory: str | None


async def archive(connection: Connection) -> ArchiveFacts:
    row = await connection.fetchrow(
        """
        SELECT current_setting('archive_mode') <> 'off' AS archives,
               extract(epoch FROM now() - last_archived_time)::float8 AS seconds_since_archived,
               coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false)
                   AS has_failed_since,
               (SELECT count(*) FROM pg_stat_replication)::int AS standbys
          FROM pg_stat_archiver
        """
    )
    return ArchiveFacts(**row)


async def server(connection: Connection) -> ServerFacts:
    row = await connection.fetchrow(
        """
        SELECT current_setting('server_version_num')::int AS version,
               current_setting('server_version') AS version_text,
               pg_database_size(current_database()) AS size_bytes
        """
    )
    try:
        folder = await connection.fetchval("SELECT current_setting('data_directory')")
    except asyncpg.InsufficientPrivilegeError:
        folder = None
    return ServerFacts(**row, data_directory=folder)


async def slow_statements(connection: Connection) -> list[SlowStatement]:
    """The statements and idle transactions of ltzd that last longer than `SLOW_SECONDS`."""
    rows = await connection.fetch(
        """
        SELECT application_name AS application,
               extract(epoch FROM clock_timestamp()
                   - CASE state WHEN 'active' THEN query_start ELSE state_change END)::float8
                   AS seconds,
               state,
               CASE state WHEN 'active' THEN wait_event_type END AS wait,
               left(regexp_replace(query, '\\s+', ' ', 'g'), 60) AS text
          FROM pg_stat_activity
         WHERE datname = current_database()
           AND application_name LIKE 'ltzd%'
           AND state IN ('active', 'idle in transaction')
           AND CASE state WHEN 'active' THEN query_start ELSE state_change END
               < clock_timestamp() - make_interval(secs => $1)
           AND pid <> pg_backend_pid()
         ORDER BY 2 DESC
         LIMIT 10
        """,
        SLOW_SECONDS,
    )
    return [SlowStatement(**row) for row in rows]


async def blocking_sessions(
    connection: Connection, held_up_seconds: float = HELD_UP_SECONDS
) -> list[BlockingSession]:
    """The sessions whose locks statements of ltzd have waited for that long, the worst first."""
    rows = await connection.fetch(
        """
        WITH RECURSIVE held_up AS MATERIALIZED (
          SELECT pid
            FROM pg_stat_activity
           WHERE datname = current_database() AND application_name LIKE 'ltzd%'
             AND state = 'active' AND wait_event_type = 'Lock'
             AND query_start < clock_timestamp() - make_interval(secs => $1)
        ), waits (pid, blocker) AS (
          SELECT pid, unnest(pg_blocking_pids(pid)) FROM held_up
           UNION
          SELECT w.pid, b.blocker
            FROM waits w CROSS JOIN LATERAL unnest(pg_blocking_pids(w.blocker)) AS b (blocker)
        )
        SELECT s.pid, s.application_name AS application, s.usename::text AS user,
               count(DISTINCT w.pid)::int AS held_up, s.state,
               extract(epoch FROM clock_timestamp() - s.xact_start)::float8 AS seconds,
               CASE WHEN s.state IS NOT NULL
                    THEN left(regexp_replace(s.query, '\\s+', ' ', 'g'), 60) END AS text
          FROM waits w
          JOIN pg_stat_activity s ON s.pid = w.blocker
         WHERE cardinality(pg_blocking_pids(s.pid)) = 0
         GROUP BY s.pid, s.application_name, s.usename, s.state, s.xact_start, s.query
         ORDER BY 4 DESC, 1
         LIMIT 10
        """,
        held_up_seconds,
    )
    return [BlockingSession(**row) for row in rows]
