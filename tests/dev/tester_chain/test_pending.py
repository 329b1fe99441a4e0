"""The pending block, mining and clocks, on the tester chain and on anvil."""

import time
from typing import Any

import pytest

from tests.support.chain.either_chain import KINDS, BothChains, either_chain
from tests.support.chain.tester import EMITTER, ETHER, GWEI, Rpc, RpcRefusedError, Wallet, word
from tests.support.waiting import until

THERE = "0x" + "13" * 20
CALLDATA = "0x" + word(1) + word(2)
# Creation code that answers the balance of THERE.
BALANCE_OF_THERE = f"0x73{'13' * 20}315f5260205ff3"


@pytest.fixture
async def emitter(node: Rpc) -> str:
    return await node.deploy(EMITTER)


async def _send(node: Rpc, wallet: Wallet, nonce: int, **changes: Any) -> str:
    return str(await node("eth_sendRawTransaction", wallet.signed(nonce, **changes)))


async def test_pending_reads_see_the_pool_and_latest_ones_do_not(
    emitter: str, node_mined_by_hand: Rpc
) -> None:
    node = node_mined_by_hand
    wallet = await node.funded()
    await _send(node, wallet, 0, to=THERE, value=7)
    await _send(node, wallet, 1, to=emitter, data=CALLDATA, gas=100_000)
    await _send(node, wallet, 3, to=THERE, value=9)

    async def reads(block: str) -> list[int]:
        answers = [
            await node("eth_getTransactionCount", wallet.address, block),
            await node("eth_getBalance", THERE, block),
            await node("eth_getStorageAt", emitter, "0x0", block),
            await node("eth_call", {"data": BALANCE_OF_THERE}, block),
        ]
        return [int(answer, 16) for answer in answers]

    assert await reads("latest") == [0, 0, 0, 0]
    assert await reads("pending") == [2, 7, 1, 7]
    spent = 100 * ETHER - int(await node("eth_getBalance", wallet.address, "pending"), 16)
    assert spent > 7 + 21_000 * GWEI
    await node("evm_mine")
    assert await reads("latest") == [2, 7, 1, 7]


async def test_the_pending_block_is_a_whole_block_that_is_not_found_by_its_hash(
    emitter: str, node_mined_by_hand: Rpc
) -> None:
    node = node_mined_by_hand
    wallet = await node.funded()
    sent = await _send(node, wallet, 0, to=emitter, data=CALLDATA, gas=100_000)
    head = await node.block()
    pending = await node("eth_getBlockByNumber", "pending", True)
    assert (pending["parentHash"], int(pending["number"], 16)) == (
        head["hash"],
        int(head["number"], 16) + 1,
    )
    assert [each["hash"] for each in pending["transactions"]] == [sent]
    assert None not in pending.values()
    assert int(pending["gasUsed"], 16) > 21_000
    assert int(pending["logsBloom"], 16) > 0
    assert await node("eth_getBlockByHash", pending["hash"], False) is None
    assert await node("eth_getTransactionReceipt", sent) is None
    assert await node("eth_getBlockTransactionCountByNumber", "pending") == "0x1"
    assert await node("eth_getBlockReceipts", "pending") is None
    await node("evm_mine")
    mined = await node.block()
    assert mined["logsBloom"] == pending["logsBloom"]
    assert mined["gasUsed"] == pending["gasUsed"]
    assert mined["baseFeePerGas"] == pending["baseFeePerGas"]


async def test_an_estimate_counts_on_what_waits(emitter: str, node_mined_by_hand: Rpc) -> None:
    """The emitter's first call writes a slot for the first time and costs 17,100 more."""
    node = node_mined_by_hand
    wallet = await node.funded()
    call = {"from": wallet.address, "to": emitter, "data": CALLDATA}
    first = int(await node("eth_estimateGas", call), 16)
    await _send(node, wallet, 0, to=emitter, data=CALLDATA, gas=first)
    then = int(await node("eth_estimateGas", call), 16)
    assert 15_000 < first - then < 20_000
    assert int(await node("eth_estimateGas", call, "latest"), 16) == first


