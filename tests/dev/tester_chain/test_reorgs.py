"""Reorgs, reverts and cheat codes of the tester chain, and the blocks found after them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.chain.tester import (
    EMITTER,
    ETHER,
    Rpc,
    RpcRefusedError,
    Wallet,
    a_tester,
    a_tester_mined_by_hand,
    word,
)


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester_mined_by_hand() as rpc:
        yield rpc


async def _mined(rpc: Rpc, raw: str) -> str:
    sent = str(await rpc("eth_sendRawTransaction", raw))
    await rpc("evm_mine")
    return sent


async def test_a_reorg_replaces_as_many_blocks_as_it_drops(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    await rpc("anvil_mine", 2)
    kept = await _mined(rpc, wallet.signed(0))
    dropped = await _mined(rpc, wallet.signed(1))
    await rpc("anvil_mine", 2)
    before = [await rpc.block(number) for number in range(7)]

    await rpc("anvil_reorg", 3, [])

    after = [await rpc.block(number) for number in range(7)]
    assert after[:4] == before[:4]
    assert all(new["hash"] != old["hash"] for new, old in zip(after[4:], before[4:], strict=True))
    assert after[4]["parentHash"] == before[3]["hash"]
    assert await rpc("eth_getTransactionReceipt", dropped) is None
    assert await rpc("eth_getTransactionByHash", dropped) is None
    assert await rpc("eth_getTransactionReceipt", kept) is not None
    assert await rpc("eth_getTransactionCount", wallet.address, "latest") == "0x1"


async def test_an_orphaned_block_is_found_by_hash_with_its_logs() -> None:
    async with a_tester() as rpc:
        emitter = await rpc.deploy(EMITTER)
        call = {"from": await rpc.dev_account(), "to": emitter, "data": "0x" + word(1) + word(2)}
        receipt = await rpc.receipt(await rpc("eth_sendTransaction", call))
        old = await rpc("eth_getBlockByHash", receipt["blockHash"], False)

        await rpc("anvil_reorg", 1, [])

        assert await rpc("eth_getBlockByHash", old["hash"], False) == old
        assert await rpc("eth_getLogs", {"blockHash": old["hash"]}) == receipt["logs"]
        assert await rpc("eth_getBlockReceipts", old["hash"]) == [receipt]
        assert (await rpc.block())["hash"] != old["hash"]
        assert await rpc("eth_getLogs", {"fromBlock": "0x0"}) == []
        assert await rpc("eth_getTransactionReceipt", receipt["transactionHash"]) is None
        assert await rpc("eth_getStorageAt", emitter, "0x0", "latest") == "0x" + word(0)
        assert await rpc("eth_getStorageAt", emitter, "0x0", {"blockHash": old["hash"]}) == (
            "0x" + word(1)
        )
        with pytest.raises(RpcRefusedError, match="not currently canonical"):
            await rpc(
                "eth_getBalance",
                emitter,
                {"blockHash": old["hash"], "requireCanonical": True},
            )


async def test_a_reorged_transaction_can_be_sent_again(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    await rpc("evm_mine")
    raw = wallet.signed(0)
    sent = await _mined(rpc, raw)
    await rpc("anvil_reorg", 1, [])
    assert await _mined(rpc, raw) == sent
    assert (await rpc.receipt(sent))["blockNumber"] == "0x3"


async def test_a_reorg_holds_the_given_transactions_in_the_given_blocks(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    await rpc("anvil_mine", 3)
    dev = await rpc.dev_account()
    plain = {"from": dev, "to": "0x" + "11" * 20, "value": "0x1"}
    await rpc("anvil_reorg", 3, [[wallet.signed(0), 0], [plain, 2], [plain, 2]])
    counts = [len((await rpc.block(number))["transactions"]) for number in (1, 2, 3)]
    assert counts == [1, 0, 2]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([4, []], "must not exceed current chain height: current height 3, depth 4"),
        ([2, [["0x00", 2]]], "cannot exceed depth - 1"),
        ([], "depth"),
    ],
)
async def test_an_impossible_reorg_changes_nothing(
    rpc: Rpc, params: list[Any], message: str
) -> None:
    await rpc("anvil_mine", 3)
    head = await rpc.block()
    with pytest.raises(RpcRefusedError) as fault:
        await rpc("anvil_reorg", *params)
    assert message in fault.value.message
    assert await rpc.block() == head


async def test_a_rollback_shortens_the_chain(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    await rpc("evm_mine")
    sent = await _mined(rpc, wallet.signed(0))
    old = await rpc.block()
    await rpc("anvil_rollback")
    assert await rpc.number() == 1
    assert await rpc("eth_getTransactionReceipt", sent) is None
    assert await rpc("eth_getBlockByHash", old["hash"], False) == old
    await rpc("anvil_rollback", 1)
    assert await rpc.number() == 0


async def test_a_waiting_successor_survives_a_reorg_of_its_predecessor(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    await rpc("evm_mine")
    raw = wallet.signed(0)
    await _mined(rpc, raw)
    later = await rpc("eth_sendRawTransaction", wallet.signed(1))
    await rpc("anvil_reorg", 1, [])
    await rpc("evm_mine")
    assert await rpc("eth_getTransactionReceipt", later) is None
    await _mined(rpc, raw)
    assert await rpc("eth_getTransactionReceipt", later) is not None


async def test_a_snapshot_brings_back_state_blocks_and_time_once(rpc: Rpc) -> None:
    wallet = Wallet()
    await rpc("anvil_setBalance", wallet.address, hex(ETHER))
    first, second = await rpc("evm_snapshot"), await rpc("evm_snapshot")
    assert first != second
    await rpc("anvil_setBalance", wallet.address, hex(2 * ETHER))
    await rpc("evm_increaseTime", 1_000_000)
    await _mined(rpc, wallet.signed(0))

    assert await rpc("evm_revert", first) is True
    assert await rpc.number() == 0
    assert await rpc("eth_getBalance", wallet.address, "latest") == hex(ETHER)
    assert await rpc("eth_getTransactionCount", wallet.address, "latest") == "0x0"
    await rpc("evm_mine")
    elapsed = int((await rpc.block())["timestamp"], 16) - int((await rpc.block(0))["timestamp"], 16)
    assert elapsed < 1_000
    assert await rpc("evm_revert", first) is False
    assert await rpc("evm_revert", second) is False


async def test_a_snapshot_outlives_a_reorg_of_its_block(rpc: Rpc) -> None:
    await rpc("anvil_mine", 3)
    old = await rpc.block()
    snapshot = await rpc("evm_snapshot")
    await rpc("anvil_reorg", 2, [])
    assert await rpc("evm_revert", snapshot) is True
    assert await rpc.block() == old
    assert (await rpc.block(2))["hash"] == old["parentHash"]


async def test_decrees_change_balance_nonce_code_and_storage(rpc: Rpc) -> None:
    somebody = "0x" + "cd" * 20
    await rpc("anvil_setBalance", somebody, "0x7")
    await rpc("hardhat_setNonce", somebody, "0x5")
    await rpc("anvil_setCode", somebody, "0x6001")
    await rpc("anvil_setStorageAt", somebody, "0x3", "0x" + word(9))
    await rpc("evm_mine")
    assert await rpc("eth_getBalance", somebody, "latest") == "0x7"
    assert await rpc("eth_getTransactionCount", somebody, "pending") == "0x5"
    assert await rpc("eth_getCode", somebody, "latest") == "0x6001"
    assert await rpc("eth_getStorageAt", somebody, "0x3", "latest") == "0x" + word(9)
