"""The tester chain's settings for its blocks and accounts, under anvil's names."""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from tests.support.chain.tester import EMITTER, ETHER, Rpc, RpcRefusedError, a_tester, topic

ACCOUNT = "0x" + "a1" * 20


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


async def test_blocks_keep_the_interval_that_was_set(rpc: Rpc) -> None:
    await rpc("anvil_setBlockTimestampInterval", 30)
    await rpc("anvil_mine", "0x3")
    times = [int((await rpc.block(height))["timestamp"], 16) for height in range(4)]
    assert [later - earlier for earlier, later in pairwise(times)] == [30] * 3
    assert await rpc("anvil_removeBlockTimestampInterval") is True
    assert await rpc("anvil_removeBlockTimestampInterval") is False


async def test_the_coinbase_gets_the_tips_of_later_blocks(rpc: Rpc) -> None:
    await rpc("anvil_setCoinbase", ACCOUNT)
    account = await rpc.dev_account()
    sent = await rpc("eth_sendTransaction", {"from": account, "to": account})
    receipt = await rpc.receipt(sent)
    block = await rpc.block(1)
    tip = int(receipt["effectiveGasPrice"], 16) - int(block["baseFeePerGas"], 16)
    assert (block["miner"], await rpc("eth_coinbase")) == (ACCOUNT, ACCOUNT)
    assert int(await rpc("eth_getBalance", ACCOUNT), 16) == tip * 21_000 > 0


async def test_a_balance_grows_by_what_is_added(rpc: Rpc) -> None:
    for _ in range(2):
        await rpc("anvil_addBalance", ACCOUNT, hex(ETHER))
    assert await rpc("eth_getBalance", ACCOUNT) == hex(2 * ETHER)


async def test_the_gas_limit_of_later_blocks_bounds_their_transactions(rpc: Rpc) -> None:
    assert await rpc("evm_setBlockGasLimit", hex(1_000_000)) is True
    account = await rpc.dev_account()
    with pytest.raises(RpcRefusedError, match="exceeds block gas limit"):
        await rpc("eth_sendTransaction", {"from": account, "to": account, "gas": hex(1_000_001)})
    await rpc("evm_mine")
    assert (await rpc.block())["gasLimit"] == hex(1_000_000)


async def test_a_reset_chain_is_as_it_began(rpc: Rpc) -> None:
    genesis, account = await rpc.block(0), await rpc.dev_account()
    balance = await rpc("eth_getBalance", account)
    await rpc("anvil_setBalance", ACCOUNT, hex(ETHER))
    emitter = await rpc.deploy(EMITTER)
    await rpc("evm_increaseTime", 1_000)
    await rpc("anvil_reset")
    assert await rpc.block() == genesis
    assert await rpc("eth_getCode", emitter) == "0x"
    assert await rpc("eth_getBalance", account) == balance
    assert await rpc("eth_getBalance", ACCOUNT) == "0x0"
    with pytest.raises(RpcRefusedError, match="cannot fork"):
        await rpc("anvil_reset", {"forking": {"jsonRpcUrl": "http://127.0.0.1:1"}})
    assert await rpc.deploy(EMITTER) == emitter


async def test_the_pool_is_told_as_text(rpc: Rpc) -> None:
    await rpc("evm_setAutomine", False)
    wallet = await rpc.funded()
    await rpc("eth_sendRawTransaction", wallet.signed(0))
    await rpc("eth_sendRawTransaction", wallet.signed(2, to=None, gas=60_000))
    texts = await rpc("txpool_inspect")
    price = 10_000_000_000
    assert texts["pending"][wallet.address] == {
        "0": f"0x{'11' * 20}: 1 wei + 21000 gas \N{MULTIPLICATION SIGN} {price} wei"
    }
    assert texts["queued"][wallet.address] == {
        "2": f"contract creation: 1 wei + 60000 gas \N{MULTIPLICATION SIGN} {price} wei"
    }


async def test_storage_is_set_by_a_word_and_by_a_quantity(rpc: Rpc) -> None:
    await rpc("anvil_setStorageAt", ACCOUNT, topic(1), topic(7))
    await rpc("hardhat_setStorageAt", ACCOUNT, "0x2", topic(8))
    assert await rpc("eth_getStorageAt", ACCOUNT, "0x1") == topic(7)
    assert await rpc("eth_getStorageAt", ACCOUNT, topic(2)) == topic(8)


async def test_a_minimal_gas_price_is_refused_where_blocks_have_a_base_fee(rpc: Rpc) -> None:
    with pytest.raises(RpcRefusedError, match="EIP-1559") as fault:
        await rpc("anvil_setMinGasPrice", "0x1")
    assert fault.value.code == -32602
