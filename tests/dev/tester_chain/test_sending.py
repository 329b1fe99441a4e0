"""Sending to the tester chain that waits for the receipt, and transactions that it completes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from eth_account import Account

from tests.support.chain.tester import (
    ETHER,
    Rpc,
    RpcRefusedError,
    a_tester,
    a_tester_mined_by_hand,
)
from tests.support.waiting import until


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


async def test_a_sync_method_answers_with_the_receipt(rpc: Rpc) -> None:
    account, wallet = await rpc.dev_account(), await rpc.funded()
    by_account = await rpc("eth_sendTransactionSync", {"from": account, "to": wallet.address})
    by_bytes = await rpc("eth_sendRawTransactionSync", wallet.signed(0))
    assert (by_account["from"], by_bytes["from"]) == (account, wallet.address)
    for receipt in (by_account, by_bytes):
        assert receipt == await rpc("eth_getTransactionReceipt", receipt["transactionHash"])


async def test_a_sync_method_waits_for_a_block_that_comes_later() -> None:
    async with a_tester_mined_by_hand() as rpc:
        wallet = await rpc.funded()
        sending = asyncio.create_task(rpc("eth_sendRawTransactionSync", wallet.signed(0)))

        async def is_pooled() -> bool:
            return bool((await rpc("txpool_status"))["pending"] == "0x1")

        await until(is_pooled)
        await rpc("evm_mine")
        assert (await sending)["blockNumber"] == "0x1"


async def test_a_sync_method_that_times_out_names_the_hash_and_keeps_the_transaction() -> None:
    async with a_tester_mined_by_hand() as rpc:
        raw = (await rpc.funded()).signed(0)
        with pytest.raises(RpcRefusedError) as fault:
            await rpc("eth_sendRawTransactionSync", raw, 1)
        assert fault.value.code == 4
        await rpc("evm_mine")
        assert fault.value.data is not None
        assert (await rpc.receipt(fault.value.data))["status"] == "0x1"


async def test_a_sync_method_refuses_at_once_what_the_pool_refuses(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    await rpc("eth_sendRawTransactionSync", wallet.signed(0))
    with pytest.raises(RpcRefusedError, match="nonce too low"):
        await rpc("eth_sendRawTransactionSync", wallet.signed(0, value=2))


async def test_a_filled_transaction_can_be_signed_and_sent_as_it_is(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    wanted = {"from": wallet.address, "to": "0x" + "11" * 20, "value": hex(ETHER)}
    filled = (await rpc("eth_fillTransaction", wanted))["tx"]
    fields = {
        name: int(filled[name], 16)
        for name in ("nonce", "gas", "value", "maxFeePerGas", "maxPriorityFeePerGas", "chainId")
    }
    to = Account.create().address
    signed = wallet.account.sign_transaction({**fields, "to": to, "type": 2})
    sent = await rpc("eth_sendRawTransaction", "0x" + signed.raw_transaction.hex())
    assert (await rpc.receipt(sent))["status"] == "0x1"
    assert await rpc("eth_getBalance", to) == hex(ETHER)
