"""eth_simulateV1 on the tester chain: blocks that could follow, kept nowhere."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.chain.tester import (
    EMITTER,
    ETHER,
    REVERTER,
    Rpc,
    RpcRefusedError,
    a_tester,
    topic,
    word,
)

POOR, OTHER = "0x" + "b2" * 20, "0x" + "c3" * 20


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


async def _simulated(rpc: Rpc, *blocks: dict[str, Any]) -> Any:
    return await rpc("eth_simulateV1", {"blockStateCalls": blocks}, "latest")


async def test_each_call_sees_the_calls_before_it_in_all_blocks(rpc: Rpc) -> None:
    account, emitter = await rpc.dev_account(), await rpc.deploy(EMITTER)
    emission = {"from": account, "to": emitter, "data": "0x" + word(7) + word(8)}
    reader = {"to": OTHER}
    read_slot = {emitter: {"code": "0x60005460005260206000f3"}}
    first, second = await _simulated(
        rpc,
        {"calls": [emission, emission]},
        {"calls": [{"to": emitter}], "stateOverrides": read_slot},
    )
    assert [call["status"] for call in first["calls"]] == ["0x1", "0x1"]
    assert [log["logIndex"] for call in first["calls"] for log in call["logs"]] == ["0x0", "0x1"]
    assert first["calls"][0]["logs"][0]["topics"] == [topic(7), topic(8)]
    assert second["calls"][0]["returnData"] == topic(2)
    assert (int(first["number"], 16), int(second["number"], 16)) == (2, 3)
    assert second["parentHash"] == first["hash"]
    assert await rpc.number() == 1
    assert await rpc("eth_getStorageAt", emitter, "0x0") == topic(0)
    assert await rpc("eth_call", reader) == "0x"


async def test_money_from_an_override_moves_through_the_blocks(rpc: Rpc) -> None:
    rich = {POOR: {"balance": hex(2 * ETHER)}}
    pay = {"from": POOR, "to": OTHER, "value": hex(ETHER)}
    back = {"from": OTHER, "to": POOR, "value": hex(ETHER)}
    first, second = await _simulated(
        rpc, {"stateOverrides": rich, "calls": [pay]}, {"calls": [back]}
    )
    assert first["calls"][0]["gasUsed"] == second["calls"][0]["gasUsed"] == hex(21_000)
    assert await rpc("eth_getBalance", POOR) == "0x0"


async def test_a_revert_is_told_beside_the_calls_that_succeed(rpc: Rpc) -> None:
    reverter = await rpc.deploy(REVERTER)
    (block,) = await _simulated(
        rpc, {"calls": [{"to": reverter, "data": "0xdeadbeef"}, {"to": OTHER}]}
    )
    failed, succeeded = block["calls"]
    assert (failed["status"], succeeded["status"]) == ("0x0", "0x1")
    assert (failed["error"]["code"], failed["error"]["data"]) == (3, "0xdeadbeef")


async def test_block_overrides_count_from_block_to_block(rpc: Rpc) -> None:
    time = int((await rpc.block())["timestamp"], 16) + 1_000
    first, second = await _simulated(
        rpc, {"blockOverrides": {"time": hex(time), "feeRecipient": OTHER}}, {}
    )
    assert (int(first["timestamp"], 16), first["miner"]) == (time, OTHER)
    assert int(second["timestamp"], 16) == time + 12


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ({"calls": [{"from": POOR, "to": OTHER, "value": "0x1"}]}, -38014),
        ({"calls": [{"to": OTHER, "gas": "0x5207"}]}, -38013),
        ({"calls": [{"to": OTHER, "gas": hex(10**9)}]}, -38015),
        ({"blockOverrides": {"number": "0x0"}}, -38020),
        ({"blockOverrides": {"time": "0x1"}}, -38021),
        ({"calls": 5}, -32602),
    ],
)
async def test_calls_and_blocks_that_no_chain_could_hold_are_refused(
    rpc: Rpc, block: dict[str, Any], code: int
) -> None:
    with pytest.raises(RpcRefusedError) as fault:
        await _simulated(rpc, block)
    assert fault.value.code == code


async def test_options_that_would_be_ignored_are_refused(rpc: Rpc) -> None:
    for option in ("validation", "traceTransfers"):
        with pytest.raises(RpcRefusedError, match=option):
            await rpc("eth_simulateV1", {"blockStateCalls": [], option: True}, "latest")
