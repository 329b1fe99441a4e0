"""Work in a task of its own hands on its result, and a cancelled caller stays cancelled."""

import asyncio

import pytest

from ltzd.concurrency.own_task import in_own_task


async def test_the_result_and_the_error_are_the_works_own() -> None:
    async def succeeds() -> int:
        return 7

    async def fails() -> None:
        raise LookupError

    assert await in_own_task(succeeds()) == 7
    with pytest.raises(LookupError):
        await in_own_task(fails())


async def test_a_caller_that_is_cancelled_while_a_task_group_fails_stays_cancelled() -> None:
    is_ending, may_end = asyncio.Event(), asyncio.Event()

    async def ends_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_ending.set()
            await may_end.wait()

    async def fails() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ends_slowly())
            await asyncio.sleep(0)
            raise LookupError

    caller = asyncio.create_task(in_own_task(fails()))
    await is_ending.wait()
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_the_work_of_a_cancelled_caller_is_cancelled_and_has_ended() -> None:
    has_begun, has_ended = asyncio.Event(), asyncio.Event()

    async def works() -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    caller = asyncio.create_task(in_own_task(works()))
    await has_begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert has_ended.is_set()
