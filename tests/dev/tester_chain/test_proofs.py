"""Merkle proofs, access lists and state dumps of the tester chain."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from eth_hash.auto import keccak
from trie.hexary import HexaryTrie

from ltzd.dev.tester_chain.execution.rlp_codec import decode
from ltzd.values import bytes_of, hex_of
from tests.support.chain.chains import a_chain
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

ABSENT = "0x" + "a1" * 20
OTHER = "0x" + "b2" * 20
# Reads slot 5, then the balance of OTHER, then reverts with nothing.
READER = "600554" + "73" + OTHER[2:] + "31" + "60006000fd"


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


async def _emit(rpc: Rpc, emitter: str) -> None:
    sent = await rpc("eth_sendTransaction", {"from": await rpc.dev_account(), "to": emitter})
    await rpc.receipt(sent)


def _proven(root: str, key: bytes, nodes: list[str]) -> Any:
    """The value that the nodes prove; empty if they prove its absence."""
    decoded = [decode(bytes_of(node)) for node in nodes]
    trie: Any = HexaryTrie
    value = trie.get_from_proof(bytes_of(root), keccak(key), decoded)
    return decode(value) if value else b""


async def test_an_account_and_its_slots_are_proven_against_the_block(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    for _ in range(3):
        await _emit(rpc, emitter)
    proof = await rpc("eth_getProof", emitter, ["0x0", topic(9)], "latest")
    nonce, _, storage_root, code_hash = _proven(
        (await rpc.block())["stateRoot"], bytes_of(emitter), proof["accountProof"]
    )
    assert (hex_of(storage_root), hex_of(code_hash)) == (proof["storageHash"], proof["codeHash"])
    assert int.from_bytes(nonce, "big") == int(proof["nonce"], 16) == 1
    assert hex_of(keccak(bytes_of(await rpc("eth_getCode", emitter)))) == proof["codeHash"]
    counted, absent = proof["storageProof"]
    assert (counted["key"], counted["value"]) == ("0x0", "0x3")
    assert (absent["key"], absent["value"]) == (topic(9), "0x0")
    assert _proven(proof["storageHash"], bytes(32), counted["proof"]) == b"\x03"
    assert _proven(proof["storageHash"], bytes_of(topic(9)), absent["proof"]) == b""


async def test_an_absent_account_is_proven_absent(rpc: Rpc) -> None:
    proof = await rpc("eth_getProof", ABSENT, [], "0x0")
    root = (await rpc.block(0))["stateRoot"]
    assert _proven(root, bytes_of(ABSENT), proof["accountProof"]) == b""
    assert (proof["balance"], proof["nonce"]) == ("0x0", "0x0")
    assert proof["codeHash"] == hex_of(keccak(b""))
    account = await rpc("eth_getAccount", ABSENT, "latest")
    assert account["storageRoot"] == proof["storageHash"]


async def test_an_access_list_names_what_the_call_touches_also_before_a_revert(rpc: Rpc) -> None:
    account, call = await rpc.dev_account(), {"to": ABSENT}
    code = {ABSENT: {"code": "0x" + READER}}
    answer = await rpc("eth_createAccessList", {**call, "from": account}, "latest", code)
    assert answer["accessList"] == [
        {"address": ABSENT, "storageKeys": [topic(5)]},
        {"address": OTHER, "storageKeys": []},
    ]
    assert answer["error"] == "execution reverted"


async def test_an_access_list_leaves_out_what_every_transaction_touches(rpc: Rpc) -> None:
    account = await rpc.dev_account()
    transfer = {"from": account, "to": OTHER, "value": "0x1"}
    answer = await rpc("eth_createAccessList", transfer, "latest")
    assert answer == {"accessList": [], "gasUsed": hex(21_000)}


async def test_gas_with_the_access_list_is_what_the_transaction_uses(rpc: Rpc) -> None:
    account, emitter = await rpc.dev_account(), await rpc.deploy(EMITTER)
    call = {"from": account, "to": emitter, "data": "0x" + word(1) + word(2)}
    answer = await rpc("eth_createAccessList", call, "latest")
    assert answer["accessList"] == [{"address": emitter, "storageKeys": [topic(0)]}]
    sent = await rpc("eth_sendTransaction", {**call, "accessList": answer["accessList"]})
    assert (await rpc.receipt(sent))["gasUsed"] == answer["gasUsed"]


async def test_a_dump_is_loaded_by_another_chain(rpc: Rpc) -> None:
    emitter, reverter = await rpc.deploy(EMITTER), await rpc.deploy(REVERTER)
    await _emit(rpc, emitter)
    await rpc("anvil_setStorageAt", reverter, topic(3), topic(4))
    await rpc("anvil_setBalance", ABSENT, hex(ETHER))
    await rpc("anvil_setNonce", OTHER, "0x7")
    dump = await rpc("anvil_dumpState")
    async with a_tester() as other:
        await other("anvil_setStorageAt", emitter, topic(8), topic(8))
        assert await other("anvil_loadState", dump) is True
        for address in (emitter, reverter, ABSENT, OTHER, await rpc.dev_account()):
            before, after = [
                await each("eth_getAccount", address, "latest") for each in (rpc, other)
            ]
            assert after == before
        assert await other("eth_getCode", emitter) == await rpc("eth_getCode", emitter)


async def test_a_dump_has_the_form_of_anvils(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    await _emit(rpc, emitter)
    content = json.loads(gzip.decompress(bytes_of(await rpc("anvil_dumpState"))))
    assert content["accounts"][emitter] == {
        "nonce": 1,
        "balance": "0x0",
        "code": await rpc("eth_getCode", emitter),
        "storage": {topic(0): topic(1)},
    }
    assert content["best_block_number"] == 2


async def test_anvil_loads_the_dump_and_its_own_is_loaded_here(rpc: Rpc) -> None:
    emitter = await rpc.deploy(EMITTER)
    await _emit(rpc, emitter)
    async with a_chain("anvil") as chain:
        anvil = Rpc(chain.rpc_url, rpc.http)
        assert await anvil("anvil_loadState", await rpc("anvil_dumpState")) is True
        await _emit(anvil, emitter)
        await anvil("anvil_setBalance", OTHER, hex(ETHER))
        assert await rpc("anvil_loadState", await anvil("anvil_dumpState")) is True
    assert await rpc("eth_getStorageAt", emitter, "0x0", "latest") == topic(2)
    assert await rpc("eth_getBalance", OTHER) == hex(ETHER)


@pytest.mark.parametrize(
    "dump",
    [
        "0x12",
        "0x1f8b",
        "0x" + b"{}".hex(),
        "0x" + gzip.compress(b'{"accounts": {"0x12": {}}}', mtime=0).hex(),
        "0x" + gzip.compress(b'{"accounts": {}}', mtime=0).hex()[:-8],
    ],
)
async def test_a_malformed_dump_is_refused_and_changes_nothing(rpc: Rpc, dump: str) -> None:
    with pytest.raises(RpcRefusedError, match="failed to decode state dump") as fault:
        await rpc("anvil_loadState", dump)
    assert fault.value.code == -32602
