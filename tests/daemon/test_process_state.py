"""Outside services are pinged, and a process reports itself."""

import asyncio
from uuid import uuid4

from msgspec.structs import replace

from ltzd.daemon.process_state import ServiceWatch
from ltzd.daemon.processes import ProcessReporter, this_process
from ltzd.rules.conditions.facts import ProcessReport
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.store import processes
from ltzd.store.database import open_pool, session
from tests.support.clocks import ManualClock
from tests.support.waiting import until


class Service:
    def __init__(self) -> None:
        self.answers = True
        self.pings = 0

    async def ping(self) -> bool:
        self.pings += 1
        return self.answers

    async def pinged(self, times: int) -> None:
        goal = self.pings + times

        async def is_reached() -> bool:
            return self.pings >= goal

        await until(is_reached)


async def test_a_service_is_away_after_two_failures_and_back_after_one_answer() -> None:
    users, issuer, clock = Service(), Service(), ManualClock()
    pings = {"identity": (users.ping, issuer.ping)}
    watch = ServiceWatch(pings, period_seconds=0.01, clock=clock)
    running = asyncio.create_task(watch.run())
    await issuer.pinged(3)
    assert watch.seconds_away("identity") is None

    issuer.answers = False

    async def is_away() -> bool:
        return watch.seconds_away("identity") is not None

    await until(is_away)
    clock.now += 61.0
    assert watch.seconds_away("identity") == 61.0
    issuer.answers = True

    async def is_back() -> bool:
        return watch.seconds_away("identity") is None

    await until(is_back)
    assert watch.seconds_away("nothing") is None
    running.cancel()


async def test_a_process_reports_until_it_ends_and_measures_its_clock(database_url: str) -> None:
    pool = await open_pool(database_url)
    me = this_process(("http",))
    conditions: list[Condition] = []
    offsets: list[float] = []
    reporter = ProcessReporter(
        pool,
        me,
        lambda: ProcessReport(tuple(conditions)),
        on_clock=offsets.append,
        period_seconds=0.02,
    )
    running = asyncio.create_task(reporter.run())

    async def kinds() -> list[ConditionKind]:
        async with session(pool) as connection:
            rows = await processes.list_all(connection)
        return [condition.kind for row in rows for condition in row.report.conditions]

    conditions.append(Condition(ConditionKind.REDIS_UNAVAILABLE, "Redis is away"))
    await until(kinds)
    assert await kinds() == [ConditionKind.REDIS_UNAVAILABLE]
    async with session(pool) as connection:
        await processes.forget(connection, me.id)
    await until(kinds)  # A row that another process has deleted comes back.
    conditions[:] = [replace(conditions[0], kind=ConditionKind.CLOCK_DIFFERS)]

    async def is_renewed() -> bool:
        return await kinds() == [ConditionKind.CLOCK_DIFFERS]

    await until(is_renewed)
    assert abs(offsets[-1]) < 30
    running.cancel()
    await asyncio.wait({running})
    await reporter.forget()
    assert await kinds() == []
    pool.terminate()
    await reporter.forget()  # Without a database nothing is raised.


async def test_a_process_that_ends_cleanly_leaves_none_of_its_killed_predecessors_missing(
    database_url: str,
) -> None:
    pool = await open_pool(database_url)
    me = this_process(("http",))
    predecessors = [replace(me, id=uuid4()) for _ in range(2)]
    elsewhere = replace(me, id=uuid4(), host="another-machine")
    async with session(pool) as connection:
        for number, process in enumerate([*predecessors, elsewhere], start=1):
            await processes.report(connection, process, ProcessReport())
            await connection.execute(
                """
                UPDATE processes
                   SET started_at = now() - make_interval(mins => 10 * $2),
                       seen_at = now() - make_interval(mins => 10 * $2 - 5)
                 WHERE id = $1
                """,
                process.id,
                number,
            )
        await processes.report(connection, me, ProcessReport())
    await ProcessReporter(pool, me, ProcessReport).forget()
    async with session(pool) as connection:
        rows = await processes.list_all(connection)
    assert [row.identity for row in rows] == [elsewhere]
    await pool.close()
