"""Filters of the tester chain that clients poll."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ltzd.dev.tester_chain import running
from ltzd.dev.tester_chain.errors import JsonRpcError
from ltzd.dev.tester_chain.json_rpc.filters import Filters
from tests.support.chain.tester import (
    EMITTER,
    Rpc,
    RpcRefusedError,
    a_tester,
    a_tester_mined_by_hand,
    topic,
    word,
)


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


async def _emit(rpc: Rpc, emitter: str, first: int) -> str:
    call = {"from": await rpc.dev_account(), "to": emitter, "data": "0x" + word(first) + word(0)}
    sent = await rpc("eth_sendTransaction", call)
    await rpc.receipt(sent)
    return str(sent)


async def test_a_block_filter_tells_each_new_block_once(rpc: Rpc) -> None:
    number = await rpc("eth_newBlockFilter")
    assert await rpc("eth_getFilterChanges", number) == []
    await rpc("anvil_mine", "0x2")
    hashes = [(await rpc.block(height))["hash"] for height in (1, 2)]
    assert await rpc("eth_getFilterChanges", number) == hashes
    assert await rpc("eth_getFilterChanges", number) == []


async def test_a_log_filter_tells_matching_logs_and_tells_all_of_its_range_again(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    filter_ = {"address": emitter, "topics": [[topic(1), topic(3)]], "fromBlock": "0x0"}
    number = await rpc("eth_newFilter", filter_)
    wanted = [await _emit(rpc, emitter, 1)]
    await _emit(rpc, emitter, 2)
    wanted.append(await _emit(rpc, emitter, 3))
    for method in ("eth_getFilterChanges", "eth_getFilterLogs"):
        logs = await rpc(method, number)
        assert [log["transactionHash"] for log in logs] == wanted
        assert logs == await rpc("eth_getLogs", filter_)
    assert await rpc("eth_getFilterChanges", number) == []


async def test_a_log_filter_tells_orphaned_logs_again_as_removed(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    number = await rpc("eth_newFilter", {"address": emitter})
    sent = await _emit(rpc, emitter, 1)
    assert len(await rpc("eth_getFilterChanges", number)) == 1
    await rpc("anvil_reorg", 1, [])
    (removed,) = await rpc("eth_getFilterChanges", number)
    assert (removed["transactionHash"], removed["removed"]) == (sent, True)


async def test_a_log_filter_keeps_to_its_range_of_blocks(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    number = await rpc("eth_newFilter", {"fromBlock": "0x3", "toBlock": "0x3"})
    for first in (1, 2, 3):
        await _emit(rpc, emitter, first)
    (log,) = await rpc("eth_getFilterChanges", number)
    assert log["blockNumber"] == "0x3"


async def test_a_pending_transaction_filter_tells_hashes_before_they_are_mined() -> None:
    async with a_tester_mined_by_hand() as rpc:
        number = await rpc("eth_newPendingTransactionFilter")
        account = await rpc.dev_account()
        sent = await rpc("eth_sendTransaction", {"from": account, "to": account})
        assert await rpc("eth_getFilterChanges", number) == [sent]


async def test_a_filter_that_nobody_polls_is_deleted_with_the_next_block() -> None:
    async with running() as server:
        filters = Filters(server.chain, idle_seconds_at_most=-1)
        number = filters.add("blocks")
        await server.chain.mine(even_empty=True)
        with pytest.raises(JsonRpcError, match="filter not found"):
            filters.changes(number)


async def test_an_unknown_filter_is_refused_with_the_code_after_which_clients_renew_it(
    rpc: Rpc,
) -> None:
    number = await rpc("eth_newBlockFilter")
    assert await rpc("eth_uninstallFilter", number) is True
    assert await rpc("eth_uninstallFilter", number) is False
    for method in ("eth_getFilterChanges", "eth_getFilterLogs"):
        with pytest.raises(RpcRefusedError, match="filter not found") as fault:
            await rpc(method, number)
        assert fault.value.code == -32000


async def test_filters_of_several_clients_do_not_empty_each_other(rpc: Rpc) -> None:
    numbers = await asyncio.gather(*(rpc("eth_newBlockFilter") for _ in range(3)))
    assert len(set(numbers)) == 3
    await rpc("evm_mine")
    changes = await asyncio.gather(*(rpc("eth_getFilterChanges", number) for number in numbers))
    assert [len(each) for each in changes] == [1, 1, 1]
