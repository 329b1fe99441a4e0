"""The table `processes`: every process renews its row, so each sees the whole installation.

Times are the database's. A report's commit waits for no disk, since the next one replaces it.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ltzd.rules.conditions.facts import LaneState, ProcessFacts, ProcessIdentity, ProcessReport
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.store.database import Connection
from ltzd.values import Address, address_of, hex_of

KEPT_SECONDS = 3_600.0
"""A row that is not renewed for this long is deleted: its process will not be missed any more."""
STANDBY_SECONDS = 10.0
"""A process is counted on for this long after its last report: that is two reports."""
_MOST_ROWS = 1_000
_MOST_CONDITIONS = 100
_SENTENCE_CHARACTERS = 1_000


async def report(
    connection: Connection, process: ProcessIdentity, facts: ProcessReport
) -> datetime:
    """Write the process's row, also if another process has deleted it; returns its `seen_at`."""
    async with connection.transaction():
        await connection.execute("SET LOCAL synchronous_commit = off")
        seen_at: datetime = await connection.fetchval(
            """
            INSERT INTO processes (id, host, pid, roles, version, report)
            VALUES ($1, $2, $3, $4::text[], $5, $6::text::jsonb)
                ON CONFLICT (id) DO UPDATE
               SET seen_at = clock_timestamp(), report = excluded.report
         RETURNING seen_at
            """,
            process.id,
            process.host,
            process.pid,
            list(process.roles),
            process.version,
            _encoded(facts),
        )
        await connection.execute(
            "DELETE FROM processes WHERE seen_at < clock_timestamp() - make_interval(secs => $1)",
            KEPT_SECONDS,
        )
    return seen_at


async def forget(connection: Connection, *process_ids: UUID) -> None:
    """Delete the rows of processes that have ended, and are not to be missed."""
    await connection.execute("DELETE FROM processes WHERE id = ANY ($1::uuid[])", process_ids)


async def list_all(connection: Connection) -> tuple[ProcessFacts, ...]:
    """The processes in the order of their starts, with those that report no more.

    A process that crashes again and again leaves a row each time: the newest rows are returned.
    """
    rows = await connection.fetch(
        """
        SELECT id, host, pid, roles, version,
               greatest(0, extract(epoch FROM clock_timestamp() - started_at))::float8,
               greatest(0, extract(epoch FROM clock_timestamp() - seen_at))::float8,
               report::text
          FROM (SELECT * FROM processes ORDER BY seen_at DESC LIMIT $1) AS newest
         ORDER BY started_at, id
        """,
        _MOST_ROWS,
    )
    return tuple(
        ProcessFacts(
            ProcessIdentity(row[0], row[1], row[2], tuple(row[3]), row[4]),
            started_seconds=row[5],
            seen_seconds=row[6],
            report=_decoded(row[7]),
        )
        for row in rows
    )


async def has_standby(connection: Connection, lease: str, wallet: Address | None) -> bool:
    """Whether a process other than the lease's holder could serve the wallet's lane.

    Such a process has told lately that a node answers it, and that its lane waits for the lease.
    Without `wallet` any process of the role operator could: none tells that it could watch a
    retired wallet.
    """
    is_there: bool = await connection.fetchval(
        """
        SELECT EXISTS (
          SELECT FROM processes AS p
           WHERE p.seen_at > clock_timestamp() - make_interval(secs => $3)
             AND p.host || '/' || p.pid
                 IS DISTINCT FROM (SELECT process FROM leases WHERE name = $1)
             AND jsonb_typeof(p.report -> 'height') = 'number'
             AND CASE WHEN $2::text IS NULL THEN 'operator' = ANY(p.roles)
                      ELSE p.report -> 'lanes'
                           @> jsonb_build_array(jsonb_build_object(
                                'wallet', $2::text, 'isHeld', false, 'stopped', NULL)) END)
        """,
        lease,
        None if wallet is None else hex_of(wallet),
        STANDBY_SECONDS,
    )
    return is_there


def _encoded(report: ProcessReport) -> str:
    document = {
        "conditions": [
            {
                "kind": condition.kind.value,
                "subject": condition.subject,
                "sentence": condition.sentence[:_SENTENCE_CHARACTERS],
            }
            for condition in report.conditions[:_MOST_CONDITIONS]
        ],
        "lanes": [
            {
                "wallet": hex_of(lane.wallet),
                "kind": lane.kind,
                "isHeld": lane.is_held,
                "stopped": lane.stopped,
                "balanceWei": None if lane.balance_wei is None else str(lane.balance_wei),
                "missingRoles": lane.missing_roles,
            }
            for lane in report.lanes
        ],
        "height": report.height,
    }
    # PostgreSQL stores no NUL in jsonb.
    return msgspec.json.encode(document).decode().replace("\\u0000", "")


def _decoded(text: str) -> ProcessReport:
    """The report, or an empty one if another version has written it in a form of its own.

    A row that cannot be read must not fail the health of every process.
    """
    try:
        return _report_of(msgspec.json.decode(text))
    except (AttributeError, LookupError, TypeError, ValueError):
        return ProcessReport()


def _report_of(document: dict[str, Any]) -> ProcessReport:
    """Leave out kinds of conditions that this version does not know."""
    known = {kind.value for kind in ConditionKind}
    return ProcessReport(
        conditions=tuple(
            Condition(ConditionKind(condition["kind"]), condition["sentence"], condition["subject"])
            for condition in document["conditions"]
            if condition["kind"] in known
        ),
        lanes=tuple(
            LaneState(
                address_of(lane["wallet"]),
                lane["kind"],
                lane["isHeld"],
                lane["stopped"],
                None if lane["balanceWei"] is None else int(lane["balanceWei"]),
                missing_roles=tuple(lane["missingRoles"]),
            )
            for lane in document["lanes"]
        ),
        height=document["height"],
    )
