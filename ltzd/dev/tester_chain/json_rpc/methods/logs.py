"""eth_getLogs: over a range of the canonical chain, or of any block by its hash."""

from collections.abc import Mapping

from ltzd.dev.tester_chain.block_tree import BlockTree
from ltzd.dev.tester_chain.errors import INVALID_PARAMS, JsonRpcError, invalid_parameter, refused
from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.json_rpc.log_filter import log_filter
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject, log_object
from ltzd.dev.tester_chain.json_rpc.params import BlockChoice, Params, block_choice, hash32


@method("eth_getLogs", params_at_most=1)
async def get_logs(context: MethodContext, params: Params) -> list[JsonObject]:
    fields = params.mapping(0, "filter")
    filter_ = log_filter(fields)
    return [
        log_object(block, log)
        for block in _blocks(context.chain.block_tree, fields)
        for log in filter_.logs_of(block)
    ]


def _blocks(block_tree: BlockTree, fields: Mapping[str, object]) -> list[MinedBlock]:
    if (block_hash := fields.get("blockHash")) is not None:
        if fields.get("fromBlock") is not None or fields.get("toBlock") is not None:
            raise invalid_parameter("blockHash", "cannot specify both blockHash and a range")
        block = block_tree.by_hash(hash32(block_hash, "blockHash"))
        if block is None:
            raise refused("unknown block")
        return [block]
    first, last = (_bound(fields, name) for name in ("fromBlock", "toBlock"))
    if first.number is not None and last.number is not None and first.number > last.number:
        raise JsonRpcError(INVALID_PARAMS, "invalid block range params: fromBlock is after toBlock")
    return block_tree.chain[_height(block_tree, first) : _height(block_tree, last) + 1]


def _bound(fields: Mapping[str, object], name: str) -> BlockChoice:
    given = fields.get(name)
    choice = block_choice("latest" if given is None else given, name)
    if choice.hash is not None:
        raise invalid_parameter(name, "expected a number or a tag")
    return choice


def _height(block_tree: BlockTree, bound: BlockChoice) -> int:
    """The height of a range's end; a number above the head is valid and has no logs."""
    if bound.number is not None:
        return bound.number
    block = bound.find(block_tree)
    return block_tree.head.number if block is None else block.number
