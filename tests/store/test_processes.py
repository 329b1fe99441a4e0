"""The rows in which processes report themselves."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.rules.conditions.facts import LaneState, ProcessIdentity, ProcessReport
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.store import database, processes
from ltzd.store.database import Connection
from ltzd.values import Address

ME = ProcessIdentity(UUID(int=1), "host-a", 4711, ("http", "operator"), "0.9")
REPORT = ProcessReport(
    (Condition(ConditionKind.NODE_UNUSABLE, "Node x is\x00 away", "x"),),
    (LaneState(Address(b"\x11" * 20), "mint", True, "foreign nonce", 10**24),),
    height=12,
)
LANES = '{"conditions": [], "lanes": [{"wallet": 2}], "height": null}'


@pytest_asyncio.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    yield connection
    await connection.close()


async def test_a_report_is_read_as_it_was_written_and_renewed_in_place(
    connection: Connection,
) -> None:
    await processes.report(connection, ME, ProcessReport())
    await processes.report(connection, ME, REPORT)
    (process,) = await processes.list_all(connection)
    (condition,) = REPORT.conditions
    assert process.identity == ME
    assert process.report == replace(
        REPORT, conditions=(replace(condition, sentence="Node x is away"),)
    )
    assert 0 <= process.seen_seconds <= process.started_seconds < 60


async def test_a_clean_end_deletes_the_row_and_an_hour_of_silence_too(
    connection: Connection,
) -> None:
    gone = replace(ME, id=UUID(int=2), pid=1)
    for process in (ME, gone):
        await processes.report(connection, process, REPORT)
    await connection.execute(
        "UPDATE processes SET seen_at = now() - interval '61 minutes' WHERE pid = 1"
    )
    await processes.report(connection, ME, REPORT)
    assert [process.identity for process in await processes.list_all(connection)] == [ME]
    await processes.forget(connection, ME.id)
    assert await processes.list_all(connection) == ()


async def test_kinds_of_a_newer_version_are_left_out(connection: Connection) -> None:
    await processes.report(connection, ME, REPORT)
    await connection.execute(
        """UPDATE processes SET report = jsonb_set(report, '{conditions,0,kind}', '"of_2030"')"""
    )
    (process,) = await processes.list_all(connection)
    assert process.report.conditions == ()


WALLET = Address(b"\x11" * 20)
WAITING = LaneState(WALLET, "mint", is_held=False)
STANDBYS = {
    "its lane waits, and a node answers it": (ProcessReport((), (WAITING,), 12), True),
    "no node answers it": (ProcessReport((), (WAITING,), None), False),
    "its lane holds the lease": (ProcessReport((), (replace(WAITING, is_held=True),), 12), False),
    "its lane is stopped": (ProcessReport((), (replace(WAITING, stopped="key"),), 12), False),
    "its lane has another wallet": (
        ProcessReport((), (replace(WAITING, wallet=Address(b"\x22" * 20)),), 12),
        False,
    ),
    "it has no lanes": (ProcessReport((), (), 12), False),
}


@pytest.mark.parametrize("case", STANDBYS)
async def test_a_process_could_serve_a_wallet_if(connection: Connection, case: str) -> None:
    report, could = STANDBYS[case]
    await processes.report(connection, ME, report)
    assert await processes.has_standby(connection, "lane/1/0x11", WALLET) is could


@pytest.mark.parametrize(
    ("roles", "height", "could"),
    [(("operator",), 12, True), (("operator",), None, False), (("http", "indexer"), 12, False)],
)
async def test_any_operator_with_a_node_could_watch_a_retired_wallet(
    connection: Connection, roles: tuple[str, ...], height: int | None, could: bool
) -> None:
    await processes.report(connection, replace(ME, roles=roles), ProcessReport((), (), height))
    assert await processes.has_standby(connection, "lane/1/0x11", None) is could


async def test_neither_the_holder_of_a_lease_nor_a_silent_process_stands_by(
    connection: Connection,
) -> None:
    report = ProcessReport((), (WAITING,), 12)
    await processes.report(connection, ME, report)
    await connection.execute(
        """
        INSERT INTO leases (name, holder, process, pid, backend_start,
                            taken_at, renewed_at, expires_at)
        VALUES ('lane/1/0x11', gen_random_uuid(), $1, 1, now(), now(), now(), now())
        """,
        ME.name,
    )
    assert not await processes.has_standby(connection, "lane/1/0x11", WALLET)
    silent = replace(ME, id=UUID(int=2), pid=1)
    await processes.report(connection, silent, report)
    await connection.execute(
        "UPDATE processes SET seen_at = now() - make_interval(secs => $1) WHERE pid = 1",
        processes.STANDBY_SECONDS + 1,
    )
    assert not await processes.has_standby(connection, "lane/1/0x11", WALLET)


@pytest.mark.parametrize("report", ["{}", "[]", '{"conditions": 1}', LANES])
async def test_a_report_of_another_form_is_an_empty_one(
    connection: Connection, report: str
) -> None:
    """Of a version that is being replaced: its row must not fail the health of every process."""
    await processes.report(connection, ME, REPORT)
    await connection.execute("UPDATE processes SET report = $1::text::jsonb", report)
    (process,) = await processes.list_all(connection)
    assert (process.identity, process.report) == (ME, ProcessReport())
