"""State is read after exactly one block, on nodes with EIP-1898 and on nodes without it."""

from typing import Any

import pytest

from ltzd.chain.node.answers.typed import Header, Revert
from ltzd.chain.node.block_refusals import lacks_block, refuses_hash
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.errors import NodeUnavailable
from ltzd.values import hex_of
from tests.support.chain.fake_node import ETHER, LTZ_AT, OTHERS_AT, FakeNode
from tests.support.chain.scripted_node import a_server, error, result
from tests.support.relays.simulators import A_HEAD
from tests.support.rows.core import MINTER

SHOWN = {
    "number": hex(A_HEAD.number),
    "hash": hex_of(A_HEAD.hash),
    "parentHash": hex_of(A_HEAD.parent_hash),
    "timestamp": hex(A_HEAD.timestamp),
    "logsBloom": "0x" + "00" * 256,
}


async def header_of(node: FakeNode, number: int | str = "latest") -> Header:
    header = await node.node.block(number)
    assert header is not None
    return header


@pytest.mark.parametrize("reads_by_hash", [True, False])
async def test_every_read_is_after_the_block_of_the_header(reads_by_hash: bool) -> None:
    fake = FakeNode()
    fake.reads_by_hash = reads_by_hash
    fake.mine(3)
    header, node = await header_of(fake), fake.node
    fake.use_nonce(MINTER)
    assert await node.nonce(MINTER.address) == 1
    assert await node.nonce(MINTER.address, header) == 0
    assert await node.balance(MINTER.address, header) == 1_000 * ETHER
    call = (OTHERS_AT[0], b"\x01")
    await node.views([call, call], header)
    await node.view(*call, header)
    assert await node.simulate(OTHERS_AT[0], [b"\x01"], MINTER.address, at=header) == [None]
    assert await node.simulate_call(*call, MINTER.address, at=header) is None
    assert await node.estimate_gas(*call, MINTER.address, at=header) == 60_000
    assert set(fake.read_after) == {header.hash}


@pytest.mark.parametrize("reads_by_hash", [True, False])
async def test_a_block_that_a_reorg_removed_has_no_answers(reads_by_hash: bool) -> None:
    fake = FakeNode()
    fake.reads_by_hash = reads_by_hash
    fake.mine(3)
    header = await header_of(fake)
    fake.reorg(1)
    for read in (
        lambda: fake.node.balance(MINTER.address, header),
        lambda: fake.node.views([(OTHERS_AT[0], b"\x01")], header),
        lambda: fake.node.simulate_call(OTHERS_AT[0], b"\x01", MINTER.address, at=header),
        lambda: fake.node.estimate_gas(OTHERS_AT[0], b"\x01", MINTER.address, at=header),
    ):
        with pytest.raises(NodeUnavailable) as refusal:
            await read()
        assert refusal.value.kind == "behind"


@pytest.mark.parametrize(
    "text",
    [
        f"{hex_of(A_HEAD.hash)} could not be found",
        f"No state available for block {A_HEAD.number} ({hex_of(A_HEAD.hash)})",
    ],
)
async def test_a_nethermind_node_that_lacks_the_block_shows_no_revert(text: str) -> None:
    def respond(request: Any) -> object:
        if isinstance(request, list):
            return [respond(each) for each in request]
        return error(request, text, -32001)

    async with a_server(respond) as rpc:
        node = Node(rpc)
        for read in (
            lambda: node.views([(LTZ_AT, b"")], A_HEAD),
            lambda: node.simulate(LTZ_AT, [b"", b""], MINTER.address, at=A_HEAD),
            lambda: node.simulate_call(LTZ_AT, b"", MINTER.address, at=A_HEAD),
            lambda: node.estimate_gas(LTZ_AT, b"", MINTER.address, A_HEAD),
        ):
            with pytest.raises(NodeUnavailable) as refusal:
                await read()
            assert refusal.value.kind == "behind"


async def test_a_node_without_eip_1898_is_asked_by_hash_only_once() -> None:
    fake = FakeNode()
    fake.reads_by_hash = False
    fake.mine()
    header = await header_of(fake)
    for _ in range(5):
        await Node(fake).balance(MINTER.address, header)
    assert fake.call_counts["eth_getBalance"] == 6


async def test_a_node_that_estimates_after_its_newest_block_alone_is_asked_for_that() -> None:
    def respond(request: Any) -> object:
        if isinstance(request, list):
            return [respond(each) for each in request]
        if request["method"] == "eth_getBlockByNumber":
            return result(request, SHOWN)
        if len(request["params"]) > 1:
            return error(request, "too many arguments, want at most 1", -32602)
        return result(request, hex(60_000))

    async with a_server(respond) as rpc:
        assert await Node(rpc).estimate_gas(LTZ_AT, b"", MINTER.address, A_HEAD) == 60_000
        assert rpc.traits.reads_by_hash


async def test_a_revert_is_no_refusal_of_the_hash() -> None:
    fake = FakeNode()
    fake.mine()
    fake.fails = lambda _data: True
    header = await header_of(fake)
    revert = await fake.node.simulate_call(OTHERS_AT[0], b"\x01", MINTER.address, at=header)
    assert isinstance(revert, Revert)
    assert revert.data
    assert fake.traits.reads_by_hash


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-32602, "invalid argument 1: json: cannot unmarshal object into Go value of type string"),
        (-32602, "Invalid params"),
        (-32000, "EIP-1898 block identifiers are not supported"),
        (-32000, "invalid argument: expected a string"),
    ],
)
def test_texts_that_refuse_a_hash(code: int, text: str) -> None:
    assert refuses_hash(RpcError(code, text))
    assert not lacks_block(RpcError(code, text))


@pytest.mark.parametrize(
    "text",
    [
        "header not found",
        "header for hash not found",
        "hash is not currently canonical",
        "block not found",
        f"block with hash {hex_of(bytes(32))} not found",
        "Unknown block",
        "requested block is not canonical",
        "block is out of range",
        "Resource not found.",
        f"{hex_of(bytes(32))} could not be found",
        f"No state available for block 16 ({hex_of(bytes(32))})",
        "BlockOutOfRangeError: block height is 5 but requested was 9",
        "Received invalid block tag 9. Latest block number is 5",
        "cannot query unfinalized data",
    ],
)
def test_texts_of_a_node_that_lacks_the_block(text: str) -> None:
    assert lacks_block(RpcError(-32000, text))


@pytest.mark.parametrize(
    "text", ["execution reverted: not supported", "out of gas", "missing trie node"]
)
def test_other_texts_are_neither(text: str) -> None:
    assert not refuses_hash(RpcError(-32000, text))
    assert not lacks_block(RpcError(-32000, text))
