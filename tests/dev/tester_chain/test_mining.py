"""The tester chain's mining modes, clock and subscriptions."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.support.chain.tester import (
    EMITTER,
    ENDLESS,
    Rpc,
    RpcRefusedError,
    a_tester,
    a_tester_mined_by_hand,
    word,
)
from tests.support.waiting import until


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester_mined_by_hand() as rpc:
        yield rpc


async def _reaches(rpc: Rpc, number: int) -> None:
    async def is_there() -> bool:
        return await rpc.number() >= number

    await until(is_there)


async def test_on_demand_nothing_is_mined_without_transactions() -> None:
    async with a_tester() as rpc:
        dev = await rpc.dev_account()
        sent = await rpc("eth_sendTransaction", {"from": dev, "to": dev, "value": "0x1"})
        await rpc.receipt(sent)
        assert await rpc.number() == 1
        assert await rpc("anvil_getAutomine") is True


async def test_on_time_empty_blocks_come_too() -> None:
    async with a_tester(block_time=0.05) as rpc:
        await _reaches(rpc, 3)
        assert await rpc("anvil_getAutomine") is False
        assert (await rpc.block())["transactions"] == []


async def test_the_mode_changes_while_it_runs(rpc: Rpc) -> None:
    await rpc("evm_setIntervalMining", 0.05)
    await _reaches(rpc, 2)
    await rpc("evm_setIntervalMining", 0)
    await rpc("evm_mine")  # after a block that was under way
    stopped = await rpc.number()
    wallet = await rpc.funded()
    sent = await rpc("eth_sendRawTransaction", wallet.signed(0))
    assert await rpc.number() == stopped
    await rpc("evm_setAutomine", True)
    assert (await rpc.receipt(sent))["blockNumber"] == hex(stopped + 1)


async def test_mining_by_hand_takes_what_waits_and_then_nothing(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    await rpc("eth_sendRawTransaction", wallet.signed(0))
    await rpc("hardhat_mine", "0x3", "0x3c")
    blocks = [await rpc.block(number) for number in (1, 2, 3)]
    assert [len(block["transactions"]) for block in blocks] == [1, 0, 0]
    times = [int(block["timestamp"], 16) for block in blocks]
    assert [times[1] - times[0], times[2] - times[1]] == [60, 60]


async def test_time_follows_the_wall_clock_and_what_tools_add(rpc: Rpc) -> None:
    await rpc("evm_mine")
    assert abs(int((await rpc.block())["timestamp"], 16) - time.time()) < 5
    assert await rpc("evm_increaseTime", 3_600) == 3_600
    await rpc("evm_mine")
    assert abs(int((await rpc.block())["timestamp"], 16) - time.time() - 3_600) < 5


async def test_the_next_timestamp_can_be_set_and_time_goes_on_from_there(rpc: Rpc) -> None:
    wanted = int(time.time()) + 86_400
    await rpc("evm_setNextBlockTimestamp", wanted)
    assert (await rpc.block("pending"))["timestamp"] == hex(wanted)
    await rpc("evm_mine")
    assert (await rpc.block())["timestamp"] == hex(wanted)
    await rpc("evm_mine")
    assert 0 <= int((await rpc.block())["timestamp"], 16) - wanted < 60
    with pytest.raises(RpcRefusedError, match="lower than the last block"):
        await rpc("evm_mine", wanted - 1)


async def test_sending_does_not_wait_for_execution() -> None:
    """Many calls that take py-evm seconds are accepted before the first is mined."""
    async with a_tester() as rpc:
        emitter = await rpc.deploy(EMITTER)
        wallet = await rpc.funded()
        data = "0x" + word(1) + word(2)
        raws = [wallet.signed(nonce, to=emitter, data=data, gas=90_000) for nonce in range(300)]
        batch = [
            {"jsonrpc": "2.0", "id": nonce, "method": "eth_sendRawTransaction", "params": [raw]}
            for nonce, raw in enumerate(raws)
        ]
        replies = await rpc.post(batch)
        assert all("result" in reply for reply in replies)
        await asyncio.gather(*(rpc.receipt(reply["result"]) for reply in replies[-1:]))
        assert await rpc("eth_getStorageAt", emitter, "0x0", "latest") == "0x" + word(300)


async def test_closing_the_chain_ends_what_runs() -> None:
    before = set(threading.enumerate())
    async with a_tester() as rpc:
        endless = await rpc.deploy(ENDLESS)
        running = asyncio.create_task(rpc("eth_call", {"to": endless}))
        assert await rpc.number() == 1
    with pytest.raises((aiohttp.ClientError, RpcRefusedError)):
        await running

    async def nothing_runs() -> bool:
        begun = set(threading.enumerate()) - before
        return not any(each.name.startswith("reader") for each in begun)

    await until(nothing_runs)


async def _subscribe(socket: aiohttp.ClientWebSocketResponse, *params: object) -> str:
    await socket.send_json({"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": params})
    return str((await socket.receive_json(timeout=20))["result"])


async def _received(socket: aiohttp.ClientWebSocketResponse) -> Any:
    notice = await socket.receive_json(timeout=20)
    assert notice["method"] == "eth_subscription"
    return notice["params"]


async def test_new_heads_are_heard_over_a_websocket_until_unsubscribed(rpc: Rpc) -> None:
    async with rpc.http.ws_connect(rpc.url) as socket:
        subscription = await _subscribe(socket, "newHeads")
        await rpc("anvil_mine", 2)
        notifications = [await _received(socket), await _received(socket)]
        assert {each["subscription"] for each in notifications} == {subscription}
        assert [each["result"]["number"] for each in notifications] == ["0x1", "0x2"]
        assert notifications[1]["result"]["hash"] == (await rpc.block())["hash"]

        await rpc("anvil_reorg", 1, [])
        assert (await _received(socket))["result"]["hash"] == (await rpc.block())["hash"]

        await socket.send_json(
            {"jsonrpc": "2.0", "id": 2, "method": "eth_unsubscribe", "params": [subscription]}
        )
        assert (await socket.receive_json(timeout=20))["result"] is True
        await rpc("evm_mine")
        await socket.send_json({"jsonrpc": "2.0", "id": 3, "method": "eth_blockNumber"})
        assert (await socket.receive_json(timeout=20))["result"] == "0x3"


async def test_logs_are_heard_and_heard_again_as_removed(rpc: Rpc) -> None:
    await rpc("evm_setAutomine", True)
    emitter = await rpc.deploy(EMITTER)
    async with rpc.http.ws_connect(rpc.url) as socket:
        await _subscribe(socket, "logs", {"address": emitter})
        call = {"from": await rpc.dev_account(), "to": emitter, "data": "0x" + word(1) + word(2)}
        receipt = await rpc.receipt(await rpc("eth_sendTransaction", call))
        assert (await _received(socket))["result"] == receipt["logs"][0]
        await rpc("anvil_rollback", 1)
        assert (await _received(socket))["result"] == receipt["logs"][0] | {"removed": True}


async def test_an_unknown_subscription_is_refused(rpc: Rpc) -> None:
    async with rpc.http.ws_connect(rpc.url) as socket:
        await socket.send_json(
            {"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": ["oldHeads"]}
        )
        assert (await socket.receive_json(timeout=20))["error"]["code"] == -32602
    with pytest.raises(RpcRefusedError) as fault:
        await rpc("eth_subscribe", "newHeads")
    assert fault.value.code == -32601
