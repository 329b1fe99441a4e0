"""The tester chain's pool orders by nonce and refuses with geth's messages."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ltzd.dev.tester_chain import DEFAULT_CHAIN_ID
from ltzd.dev.tester_chain.execution.transaction import decode_raw
from ltzd.dev.tester_chain.pool import TransactionPool
from ltzd.values import bytes_of
from tests.support.chain.tester import (
    BURNER,
    ETHER,
    GWEI,
    REVERTER,
    Rpc,
    RpcRefusedError,
    Wallet,
    a_tester,
    a_tester_mined_by_hand,
)
from tests.support.waiting import until


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester_mined_by_hand() as rpc:
        yield rpc


async def _send(rpc: Rpc, raw: str) -> str:
    return str(await rpc("eth_sendRawTransaction", raw))


async def test_nonces_sent_backwards_are_mined_forwards(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    sent = [await _send(rpc, wallet.signed(nonce)) for nonce in (3, 1, 2)]
    await rpc("evm_mine")
    assert (await rpc.block())["transactions"] == []
    assert await rpc("eth_getTransactionCount", wallet.address, "pending") == "0x0"

    sent.append(await _send(rpc, wallet.signed(0)))
    assert await rpc("eth_getTransactionCount", wallet.address, "pending") == "0x4"
    await rpc("evm_mine")
    mined = (await rpc.block())["transactions"]
    assert mined == [sent[3], sent[1], sent[2], sent[0]]
    assert await rpc("eth_getTransactionCount", wallet.address, "latest") == "0x4"


async def test_a_waiting_transaction_is_found_without_a_block(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    sent = await _send(rpc, wallet.signed(0))
    transaction = await rpc("eth_getTransactionByHash", sent)
    assert (transaction["hash"], transaction["blockHash"]) == (sent, None)
    assert await rpc("eth_getTransactionReceipt", sent) is None


async def test_the_higher_tip_goes_first(rpc: Rpc) -> None:
    poor, rich = await rpc.funded(), await rpc.funded()
    low = await _send(rpc, poor.signed(0))
    high = await _send(rpc, rich.signed(0, maxPriorityFeePerGas=2 * GWEI))
    await rpc("evm_mine")
    assert (await rpc.block())["transactions"] == [high, low]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gas": 20_999}, "intrinsic gas too low: gas 20999, minimum needed 21000"),
        ({"value": 101 * ETHER}, "insufficient funds for gas * price + value"),
        ({"chainId": 1}, "invalid chain id for signer: have 1 want"),
        ({"gas": 60_000_001}, "exceeds block gas limit"),
        ({"maxPriorityFeePerGas": 11 * GWEI}, "max priority fee per gas higher than max fee"),
        ({"data": "0x" + "00" * 49_153, "to": None}, "max initcode size exceeded"),
        ({"data": "0x" + "01" * 1_000, "gas": 60_999}, "gas 60999, minimum needed 61000"),
        (
            {"maxFeePerGas": GWEI // 2, "maxPriorityFeePerGas": 1},
            "max fee per gas less than block base fee: address 0x",
        ),
    ],
)
async def test_a_refusal_is_spelt_as_geth_does(
    rpc: Rpc, changes: dict[str, Any], message: str
) -> None:
    wallet = await rpc.funded()
    with pytest.raises(RpcRefusedError) as fault:
        await _send(rpc, wallet.signed(0, **changes))
    assert message in fault.value.message
    assert fault.value.code == -32000


async def test_the_same_bytes_are_known_while_they_wait_and_too_low_once_mined(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    raw = wallet.signed(0)
    await _send(rpc, raw)
    with pytest.raises(RpcRefusedError, match=r"^already known$"):
        await _send(rpc, raw)
    await rpc("evm_mine")
    with pytest.raises(RpcRefusedError, match=r"^nonce too low: next nonce 1, tx nonce 0$"):
        await _send(rpc, raw)


async def test_a_replacement_pays_a_tenth_more_in_both_fees(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    first = await _send(rpc, wallet.signed(0))
    for fees in (
        {"maxFeePerGas": 11 * GWEI, "maxPriorityFeePerGas": GWEI},
        {"maxFeePerGas": 10 * GWEI, "maxPriorityFeePerGas": 2 * GWEI},
        {"maxFeePerGas": 11 * GWEI - 1, "maxPriorityFeePerGas": 2 * GWEI},
    ):
        with pytest.raises(RpcRefusedError, match=r"^replacement transaction underpriced$"):
            await _send(rpc, wallet.signed(0, **fees))

    better = {"maxFeePerGas": 11 * GWEI, "maxPriorityFeePerGas": GWEI * 11 // 10}
    second = await _send(rpc, wallet.signed(0, **better))
    assert await rpc("eth_getTransactionByHash", first) is None
    await rpc("evm_mine")
    assert (await rpc.block())["transactions"] == [second]


async def test_what_waits_counts_against_the_balance(rpc: Rpc) -> None:
    wallet = await rpc.funded(ether=1)
    await _send(rpc, wallet.signed(0, value=ETHER * 6 // 10))
    with pytest.raises(RpcRefusedError, match="insufficient funds for gas \\* price \\+ value"):
        await _send(rpc, wallet.signed(1, value=ETHER * 6 // 10))
    await _send(rpc, wallet.signed(1, value=ETHER * 3 // 10))


async def test_a_broken_signature_is_refused(rpc: Rpc) -> None:
    raw = (await rpc.funded()).signed(0)
    with pytest.raises(RpcRefusedError, match=r"invalid sender|insufficient funds"):
        # Another s is either no signature or that of somebody without funds.
        await _send(rpc, raw[:-8] + "00000000")


@pytest.mark.parametrize("kind", [0, 1, 2])
async def test_each_transaction_type_is_mined_and_shown_with_its_fields(
    rpc: Rpc, kind: int
) -> None:
    wallet = await rpc.funded()
    fees: dict[str, Any] = {} if kind == 2 else {"gasPrice": 3 * GWEI}
    if kind == 1:
        fees |= {"accessList": [{"address": "0x" + "22" * 20, "storageKeys": ["0x" + "00" * 32]}]}
    sent = await _send(rpc, wallet.signed(0, gas=30_000, **fees))
    await rpc("evm_mine")
    transaction = await rpc("eth_getTransactionByHash", sent)
    receipt = await rpc("eth_getTransactionReceipt", sent)
    assert (transaction["hash"], transaction["type"], transaction["from"]) == (
        sent,
        hex(kind),
        wallet.address,
    )
    assert ("maxFeePerGas" in transaction) is (kind == 2)
    assert len(transaction.get("accessList", [])) == (kind == 1)
    assert (receipt["status"], receipt["type"]) == ("0x1", hex(kind))


async def test_blobs_are_not_supported_and_that_is_said(rpc: Rpc) -> None:
    with pytest.raises(RpcRefusedError, match="transaction type not supported"):
        await _send(rpc, "0x03c0")


async def test_a_reverting_transaction_is_mined_with_status_0(rpc: Rpc) -> None:
    await rpc("evm_setAutomine", True)
    reverter = await rpc.deploy(REVERTER)
    wallet = await rpc.funded()
    sent = await _send(rpc, wallet.signed(0, to=reverter, data="0x01", gas=50_000))
    receipt = await rpc.receipt(sent)
    assert (receipt["status"], receipt["logs"]) == ("0x0", [])
    assert await rpc("eth_getTransactionCount", wallet.address, "latest") == "0x1"


async def test_a_transaction_that_can_no_longer_be_paid_is_dropped(rpc: Rpc) -> None:
    wallet, other = await rpc.funded(), await rpc.funded()
    sent = await _send(rpc, wallet.signed(0, value=ETHER))
    await _send(rpc, other.signed(0))
    await rpc("anvil_setBalance", wallet.address, "0x1")
    await rpc("evm_mine")
    assert len((await rpc.block())["transactions"]) == 1
    assert await rpc("eth_getTransactionByHash", sent) is None


async def test_a_base_fee_that_rises_above_a_cap_leaves_the_transaction_waiting(rpc: Rpc) -> None:
    wallet, other = await rpc.funded(), await rpc.funded()
    cap = 2 * GWEI
    sent = await _send(rpc, wallet.signed(0, maxFeePerGas=cap, maxPriorityFeePerGas=2))
    dearer = await _send(rpc, other.signed(0))
    await rpc("anvil_setNextBlockBaseFeePerGas", hex(cap + 1))
    await rpc("evm_mine")
    assert (await rpc.block())["transactions"] == [dearer]
    assert (await rpc("eth_getTransactionByHash", sent))["blockHash"] is None
    await rpc("anvil_setNextBlockBaseFeePerGas", hex(cap - 1))
    await rpc("evm_mine")
    receipt = await rpc("eth_getTransactionReceipt", sent)
    assert receipt["effectiveGasPrice"] == hex(cap)


def test_only_old_transactions_that_cannot_be_executed_expire() -> None:
    """The second sender has a nonce gap; the third one's cap is below the base fee."""
    pool = TransactionPool(DEFAULT_CHAIN_ID, 30_000_000, lifetime_seconds=60)
    raws = [Wallet().signed(0), Wallet().signed(1), Wallet().signed(0, maxFeePerGas=2 * GWEI)]
    transactions = [decode_raw(bytes_of(raw)) for raw in raws]
    for transaction in transactions:
        pool.add(transaction, 0, ETHER, GWEI, now=100.0)
    pool.expire(160.0, lambda _: 0, base_fee=3 * GWEI)
    assert len(pool) == 3
    pool.expire(160.1, lambda _: 0, base_fee=3 * GWEI)
    assert [pool.find(each.hash) for each in transactions] == [transactions[0], None, None]


