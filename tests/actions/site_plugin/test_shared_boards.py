"""Callers of one board share its reads, and no answer is older than its question."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from ltzd.actions.site_plugin.leaderboards import Leaderboard, Leaderboards
from ltzd.concurrency.answer_age import answer_age, begin_answer, note_age
from ltzd.errors import DatabaseUnavailable
from ltzd.rules.brands.configuration import Brand
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection, Pool, session
from ltzd.store.replica import Answer, NotReplicated, ReplicaReads
from tests.support.rows.core import a_wallet
from tests.support.rows.earnings import Earned, Earnings
from tests.support.surfaces.event_action import SEALER, a_brand
from tests.support.waiting import until

ANN = a_wallet(1)
HOST = "site.example"
CALLERS = 40


@dataclass
class GatedReads(ReplicaReads):
    """Counts reads. Each waits for the gate after it has read, and has the next of the ages."""

    pool: Pool
    ages: deque[float] = field(default_factory=deque)
    is_lost: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    count: int = 0

    async def read(self, ask: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        age = self.ages.popleft() if self.ages else None
        async with session(self.pool) as connection:
            answer = await ask(connection)
        self.count += 1
        is_lost = self.is_lost
        await self.gate.wait()
        if is_lost:
            raise DatabaseUnavailable("The database was lost")
        if age is not None:
            note_age(age)
        return answer


@pytest.fixture
def reads(pool: Pool) -> GatedReads:
    return GatedReads(pool)


async def applied(pool: Pool) -> Brand:
    brand = a_brand()
    async with session(pool) as connection:
        await brands.apply(connection, brand, SEALER)
    return brand


def ask(boards: Leaderboards, brand: Brand, limit: int = 10) -> asyncio.Task[Leaderboard]:
    return asyncio.create_task(boards.read(brand, HOST, "ltz_earned", "all", limit))


async def until_read(reads: GatedReads, count: int) -> None:
    async def is_read() -> bool:
        return reads.count == count

    await until(is_read)


async def test_callers_of_one_board_share_its_reads(pool: Pool, reads: GatedReads) -> None:
    brand, boards = await applied(pool), Leaderboards(reads)
    await Earnings(pool).earn(Earned(ANN, 2))
    tasks = [ask(boards, brand) for _ in range(CALLERS)]
    await until_read(reads, 1)
    tasks += [ask(boards, brand) for _ in range(CALLERS)]
    reads.gate.set()

    answers = await asyncio.gather(*tasks)

    assert {board.entries[0].value for board in answers} == {2}
    assert reads.count == 2


async def test_an_answer_is_not_older_than_its_question(pool: Pool, reads: GatedReads) -> None:
    brand, boards = await applied(pool), Leaderboards(reads)
    earnings = Earnings(pool)
    await earnings.earn(Earned(ANN, 2))
    before = ask(boards, brand)
    await until_read(reads, 1)
    await earnings.earn(Earned(ANN, 3))
    after = ask(boards, brand)
    await asyncio.sleep(0)
    reads.gate.set()

    assert [(await task).entries[0].value for task in (before, after)] == [2, 5]


async def test_every_caller_learns_how_old_a_shared_answer_is(
    pool: Pool, reads: GatedReads
) -> None:
    brand, boards = await applied(pool), Leaderboards(reads)
    reads.gate.set()

    reads.ages.append(2.5)

    async def age(limit: int, earlier: float | None = None) -> float | None:
        begin_answer()
        if earlier is not None:
            note_age(earlier)
        await boards.read(brand, HOST, "ltz_earned", "all", limit)
        return answer_age()

    ages = await asyncio.gather(age(10, earlier=9.0), age(10), age(11))
    assert list(ages) == [9.0, 2.5, None]
    assert reads.count == 2


async def test_a_read_that_fails_fails_its_callers_alone(pool: Pool, reads: GatedReads) -> None:
    brand, boards = await applied(pool), Leaderboards(reads)
    reads.is_lost = True
    lost = [ask(boards, brand) for _ in range(2)]
    await until_read(reads, 1)
    reads.is_lost = False
    others = [ask(boards, brand, limit) for limit in (10, 11)]
    await asyncio.sleep(0)
    reads.gate.set()

    for refusal in await asyncio.gather(*lost, return_exceptions=True):
        assert isinstance(refusal, DatabaseUnavailable)
    assert [board.total for board in await asyncio.gather(*others)] == [0, 0]


async def test_a_board_that_fails_fails_no_other_board_of_its_batch(
    pool: Pool, reads: GatedReads
) -> None:
    brand, unknown, boards = await applied(pool), a_brand(id="0x" + "b7" * 20), Leaderboards(reads)
    reads.gate.set()

    answers = await asyncio.gather(
        *(ask(boards, each) for each in (brand, unknown, brand)), return_exceptions=True
    )

    assert [isinstance(answer, NotReplicated) for answer in answers] == [False, True, False]
    assert reads.count == 1