async def test_an_empty_pool_has_a_pending_block_like_the_next(node_mined_by_hand: Rpc) -> None:
    node = node_mined_by_hand
    pending = await node.block("pending")
    assert (pending["transactions"], pending["gasUsed"]) == ([], "0x0")
    await node("evm_mine")
    mined = await node.block()
    for field in ("number", "parentHash", "gasLimit", "baseFeePerGas", "miner"):
        assert mined[field] == pending[field]


async def test_on_demand_the_receipt_is_there_when_sending_returns(
    both_chains: BothChains,
) -> None:
    """On an idle machine anvil does the same, but does not promise it."""
    node = await both_chains.of("tester")
    emitter = await node.deploy(EMITTER)
    wallet = await node.funded()
    for nonce in range(20):
        sent = await _send(node, wallet, nonce, to=emitter, data=CALLDATA, gas=100_000)
        assert (await node("eth_getTransactionReceipt", sent))["status"] == "0x1"
        count = await node("eth_getTransactionCount", wallet.address, "latest")
        assert count == hex(nonce + 1)


async def test_on_demand_a_transaction_with_a_nonce_gap_does_not_keep_its_sender_waiting(
    node: Rpc,
) -> None:
    wallet = await node.funded()
    sent = await _send(node, wallet, 1)
    assert await node("eth_getTransactionReceipt", sent) is None
    await _send(node, wallet, 0)
    assert (await node.receipt(sent))["status"] == "0x1"


async def test_blocks_of_one_second_do_not_run_ahead_of_the_clock(node: Rpc) -> None:
    before = int((await node.block())["timestamp"], 16)
    began = time.monotonic()
    clock = int((await node.block("pending"))["timestamp"], 16)
    for _ in range(20):
        await node("evm_mine")
    passed = time.monotonic() - began
    head = await node.number()
    times = [int((await node.block(head - age))["timestamp"], 16) for age in range(19, -1, -1)]
    assert times == sorted(times)
    assert times[0] >= before
    assert times[-1] <= clock + passed + 1


@pytest.mark.parametrize("kind", KINDS)
async def test_blocks_less_than_a_second_apart_do_not_run_ahead_of_the_clock(kind: str) -> None:
    async with either_chain(kind, block_time=0.1) as rpc:

        async def has_15_blocks() -> bool:
            return await rpc.number() >= 15

        await until(has_15_blocks)
        times = [int((await rpc.block(number))["timestamp"], 16) for number in range(16)]
        assert times == sorted(times)
        assert times[-1] <= time.time() + 2


async def test_a_next_timestamp_may_equal_the_last_but_not_precede_it(
    node_mined_by_hand: Rpc,
) -> None:
    node = node_mined_by_hand
    last = int((await node.block())["timestamp"], 16)
    await node("evm_setNextBlockTimestamp", last)
    await node("evm_mine")
    assert (await node.block())["timestamp"] == hex(last)
    with pytest.raises(RpcRefusedError, match="is lower than"):
        await node("evm_setNextBlockTimestamp", last - 1)


async def test_mining_with_an_interval_moves_the_clock_before_each_block(
    node_mined_by_hand: Rpc,
) -> None:
    node = node_mined_by_hand
    clock = int((await node.block("pending"))["timestamp"], 16)
    await node("anvil_mine", "0x3", "0x3c")
    head = await node.number()
    times = [int((await node.block(head - age))["timestamp"], 16) for age in (2, 1, 0)]
    assert 60 <= times[0] - clock < 120
    assert 120 <= times[2] - times[0] < 180