async def test_a_full_block_leaves_the_rest_for_the_next(rpc: Rpc) -> None:
    await rpc("evm_setAutomine", True)
    burner = await rpc.deploy(BURNER)
    await rpc("evm_setAutomine", False)
    for wallet in [await rpc.funded() for _ in range(3)]:
        await _send(rpc, wallet.signed(0, to=burner, gas=25_000_000))
    await rpc("anvil_mine", 2)
    counts = [len((await rpc.block(number))["transactions"]) for number in (2, 3)]
    assert counts == [2, 1]


async def test_dropped_transactions_are_gone(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    first, second = [await _send(rpc, wallet.signed(nonce)) for nonce in (0, 1)]
    assert await rpc("anvil_dropTransaction", first) == first
    assert await rpc("anvil_dropTransaction", first) is None
    assert await rpc("txpool_status") == {"pending": "0x0", "queued": "0x1"}
    await rpc("anvil_dropAllTransactions")
    assert await rpc("eth_getTransactionByHash", second) is None


async def test_an_impersonated_account_sends_without_a_key(rpc: Rpc) -> None:
    somebody = "0x" + "ab" * 20
    await rpc("anvil_setBalance", somebody, hex(ETHER))
    call = {"from": somebody, "to": "0x" + "11" * 20, "value": "0x5"}
    with pytest.raises(RpcRefusedError, match="unknown account"):
        await rpc("eth_sendTransaction", call)
    await rpc("anvil_impersonateAccount", somebody)
    sent = await rpc("eth_sendTransaction", call)
    await rpc("evm_mine")
    assert (await rpc.receipt(sent))["from"] == somebody


async def test_200_concurrent_senders_on_demand_are_all_mined() -> None:
    async with a_tester() as rpc:
        wallets = [Wallet() for _ in range(20)]
        for wallet in wallets:
            await rpc("anvil_setBalance", wallet.address, hex(ETHER))
        raws = [wallet.signed(nonce) for nonce in range(10) for wallet in wallets]
        # The last nonces first, so that most arrive before they can be mined.
        sent = await asyncio.gather(*(_send(rpc, raw) for raw in reversed(raws)))

        async def all_are_mined() -> bool:
            status = await rpc("txpool_status")
            return bool(status == {"pending": "0x0", "queued": "0x0"})

        await until(all_are_mined, seconds=20)
        receipts = await asyncio.gather(
            *(rpc("eth_getTransactionReceipt", transaction_hash) for transaction_hash in sent)
        )
        assert {receipt["status"] for receipt in receipts} == {"0x1"}
        assert await rpc.number() < 200


async def test_one_senders_concurrent_sends_from_an_unlocked_account_all_get_a_nonce() -> None:
    async with a_tester() as rpc:
        dev = await rpc.dev_account()
        call = {"from": dev, "to": "0x" + "11" * 20, "value": "0x1"}
        sent = await asyncio.gather(*(rpc("eth_sendTransaction", call) for _ in range(50)))
        receipts = await asyncio.gather(
            *(rpc.receipt(transaction_hash) for transaction_hash in sent)
        )
        assert len({receipt["transactionHash"] for receipt in receipts}) == 50
