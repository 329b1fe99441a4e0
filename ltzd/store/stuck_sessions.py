"""Ends database sessions of ltzd whose client is frozen or cut off while they hold up others.

A session in a database transaction keeps its row locks as long as it waits for its client. Between
the messages of one statement PostgreSQL counts it as active, so that no timeout of PostgreSQL ends
it: `idle_in_transaction_session_timeout` does not, and `statement_timeout` not while it reads.
"""

from datetime import timedelta

from ltzd.store.database import Connection

_SILENT = timedelta(seconds=2)
"""A client that lives sends the rest of a database transaction sooner."""
_HELD_UP = timedelta(seconds=0.25)
_APPLICATIONS = [
    f"ltzd {pool}"
    for pool in ("http", "operator", "indexer", "deliveries", "admin", "rebuild", "migrations")
]
"""The sessions of pools and of background migrations. The session of a command is left alone: the
command may be waiting for a person's answer."""


async def end_stuck(connection: Connection) -> list[int]:
    """End sessions of this database user that have waited for their client for two seconds while
    another session waits for their locks; return their process ids.

    Returns at once: the sessions end by themselves after it.
    """
    rows = await connection.fetch(
        """
        WITH held_up AS MATERIALIZED (
          SELECT pid
            FROM pg_stat_activity
           WHERE datname = current_database() AND wait_event_type = 'Lock' AND state = 'active'
             AND query_start < clock_timestamp() - $2::interval
        ), blocking AS MATERIALIZED (
          SELECT DISTINCT unnest(pg_blocking_pids(pid)) AS pid FROM held_up
        ), stuck AS MATERIALIZED (
          SELECT s.pid
            FROM pg_stat_activity s
            JOIN blocking USING (pid)
           WHERE s.usename = current_user AND s.application_name = ANY($3::text[])
             AND s.wait_event_type = 'Client'
             AND s.state_change < clock_timestamp() - $1::interval
        )
        -- Not as a condition: PostgreSQL might call it for other sessions, too.
        SELECT pid, pg_terminate_backend(pid) FROM stuck
        """,
        _SILENT,
        _HELD_UP,
        _APPLICATIONS,
    )
    return [row[0] for row in rows]
