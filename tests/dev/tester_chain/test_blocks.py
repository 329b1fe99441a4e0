"""Blocks, receipts and logs of the tester chain are consistent, as on a real chain."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from eth_bloom.bloom import BloomFilter
from eth_hash.auto import keccak

from ltzd.dev.tester_chain.execution.rlp_codec import encode
from ltzd.values import bytes_of, hex_of
from tests.support.chain.tester import EMITTER, Rpc, RpcRefusedError, a_tester, topic, word


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


async def _emit(rpc: Rpc, emitter: str, *words: int) -> Any:
    """Sends a call that logs these words; returns its receipt."""
    call = {
        "from": await rpc.dev_account(),
        "to": emitter,
        "data": "0x" + "".join(map(word, words)),
        "gas": hex(200_000),
    }
    return await rpc.receipt(await rpc("eth_sendTransaction", call))


# The fields of a Prague header in their order.
HEADER = [
    "parentHash",
    "sha3Uncles",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "logsBloom",
    "difficulty",
    "number",
    "gasLimit",
    "gasUsed",
    "timestamp",
    "extraData",
    "mixHash",
    "nonce",
    "baseFeePerGas",
    "withdrawalsRoot",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "requestsHash",
]
NUMBERS = {
    "difficulty",
    "number",
    "gasLimit",
    "gasUsed",
    "timestamp",
    "baseFeePerGas",
    "blobGasUsed",
    "excessBlobGas",
}


def _hash_of(block: Any) -> str:
    fields = [int(block[f], 16) if f in NUMBERS else bytes_of(block[f]) for f in HEADER]
    return hex_of(keccak(encode(fields)))


async def test_headers_hash_to_their_hash_and_name_their_parent(rpc: Rpc) -> None:
    await rpc("anvil_mine", 2)
    first, second = await rpc.block(1), await rpc.block(2)
    assert _hash_of(await rpc.block(0)) == first["parentHash"]
    assert _hash_of(second) == second["hash"]
    assert second["parentHash"] == first["hash"]
    assert int(second["timestamp"], 16) >= int(first["timestamp"], 16)
    assert await rpc("eth_getBlockByHash", first["hash"], False) == first


async def test_blooms_hold_the_logs_and_only_those(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    receipt = await _emit(rpc, emitter, 5, 6)
    block = await rpc("eth_getBlockByHash", receipt["blockHash"], False)
    wanted = BloomFilter.from_iterable(map(bytes_of, [emitter, topic(5), topic(6)]))
    assert int(block["logsBloom"], 16) == int(receipt["logsBloom"], 16) == int(wanted)
    assert int((await rpc.block(1))["logsBloom"], 16) == 0


async def test_a_block_of_many_numbers_its_transactions_and_logs(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    await rpc("evm_setAutomine", False)
    dev = await rpc.dev_account()
    call = {"from": dev, "to": emitter, "data": "0x" + word(1) + word(2), "gas": hex(90_000)}
    sent = [await rpc("eth_sendTransaction", call) for _ in range(20)]
    await rpc("evm_mine")
    block = await rpc("eth_getBlockByNumber", "latest", True)
    receipts = await rpc("eth_getBlockReceipts", "latest")

    assert [each["hash"] for each in block["transactions"]] == sent
    assert [each["transactionHash"] for each in receipts] == sent
    assert [each["logs"][0]["logIndex"] for each in receipts] == [hex(i) for i in range(20)]
    total = sum(int(each["gasUsed"], 16) for each in receipts)
    assert int(receipts[-1]["cumulativeGasUsed"], 16) == int(block["gasUsed"], 16) == total
    assert await rpc("eth_getBlockTransactionCountByHash", block["hash"]) == hex(20)
    assert (
        await rpc("eth_getTransactionByBlockNumberAndIndex", "latest", "0x3")
        == (block["transactions"][3])
    )
    assert await rpc("eth_getTransactionReceipt", sent[7]) == receipts[7]


async def test_roots_follow_from_the_transactions_and_receipts_that_are_shown(rpc: Rpc) -> None:
    receipt = await _emit(rpc, await rpc.deploy(EMITTER), 3, 4)
    block = await rpc("eth_getBlockByHash", receipt["blockHash"], False)
    raw = bytes_of(await rpc("eth_getRawTransactionByHash", receipt["transactionHash"]))
    logs = [
        [
            bytes_of(log["address"]),
            [bytes_of(each) for each in log["topics"]],
            bytes_of(log["data"]),
        ]
        for log in receipt["logs"]
    ]
    shown = [1, int(receipt["cumulativeGasUsed"], 16), bytes_of(receipt["logsBloom"]), logs]
    roots = [_root_of_one(raw), _root_of_one(b"\x02" + encode(shown))]
    assert roots == [block["transactionsRoot"], block["receiptsRoot"]]


def _root_of_one(item: bytes) -> str:
    """A trie of one leaf, whose key is the RLP of 0."""
    leaf = [b"\x20" + encode(0), item]
    return hex_of(keccak(encode(leaf)))


async def test_tags_name_the_right_blocks(rpc: Rpc) -> None:
    await rpc("anvil_mine", "0x46")
    numbers = {
        tag: int((await rpc.block(tag))["number"], 16)
        for tag in ("earliest", "finalized", "safe", "latest", "pending")
    }
    assert numbers == {"earliest": 0, "finalized": 6, "safe": 38, "latest": 70, "pending": 71}


async def test_safe_and_finalized_start_at_genesis(rpc: Rpc) -> None:
    await rpc("anvil_mine", 3)
    assert (await rpc.block("safe"))["number"] == "0x0"
    assert (await rpc.block("finalized"))["number"] == "0x0"


async def test_two_chains_have_different_genesis_hashes(rpc: Rpc) -> None:
    async with a_tester() as other:
        assert (await rpc.block(0))["hash"] != (await other.block(0))["hash"]


async def test_logs_are_filtered_by_range_address_and_topics(rpc: Rpc) -> None:
    each, two = await rpc.deploy(EMITTER), await rpc.deploy(EMITTER)
    for emitter, words in [(each, (1, 2)), (each, (1, 3)), (two, (4, 2))]:
        await _emit(rpc, emitter, *words)
    everything = {"fromBlock": "earliest", "toBlock": "latest"}

    async def logs(**filter_: object) -> list[tuple[str, str, str]]:
        logs = await rpc("eth_getLogs", everything | filter_)
        return [(log["address"], *log["topics"]) for log in logs]

    first, second, third = (
        (each, topic(1), topic(2)),
        (each, topic(1), topic(3)),
        (two, topic(4), topic(2)),
    )
    assert await logs() == [first, second, third]
    assert await logs(address=two) == [third]
    assert await logs(address=[each, two]) == [first, second, third]
    assert await logs(address=[]) == [first, second, third]
    assert await logs(topics=[topic(1)]) == [first, second]
    assert await logs(topics=[None, topic(2)]) == [first, third]
    assert await logs(topics=[[topic(1), topic(4)], topic(2)]) == [first, third]
    assert await logs(topics=[[], [topic(3)]]) == [second]
    assert await logs(topics=[topic(1), topic(2), None]) == []
    assert await logs(address=two, topics=[topic(1)]) == []
    assert await logs(fromBlock="0x4", toBlock="0x4") == [second]
    assert await logs(fromBlock="0x99") == []
    assert await rpc("eth_getLogs", {}) == await rpc("eth_getLogs", {"fromBlock": "latest"})


async def test_a_log_tells_where_it_is(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    receipt = await _emit(rpc, emitter, 1, 2)
    block = await rpc("eth_getBlockByHash", receipt["blockHash"], False)
    (log,) = await rpc("eth_getLogs", {"blockHash": receipt["blockHash"]})
    assert log == receipt["logs"][0]
    assert log["blockTimestamp"] == block["timestamp"]
    assert (log["transactionHash"], log["removed"]) == (receipt["transactionHash"], False)
    assert log["data"] == "0x" + word(1) + word(2)


async def test_logs_of_an_unknown_block_are_a_fault_not_an_empty_list(rpc: Rpc) -> None:
    with pytest.raises(RpcRefusedError, match=r"^unknown block$") as fault:
        await rpc("eth_getLogs", {"blockHash": "0x" + "77" * 32})
    assert fault.value.code == -32000


async def test_a_created_contract_has_its_address_in_the_receipt(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    assert (await rpc("eth_getCode", emitter, "latest"))[2:] in EMITTER
    assert await rpc("eth_getCode", emitter, "earliest") == "0x"


async def test_hashing_is_keccak(rpc: Rpc) -> None:
    assert bytes_of(await rpc("web3_sha3", "0x1234")) == keccak(b"\x12\x34")
