"""Items share commits: each is answered after its own commit, and a failing item fails alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from ltzd.concurrency.batch_writer import RETRY, BatchWriter, Retry
from ltzd.errors import DatabaseUnavailable, Refused, Unavailable
from tests.support.rows.core import running

Commits = BatchWriter[int, str]


class Ledger:
    """Records each committed batch; holds commits back while `gate` is not set."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = 0
        self.most_under_way = 0
        self.fails: Callable[[Sequence[int]], Exception | None] = lambda _items: None
        self.verdict: Callable[[int], str | Exception | Retry] = lambda item: f"did {item}"

    async def write(self, items: Sequence[int]) -> list[str | Exception | Retry]:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            failure = self.fails(items)
            if failure is not None:
                raise failure
            self.groups.append(list(items))
            return [self.verdict(item) for item in items]
        finally:
            self.under_way -= 1


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@asynccontextmanager
async def committing(commits: Commits) -> AsyncIterator[Commits]:
    async with running(commits.run()):
        yield commits


async def submit_all(commits: Commits, items: Sequence[int]) -> list[str | BaseException]:
    return await asyncio.gather(*map(commits.submit, items), return_exceptions=True)


async def test_an_item_alone_is_committed_at_once(ledger: Ledger) -> None:
    async with committing(Commits(ledger.write, "item")) as commits:
        assert await commits.submit(1) == "did 1"