async def test_a_cap_below_the_next_base_fee_is_refused_at_once(node_mined_by_hand: Rpc) -> None:
    node = node_mined_by_hand
    wallet = await node.funded()
    await node("anvil_setNextBlockBaseFeePerGas", hex(3 * GWEI))
    for fees in (
        {"maxFeePerGas": 3 * GWEI - 1, "maxPriorityFeePerGas": 1},
        {"gasPrice": 3 * GWEI - 1},
    ):
        with pytest.raises(RpcRefusedError, match="max fee per gas less than block base fee"):
            await _send(node, wallet, 0, **fees)
    assert await node("txpool_status") == {"pending": "0x0", "queued": "0x0"}
    await _send(node, wallet, 0, gasPrice=3 * GWEI)


async def test_a_block_named_by_hash_is_read_and_an_unknown_one_refused(
    node: Rpc, emitter: str
) -> None:
    wallet = await node.funded()
    call = {"to": emitter, "data": CALLDATA, "gas": 100_000}
    first, _ = [await node.receipt(await _send(node, wallet, nonce, **call)) for nonce in (0, 1)]
    block = await node("eth_getBlockByHash", first["blockHash"], False)
    reads: list[tuple[str, list[Any]]] = [
        ("eth_call", [{"to": emitter}]),
        ("eth_getBalance", [wallet.address]),
        ("eth_getTransactionCount", [wallet.address]),
        ("eth_getCode", [emitter]),
        ("eth_getStorageAt", [emitter, "0x0"]),
    ]
    for method, arguments in reads:
        by_number = await node(method, *arguments, block["number"])
        for canonical in ({}, {"requireCanonical": True}, {"requireCanonical": False}):
            reference = {"blockHash": block["hash"]} | canonical
            assert await node(method, *arguments, reference) == by_number
        for reference in (
            {"blockHash": "0x" + "77" * 32, "requireCanonical": True},
            {"blockHash": block["hash"], "blockNumber": block["number"]},
            {},
        ):
            with pytest.raises(RpcRefusedError):
                await node(method, *arguments, reference)
    storage = await node("eth_getStorageAt", emitter, "0x0", {"blockHash": block["hash"]})
    assert int(storage, 16) == 1

    await node("anvil_reorg", 2, [])
    for method, arguments in reads:
        reference = {"blockHash": block["hash"], "requireCanonical": True}
        with pytest.raises(RpcRefusedError, match=r"not currently canonical|not found"):
            await node(method, *arguments, reference)


async def test_the_pending_block_follows_what_comes_to_the_pool_and_what_leaves_it(
    emitter: str, node_mined_by_hand: Rpc
) -> None:
    node = node_mined_by_hand
    wallet, other = await node.funded(), await node.funded()

    async def pending() -> tuple[set[str], int, int]:
        """The transactions, the number of calls that the emitter has counted, and the gas used."""
        block = await node.block("pending")
        count = await node("eth_getStorageAt", emitter, "0x0", "pending")
        return set(block["transactions"]), int(count, 16), int(block["gasUsed"], 16)

    async def call(sender: Wallet, nonce: int, **fees: int) -> str:
        return await _send(node, sender, nonce, to=emitter, data=CALLDATA, gas=100_000, **fees)

    first = await call(wallet, 0)
    assert (await pending())[:2] == ({first}, 1)
    second = await call(wallet, 1)
    dearer = await call(other, 0, maxPriorityFeePerGas=3 * GWEI)
    transactions, count, gas_used = await pending()
    assert (transactions, count) == ({first, second, dearer}, 3)

    await node("evm_increaseTime", 1_000)
    clock = int((await node.block("pending"))["timestamp"], 16)
    assert clock > int((await node.block())["timestamp"], 16) + 900
    await node("anvil_dropTransaction", dearer)
    assert (await pending())[:2] == ({first, second}, 2)
    third = await call(wallet, 2)
    assert await pending() == ({first, second, third}, 3, gas_used)
    await node("evm_mine")
    mined = await node.block()
    assert (mined["transactions"], int(mined["gasUsed"], 16)) == ([first, second, third], gas_used)
    assert await pending() == (set(), 3, 0)
