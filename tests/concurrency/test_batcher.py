"""Questions that are asked in batches: bounds, failures, and cancelled callers."""

import asyncio
from collections.abc import Sequence

import pytest

from ltzd.chain.node.rpc import RpcError
from ltzd.concurrency.batcher import Batcher
from ltzd.errors import NodeUnavailable
from tests.support.chain.mint_world import true
from tests.support.chain.scripted_node import a_server, error, result
from tests.support.waiting import until


class Oracle:
    """Answers with the squares of the numbers once `gate` is set."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()

    async def squares(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(numbers))
        await self.gate.wait()
        if 13 in numbers:
            raise NodeUnavailable("thirteen")
        return [ValueError(str(number)) if number < 0 else number**2 for number in numbers]


async def test_a_single_question_is_asked_at_once() -> None:
    oracle = Oracle()
    oracle.gate.set()
    batcher = Batcher(oracle.squares)
    assert [await batcher.ask(2), await batcher.ask(3)] == [4, 9]
    assert oracle.batches == [[2], [3]]


async def test_questions_that_arrive_during_a_batch_share_the_next_one() -> None:
    oracle = Oracle()
    batcher = Batcher(oracle.squares, max_concurrent=1, max_batch=3)
    asking = [asyncio.create_task(batcher.ask(number)) for number in range(1, 6)]
    await until(lambda: true(bool(oracle.batches)))
    late = asyncio.create_task(batcher.ask(6))
    oracle.gate.set()
    assert await asyncio.gather(*asking, late) == [1, 4, 9, 16, 25, 36]
    assert oracle.batches == [[1, 2, 3], [4, 5, 6]]


async def test_the_number_of_concurrent_batches_is_bounded() -> None:
    oracle = Oracle()
    batcher = Batcher(oracle.squares, max_concurrent=2, max_batch=1)
    asking = [asyncio.create_task(batcher.ask(number)) for number in range(5)]
    await until(lambda: true(len(oracle.batches) == 2))
    await asyncio.sleep(0)
    assert len(oracle.batches) == 2
    oracle.gate.set()
    assert await asyncio.gather(*asking) == [0, 1, 4, 9, 16]


async def test_an_answer_that_is_an_exception_is_raised_only_to_its_own_caller() -> None:
    oracle = Oracle()
    oracle.gate.set()
    batcher = Batcher(oracle.squares)
    wrong, right = await asyncio.gather(batcher.ask(-2), batcher.ask(3), return_exceptions=True)
    assert (str(wrong), right) == ("-2", 9)


async def test_a_failed_batch_fails_all_its_callers_and_not_the_next_batch() -> None:
    oracle = Oracle()
    oracle.gate.set()
    batcher = Batcher(oracle.squares)
    outcomes = await asyncio.gather(batcher.ask(1), batcher.ask(13), return_exceptions=True)
    assert [type(each) for each in outcomes] == [NodeUnavailable, NodeUnavailable]
    assert await batcher.ask(2) == 4


async def test_a_cancelled_caller_does_not_cancel_the_answers_of_the_others() -> None:
    oracle = Oracle()
    batcher = Batcher(oracle.squares, max_concurrent=1)
    first, second = (asyncio.create_task(batcher.ask(number)) for number in (1, 2))
    await until(lambda: true(oracle.batches == [[1, 2]]))
    first.cancel()
    oracle.gate.set()
    assert await second == 4


async def test_node_requests_share_a_batch_and_each_caller_gets_its_own_error() -> None:
    batches: list[int] = []

    def respond(requests: list[dict[str, object]]) -> object:
        batches.append(len(requests))
        return [
            error(each, "execution reverted", 3)
            if each["params"] == ["bad"]
            else result(each, each["params"])
            for each in requests
        ]

    async with a_server(respond) as rpc:
        outcomes = await asyncio.gather(
            rpc.batched_call("eth_call", "good"),
            rpc.batched_call("eth_call", "bad"),
            return_exceptions=True,
        )
    assert outcomes[0] == ["good"]
    assert isinstance(outcomes[1], RpcError)
    assert batches == [2]


async def test_an_unavailable_node_fails_every_caller() -> None:
    async with a_server(lambda _: b"no JSON") as rpc:
        with pytest.raises(NodeUnavailable):
            await rpc.batched_call("eth_call")