async def test_waiting_items_are_committed_together_in_order(ledger: Ledger) -> None:
    ledger.gate.clear()
    async with committing(Commits(ledger.write, "item", width=1)) as commits:
        first = asyncio.create_task(commits.submit(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rest = asyncio.create_task(submit_all(commits, range(1, 100)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ledger.gate.set()

        assert await first == "did 0"
        assert await rest == [f"did {item}" for item in range(1, 100)]
    assert ledger.groups[-1] == list(range(1, 100))


async def test_items_of_one_key_go_one_after_the_other_and_hold_up_no_others(
    ledger: Ledger,
) -> None:
    commits = Commits(ledger.write, "item", width=2, key_of=lambda item: item // 10)
    async with committing(commits):
        answers = await submit_all(commits, [10, 11, 20, 12, 30, 21])

    assert answers == [f"did {item}" for item in (10, 11, 20, 12, 30, 21)]
    assert [item for group in ledger.groups for item in group if item < 20] == [10, 11, 12]
    assert all(len({item // 10 for item in group}) == len(group) for group in ledger.groups)
    assert ledger.groups[0] == [10, 20, 30]


async def test_a_key_is_in_one_commit_at_a_time(ledger: Ledger) -> None:
    ledger.gate.clear()
    commits = Commits(ledger.write, "item", width=3, key_of=lambda _item: "key")
    async with committing(commits):
        waiting = asyncio.create_task(submit_all(commits, range(5)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ledger.gate.set()
        await waiting
    assert ledger.most_under_way == 1
    assert ledger.groups == [[0], [1], [2], [3], [4]]


async def test_a_lost_race_goes_before_later_items_of_its_key(ledger: Ledger) -> None:
    lost = {10}

    def verdict(item: int) -> str | Retry:
        if item in lost:
            lost.discard(item)
            return RETRY
        return f"did {item}"

    ledger.verdict = verdict
    commits = Commits(ledger.write, "item", key_of=lambda item: item // 10)
    async with committing(commits):
        await submit_all(commits, [10, 11, 20])
    assert ledger.groups == [[10, 20], [10], [11]]


async def test_batch_size_and_concurrency_are_bounded(ledger: Ledger) -> None:
    async with committing(Commits(ledger.write, "item", width=3, max_batch=7)) as commits:
        await submit_all(commits, range(100))

    assert max(map(len, ledger.groups)) == 7
    assert ledger.most_under_way <= 3
    assert sorted(item for group in ledger.groups for item in group) == list(range(100))


async def test_no_answer_comes_before_its_commit(ledger: Ledger) -> None:
    ledger.gate.clear()
    async with committing(Commits(ledger.write, "item")) as commits:
        answers = [asyncio.create_task(commits.submit(item)) for item in range(5)]
        await asyncio.wait(answers, timeout=0.05)
        assert not any(answer.done() for answer in answers)
        ledger.gate.set()
        await asyncio.gather(*answers)


async def test_a_refusal_is_raised_only_to_its_own_caller(ledger: Ledger) -> None:
    ledger.verdict = lambda item: Refused("no") if item == 2 else f"did {item}"
    async with committing(Commits(ledger.write, "item")) as commits:
        answers = await submit_all(commits, [1, 2, 3])
    assert (answers[0], answers[2]) == ("did 1", "did 3")
    assert isinstance(answers[1], Refused)


async def test_an_item_that_makes_the_commit_fail_does_not_fail_the_others(
    ledger: Ledger,
) -> None:
    ledger.fails = lambda items: ValueError("poison") if 13 in items else None
    async with committing(Commits(ledger.write, "item")) as commits:
        answers = await submit_all(commits, range(30))
        assert await commits.submit(99) == "did 99"

    assert isinstance(answers[13], ValueError)
    assert [answer for answer in answers if isinstance(answer, str)] == [
        f"did {item}" for item in range(30) if item != 13
    ]
    done = [item for group in ledger.groups for item in group]
    assert sorted(done) == sorted({*range(30), 99} - {13}), "each item is committed once"


async def test_a_lost_database_fails_the_whole_group_at_once(ledger: Ledger) -> None:
    """The items are not retried one by one: each would wait for the same time-out."""
    tries: list[int] = []

    def fails(items: Sequence[int]) -> Exception:
        tries.append(len(items))
        return DatabaseUnavailable("lost")

    ledger.fails = fails
    async with committing(Commits(ledger.write, "item", width=1)) as commits:
        answers = await submit_all(commits, range(50))
    assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)
    assert sum(tries) == 50


async def test_an_item_that_lost_a_race_goes_into_the_next_commit(ledger: Ledger) -> None:
    lost = {1: 2, 4: 1}

    def verdict(item: int) -> str | Retry:
        if lost.get(item, 0):
            lost[item] -= 1
            return RETRY
        return f"did {item}"

    ledger.verdict = verdict
    async with committing(Commits(ledger.write, "item")) as commits:
        assert await submit_all(commits, range(6)) == [f"did {item}" for item in range(6)]
    assert sum(map(len, ledger.groups)) == 6 + 3


async def test_a_cancelled_callers_item_is_still_written(ledger: Ledger) -> None:
    ledger.gate.clear()
    async with committing(Commits(ledger.write, "item")) as commits:
        given_up = asyncio.create_task(commits.submit(1))
        patient = asyncio.create_task(commits.submit(2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        ledger.gate.set()

        assert await patient == "did 2"
    assert given_up.cancelled()
    assert sorted(item for group in ledger.groups for item in group) == [1, 2]


async def test_an_item_above_the_queue_limit_is_refused_at_once(ledger: Ledger) -> None:
    ledger.gate.clear()
    async with committing(
        Commits(ledger.write, "item", width=1, max_batch=1, max_waiting=5)
    ) as commits:
        first = asyncio.create_task(commits.submit(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting = asyncio.create_task(submit_all(commits, range(1, 10)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ledger.gate.set()

        assert await first == "did 0"
        answers = await waiting
    assert [isinstance(answer, Unavailable) for answer in answers] == [False] * 5 + [True] * 4


@pytest.mark.parametrize("is_bad_together", [False, True], ids=["together", "singly"])
async def test_loops_that_end_answer_what_they_were_writing_and_begin_again(
    is_bad_together: bool,
) -> None:
    """A commit that is cut off has an unknown outcome; later items of its keys do not wait."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def write(items: Sequence[int]) -> list[str | Exception | Retry]:
        if is_bad_together and len(items) > 1:
            raise RuntimeError("a bad item")
        begun.set()
        await gate.wait()
        return [f"did {item}" for item in items]

    commits = Commits(write, "item", key_of=lambda item: item % 10)
    cut_off = asyncio.ensure_future(submit_all(commits, [2, 3, 4]))
    later = asyncio.ensure_future(submit_all(commits, [12, 13, 14]))
    await asyncio.sleep(0)
    async with committing(commits):
        await begun.wait()
    answers = await cut_off
    assert all(isinstance(answer, Unavailable) for answer in answers), answers
    assert not later.done()

    gate.set()
    async with committing(commits):
        assert await later == ["did 12", "did 13", "did 14"]


async def test_cancelling_the_loops_ends_them(ledger: Ledger) -> None:
    commits = Commits(ledger.write, "item")
    task = asyncio.create_task(commits.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=1)
    assert task.cancelled()


async def test_retried_items_keep_their_order_ahead_of_later_items(
    ledger: Ledger,
) -> None:
    items: list[int] = []

    def verdict(item: int) -> str | Retry:
        items.append(item)
        return RETRY if item in {2, 3, 4} and items.count(item) == 1 else f"did {item}"

    ledger.verdict = verdict
    ledger.gate.clear()
    async with committing(Commits(ledger.write, "item")) as commits:
        first = asyncio.create_task(submit_all(commits, [1, 2, 3, 4]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = asyncio.create_task(submit_all(commits, [5, 6]))
        await asyncio.sleep(0)
        ledger.gate.set()
        await asyncio.gather(first, later)
    assert items[-5:] == [2, 3, 4, 5, 6]


async def test_an_item_that_keeps_losing_races_fails_after_a_bounded_time(ledger: Ledger) -> None:
    ledger.verdict = lambda item: RETRY if item == 2 else f"did {item}"
    writer = Commits(ledger.write, "item", max_retry_seconds=0.05)
    async with committing(writer) as commits, asyncio.timeout(20):
        answers = await submit_all(commits, [1, 2, 3])
    assert (answers[0], answers[2]) == ("did 1", "did 3")
    assert isinstance(answers[1], Unavailable)
