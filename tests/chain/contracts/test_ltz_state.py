"""LTZ's supply and references at exactly one block, or the reason why they are unavailable."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ltzd.chain.contracts import ltz, ltz_state
from ltzd.chain.contracts.ltz_state import LtzState
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, Hash32, hex_of
from tests.support.chain.scripted_node import a_server, error, result

CONTRACT = Address(b"\x17" * 20)
BLOCK = 7
HASH = Hash32(b"\x0b" * 32)
OTHER = Hash32(b"\x0c" * 32)
USED = {0: 0b101, 3: 1 << 255, 150: 1}


class Chain:
    """A node whose `eth_call` works at the heights in `keeps`, and at its head."""

    def __init__(self, head: int = BLOCK) -> None:
        self.head = head
        self.keeps = {BLOCK}
        self.hashes = {BLOCK: HASH}
        self.asked_tags: Counter[str] = Counter()
        self.batches: list[int] = []
        self.answer: Callable[[bytes], object] = self._ltz

    def __call__(self, request: Any) -> object:
        if not isinstance(request, list):
            return self._answer_one(request)
        self.batches.append(len(request))
        return [self._answer_one(each) for each in request]

    def _answer_one(self, request: Any) -> object:
        if request["method"] == "eth_getBlockByNumber":
            return result(request, self._header(request["params"][0]))
        call, tag = request["params"]
        self.asked_tags[tag] += 1
        if tag != "latest" and int(tag, 16) not in self.keeps:
            return error(request, "missing trie node")
        assert call["to"] == hex_of(CONTRACT)
        return result(request, self.answer(bytes.fromhex(call["data"][2:])))

    def _ltz(self, data: bytes) -> object:
        number = 5 * 10**18
        if data[:4] == ltz.REF_WORD:
            number = USED.get(int.from_bytes(data[4:], "big"), 0)
        return hex_of(number.to_bytes(32, "big"))

    def _header(self, tag: str) -> object:
        number = self.head if tag in {"latest", "finalized"} else int(tag, 16)
        return {
            "number": hex(number),
            "hash": hex_of(self.hashes.get(number, OTHER)),
            "parentHash": hex_of(OTHER),
            "timestamp": "0x1",
            "logsBloom": "0x00",
            "gasLimit": "0x1c9c380",
        }


async def state_of(chain: Chain) -> LtzState:
    async with a_server(chain) as rpc:
        return await ltz_state.read_state_at(rpc, CONTRACT, BLOCK, HASH, range(250))


async def test_the_state_is_read_at_the_block_in_batches() -> None:
    chain = Chain(head=9)

    assert await state_of(chain) == LtzState(5 * 10**18, USED)

    assert chain.asked_tags == {hex(BLOCK): 252}
    assert max(chain.batches) == 100


async def test_a_node_without_history_answers_while_the_block_is_the_newest() -> None:
    chain = Chain()
    chain.keeps.clear()

    assert await state_of(chain) == LtzState(5 * 10**18, USED)


async def test_a_node_without_the_blocks_state_is_reported() -> None:
    for head in (6, 8):
        chain = Chain(head)
        chain.keeps.clear()
        with pytest.raises(NodeUnavailable, match="has no state of block 7"):
            await state_of(chain)


async def test_another_block_at_the_height_is_not_compared() -> None:
    chain = Chain(head=9)
    chain.hashes[BLOCK] = OTHER
    with pytest.raises(NodeUnavailable, match="another block 7"):
        await state_of(chain)


async def test_a_block_mined_during_the_read_is_not_compared() -> None:
    chain = Chain()
    chain.keeps.clear()

    def mine(data: bytes) -> object:
        chain.head = 8
        return chain._ltz(data)

    chain.answer = mine
    with pytest.raises(NodeUnavailable, match="or a newer one"):
        await state_of(chain)


@pytest.mark.parametrize("nonsense", ["0x", "0x12", None, 7, "0x" + "zz" * 32, ["0x"]])
async def test_an_answer_that_is_not_ltzs_is_reported(nonsense: object) -> None:
    chain = Chain()
    chain.answer = lambda _data: nonsense
    with pytest.raises(NodeUnavailable, match="not those of LTZ"):
        await state_of(chain)
