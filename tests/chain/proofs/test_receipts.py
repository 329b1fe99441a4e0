"""Receipts of every type are proved by their block's hash, and changed receipts are not."""

import copy
from typing import Any

import pytest
from eth.rlp.logs import Log
from eth.rlp.receipts import Receipt
from hypothesis import given
from hypothesis import strategies as st

from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc as NodeRpc
from ltzd.chain.node.typed_calls import receipts as typed_receipts
from ltzd.chain.proofs.headers import is_header_of
from ltzd.chain.proofs.receipts import are_receipts_of, encode_receipt
from ltzd.values import Address, address_of, bytes_of, hash_of, hex_of
from tests.support.chain.either_chain import both_chains, node, node_mined_by_hand
from tests.support.chain.tester import EMITTER, GWEI, Rpc

__all__ = ["both_chains", "node", "node_mined_by_hand"]

words = st.binary(min_size=32, max_size=32)
logs = st.tuples(
    st.binary(min_size=20, max_size=20), st.lists(words, max_size=4), st.binary(max_size=100)
)


@given(
    st.sampled_from([0, 1, 2, 3, 4]),
    st.sampled_from([b"", b"\x01"]) | words,
    st.integers(0, 2**63),
    st.lists(logs, max_size=4),
)
def test_a_receipt_is_encoded_as_py_evm_encodes_it(
    kind: int, outcome: bytes, gas_used: int, logged: list[tuple[bytes, list[bytes], bytes]]
) -> None:
    entries = [
        Log(at, tuple(int.from_bytes(topic, "big") for topic in topics), data)
        for at, topics, data in logged
    ]
    receipt = Receipt(outcome, gas_used, entries)
    is_root = len(outcome) == 32
    shown = {
        "type": hex(kind),
        **({"root": hex_of(outcome)} if is_root else {"status": hex(outcome == b"\x01")}),
        "cumulativeGasUsed": hex(gas_used),
        "logsBloom": hex_of(receipt.bloom.to_bytes(256, "big")),
        "logs": [
            {"address": hex_of(at), "topics": list(map(hex_of, each)), "data": hex_of(data)}
            for at, each, data in logged
        ],
    }
    assert encode_receipt(shown) == (bytes((kind,)) if kind else b"") + bytes(receipt.encode())


async def a_block_of_logs(rpc: Rpc) -> tuple[Any, list[Any], Address]:
    """A block with logs in transactions of types 0, 1, 2 and 4, its receipts, and its emitter."""
    await rpc("evm_setAutomine", True)
    emitter = await rpc.deploy(EMITTER)
    wallets = [await rpc.funded() for _ in range(4)]
    authorization = wallets[3].account.sign_authorization(
        {"chainId": rpc.chain_id, "address": bytes_of(emitter), "nonce": 7}
    )
    kinds: list[dict[str, object]] = [
        {"gasPrice": 100 * GWEI},
        {"gasPrice": 100 * GWEI, "accessList": []},
        {"maxFeePerGas": 100 * GWEI},
        {"maxFeePerGas": 100 * GWEI, "authorizationList": [authorization]},
    ]
    await rpc("evm_setAutomine", False)
    for number in range(12):
        data = "0x" + bytes((number,) * (64 + number)).hex()
        call = {"to": emitter, "data": data, "gas": 300_000, "value": 0} | kinds[number % 4]
        await rpc("eth_sendRawTransaction", wallets[number % 4].signed(number // 4, **call))
    await rpc("evm_mine")
    block = await rpc.block()
    return block, await rpc("eth_getBlockReceipts", block["number"]), address_of(emitter)


async def test_logs_of_every_type_of_transaction_are_proved(node_mined_by_hand: Rpc) -> None:
    block, receipts, emitter = await a_block_of_logs(node_mined_by_hand)
    block_hash = hash_of(block["hash"])
    assert {receipt["type"] for receipt in receipts} == {"0x0", "0x1", "0x2", "0x4"}
    assert is_header_of(block, block_hash)
    async with NodeRpc(node_mined_by_hand.url) as rpc:
        logs, is_proved = await Node(rpc).proven_logs(block_hash, emitter)
        assert (len(logs), is_proved) == (12, True)
        assert logs == await Node(rpc).logs_of_block(block_hash, emitter)


async def test_receipts_that_are_read_in_parts_prove_the_same_logs(
    node_mined_by_hand: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As anvil is asked for those of a large block, by both chains."""
    block, _, emitter = await a_block_of_logs(node_mined_by_hand)
    monkeypatch.setattr(typed_receipts, "_LARGE_BLOCK", 12)
    monkeypatch.setattr(typed_receipts, "_RECEIPTS_OF_ANVIL_AT_ONCE", 5)
    async with NodeRpc(node_mined_by_hand.url) as rpc:
        rpc.traits.is_anvil = True
        logs, is_proved = await Node(rpc).proven_logs(hash_of(block["hash"]), emitter)

    assert (len(logs), is_proved) == (12, True)


async def test_an_omitted_or_changed_log_is_not_proved(node_mined_by_hand: Rpc) -> None:
    block, receipts, _ = await a_block_of_logs(node_mined_by_hand)
    block_hash = hash_of(block["hash"])
    assert await are_receipts_of(block, receipts, block_hash)

    omitted = copy.deepcopy(receipts)
    del omitted[5]["logs"][0]
    changed = copy.deepcopy(receipts)
    changed[5]["logs"][0]["data"] = "0x01"
    renumbered = copy.deepcopy(receipts)
    renumbered[5]["logs"][0]["logIndex"] = "0x63"
    lowered = copy.deepcopy(receipts)
    lowered[5]["logs"][0]["blockNumber"] = "0x0"
    all_false: list[Any] = [
        omitted,
        changed,
        renumbered,
        lowered,
        receipts[:-1],
        receipts[::-1],
        [],
        None,
        [{}],
    ]
    for false in all_false:
        assert not await are_receipts_of(block, false, block_hash)


@pytest.mark.parametrize("field", ["receiptsRoot", "logsBloom", "timestamp", "number"])
async def test_a_changed_header_is_not_proved(node_mined_by_hand: Rpc, field: str) -> None:
    block, receipts, _ = await a_block_of_logs(node_mined_by_hand)
    block_hash = hash_of(block["hash"])
    raw = bytes_of(block[field] if len(block[field]) % 2 == 0 else f"0x0{block[field][2:]}")
    false = block | {field: "0x" + bytes(byte ^ 1 for byte in raw).hex()}

    assert not is_header_of(false, block_hash)
    assert not await are_receipts_of(false, receipts, block_hash)


async def test_blocks_without_transactions_are_proved(node: Rpc) -> None:
    block = await node.block()
    assert await are_receipts_of(block, [], hash_of(block["hash"]))
