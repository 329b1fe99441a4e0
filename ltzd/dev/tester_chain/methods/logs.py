"""eth_getLogs: over a range of the chain, or of one block by its hash, orphaned or not."""

from collections.abc import Mapping

from ltzd.dev.tester_chain.block import Block
from ltzd.dev.tester_chain.errors import INVALID_PARAMS, RpcError, invalid_parameter, refused
from ltzd.dev.tester_chain.ledger import Ledger
from ltzd.dev.tester_chain.log_filter import log_filter
from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.objects import JsonObject, log_object
from ltzd.dev.tester_chain.params import BlockChoice, Params, block_choice, hash32


@method("eth_getLogs", params_at_most=1)
async def get_logs(node: Node, params: Params) -> list[JsonObject]:
    asked = params.mapping(0, "filter")
    wanted = log_filter(asked)
    return [
        log_object(block, log)
        for block in _blocks(node.chain.ledger, asked)
        for log in wanted.logs_of(block)
    ]


def _blocks(ledger: Ledger, asked: Mapping[str, object]) -> list[Block]:
    if (block_hash := asked.get("blockHash")) is not None:
        if asked.get("fromBlock") is not None or asked.get("toBlock") is not None:
            raise invalid_parameter("blockHash", "cannot specify both blockHash and a range")
        block = ledger.by_hash(hash32(block_hash, "blockHash"))
        if block is None:
            raise refused("unknown block")
        return [block]
    first, last = (_bound(asked, name) for name in ("fromBlock", "toBlock"))
    if first.number is not None and last.number is not None and first.number > last.number:
        raise RpcError(INVALID_PARAMS, "invalid block range params: fromBlock is after toBlock")
    return ledger.chain[_height(ledger, first) : _height(ledger, last) + 1]


def _bound(asked: Mapping[str, object], name: str) -> BlockChoice:
    given = asked.get(name)
    choice = block_choice("latest" if given is None else given, name)
    if choice.hash is not None:
        raise invalid_parameter(name, "expected a number or a tag")
    return choice


def _height(ledger: Ledger, bound: BlockChoice) -> int:
    """A number past the head stays as it is: there are no logs there."""
    if bound.number is not None:
        return bound.number
    block = bound.find(ledger)
    return ledger.head.number if block is None else block.number
