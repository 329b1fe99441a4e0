"""What PostgreSQL writes for an event, for an event with its mint, and for a relay: WAL and rows.

All roles run in one process. The figures hold the index's part (blocks, facts, balances), the full
pages that PostgreSQL writes after a checkpoint, and what an idle ltzd writes meanwhile.
"""

import asyncio
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks import relay_calls
from benchmarks.harness import instance, load, results
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Plan
from benchmarks.harness.results import Figure
from benchmarks.harness.sides import check, first_events
from benchmarks.relay_calls import Calls
from ltzd.store.database import Connection, connect

EVENTS = 3_000
RELAYS = 1_000
_USERS = 500
_CLIENTS = 64
_STATISTICS_SECONDS = 3.0
"""PostgreSQL's processes report the rows that they have written at most a second late."""


@dataclass(frozen=True, slots=True)
class Written:
    """For each event or relay."""

    wal_bytes: float
    rows_inserted: float
    rows_updated: float


@dataclass(frozen=True, slots=True)
class Round:
    recorded: Written
    minted: Written
    relayed: Written


async def run(*, rounds: int, in_document: bool) -> None:
    users = max(_USERS, -(-rounds * RELAYS // relay_calls.TRANSFERS_OF_USER))
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with instance.started(Path(name)) as ltzd:
            await first_events(ltzd, users)
            calls = Calls(ltzd, await relay_calls.logged_in(ltzd, users))
            database = await connect(ltzd.dev_json["databaseUrl"], "benchmark")
            try:
                measured = [await _round(ltzd, database, calls, users) for _ in range(rounds)]
            finally:
                await database.close()
    lines = [
        _line("an event without a reward", [round_.recorded for round_ in measured]),
        _line("an event with its mint", [round_.minted for round_ in measured]),
        _line("a relayed call", [round_.relayed for round_ in measured]),
    ]
    details = {"rounds": [asdict(round_) for round_ in measured]}
    results.record("wal", lines, details, in_document=in_document)


async def _round(ltzd: Instance, database: Connection, calls: Calls, users: int) -> Round:
    each = range(EVENTS)
    events = [number % users for number in each]
    recorded = [ltzd.events(range(user, user + 1), instance.UNREWARDED)[0] for user in events]
    minted = [ltzd.events(range(user, user + 1))[0] for user in events]
    return Round(
        await _written(ltzd, database, recorded, instance.RECORDED),
        await _written(ltzd, database, minted, instance.RECORDED),
        await _written(
            ltzd, database, calls.transfer_requests(RELAYS), relay_calls.CONFIRMED, is_relay=True
        ),
    )


async def _written(
    ltzd: Instance,
    database: Connection,
    requests: list[str],
    must_hold: str,
    *,
    is_relay: bool = False,
) -> Written:
    """Sends each request once, and waits until every reward is minted."""
    plan = Plan(
        port=ltzd.port,
        requests=requests,
        clients=_CLIENTS,
        must_hold=must_hold,
        own_addresses=is_relay,
    )
    before = await _position(database)
    answered = check(await load.measure(plan)).recorded
    await ltzd.settle()
    after = await _position(database)
    log, inserted, updated = (
        (now - then) / answered for now, then in zip(after, before, strict=True)
    )
    print(
        f"  WAL {log:,.0f} bytes, rows {inserted:.2f} inserted, {updated:.2f} updated", flush=True
    )
    return Written(log, inserted, updated)


async def _position(database: Connection) -> tuple[int, int, int]:
    """The end of the log, and the rows inserted and updated so far."""
    await asyncio.sleep(_STATISTICS_SECONDS)
    row = await database.fetchrow(
        """
        SELECT (pg_current_wal_lsn() - '0/0')::bigint AS log, tup_inserted, tup_updated
          FROM pg_stat_database
         WHERE datname = current_database()
        """
    )
    assert row is not None
    return row["log"], row["tup_inserted"], row["tup_updated"]


def _line(name: str, sides: list[Written]) -> Figure:
    return Figure(
        name=f"PostgreSQL's writing for {name}",
        figures=(
            f"{median(side.wal_bytes for side in sides):,.0f} bytes of WAL, "
            f"{median(side.rows_inserted for side in sides):.1f} rows inserted, "
            f"{median(side.rows_updated for side in sides):.1f} updated"
        ),
    )
