"""Reading the offers raises only ltzd's own errors, whatever the node answers."""

from typing import Any

import pytest

from ltzd.chain.contracts import contract_abi, offers
from ltzd.chain.contracts.offers import OfferContracts, OfferReader
from ltzd.chain.node.rpc import Rpc, RpcCall
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, hex_of

PERK_NFT = Address(b"\x01" * 20)
AT = OfferContracts(PERK_NFT, Address(b"\x02" * 20), Address(b"\x03" * 20))


class OneAnswerRpc(Rpc):
    """A node that gives one answer to every request, but a correct head."""

    def __init__(self, answer: Any, head: Any = "0x9") -> None:
        super().__init__("http://node.invalid")
        self.answer = answer
        self.head = head

    async def call(self, method: str, *params: object) -> Any:
        return self.head if method == "eth_blockNumber" else self.answer

    async def batch(self, calls: Any) -> list[Any]:
        requests: list[RpcCall] = list(calls)
        return [self.answer for _ in requests]


@pytest.mark.parametrize("answer", [None, 7, {}, [], [None], [{}], "0x", "zz", "0xzz", "0x12"])
@pytest.mark.parametrize("what", ["collections", "collection", "item", "is_business"])
async def test_a_nonsense_answer_raises_node_unavailable(answer: Any, what: str) -> None:
    given: dict[str, list[Any]] = {"collections": [], "is_business": [PERK_NFT]}

    with pytest.raises(NodeUnavailable):
        await getattr(OfferReader(OneAnswerRpc(answer), AT), what)(*given.get(what, [1]))


@pytest.mark.parametrize("answer", [None, 7, {}, "0x", [None], [{}], [{"topics": 7}]])
@pytest.mark.parametrize("what", ["items", "businesses"])
async def test_a_nonsense_list_of_logs_raises_node_unavailable(answer: Any, what: str) -> None:
    with pytest.raises(NodeUnavailable):
        await getattr(OfferReader(OneAnswerRpc(answer), AT), what)()


@pytest.mark.parametrize("head", [None, 7, "nine", {}])
async def test_a_nonsense_head_raises_node_unavailable(head: Any) -> None:
    with pytest.raises(NodeUnavailable):
        await OfferReader(OneAnswerRpc([], head), AT).items()


CREATED = hex_of(contract_abi.event_topic("PerkNFT", "CollectionCreated"))


@pytest.mark.parametrize(
    "log",
    [
        *(None, 7, {}, {"address": None}, {"address": hex_of(PERK_NFT)}),
        {"address": hex_of(PERK_NFT), "topics": [CREATED, CREATED, CREATED], "data": "0x12"},
        {"address": "0x12", "topics": [], "data": "0x"},
    ],
)
def test_a_receipt_with_malformed_logs_raises_node_unavailable(log: Any) -> None:
    with pytest.raises(NodeUnavailable):
        offers.created_collection_id([log], PERK_NFT)
