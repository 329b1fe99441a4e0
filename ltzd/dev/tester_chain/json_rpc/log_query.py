"""A log filter with its blocks: a range of the canonical chain, or one block by its hash."""

from collections.abc import Mapping

import msgspec

from ltzd.dev.tester_chain.block_tree import BlockTree
from ltzd.dev.tester_chain.errors import INVALID_PARAMS, JsonRpcError, invalid_parameter, refused
from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.json_rpc.log_filter import LogFilter, log_filter
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject, log_object
from ltzd.dev.tester_chain.json_rpc.params import BlockChoice, block_choice, hash32
from ltzd.values import Hash32


class LogQuery(msgspec.Struct, frozen=True):
    filter: LogFilter
    first: BlockChoice
    last: BlockChoice
    block_hash: Hash32 | None = None

    def logs(self, block_tree: BlockTree) -> list[JsonObject]:
        """Raises JsonRpcError if the block with this hash is unknown."""
        return [
            log_object(block, log)
            for block in self._blocks(block_tree)
            for log in self.filter.logs_of(block)
        ]

    def includes(self, block: MinedBlock) -> bool:
        """Whether a block that has just been mined, or orphaned, is in the range."""
        first, last = self.first.number, self.last.number
        return (
            self.block_hash in {None, block.hash}
            and (first is None or first <= block.number)
            and (last is None or block.number <= last)
        )

    def _blocks(self, block_tree: BlockTree) -> list[MinedBlock]:
        if self.block_hash is None:
            first, last = _height(block_tree, self.first), _height(block_tree, self.last)
            return block_tree.chain[first : last + 1]
        block = block_tree.by_hash(self.block_hash)
        if block is None:
            raise refused("unknown block")
        return [block]


def log_query(fields: Mapping[str, object]) -> LogQuery:
    """Raises JsonRpcError for malformed fields."""
    filter_ = log_filter(fields)
    if (block_hash := fields.get("blockHash")) is not None:
        if fields.get("fromBlock") is not None or fields.get("toBlock") is not None:
            raise invalid_parameter("blockHash", "cannot specify both blockHash and a range")
        latest = BlockChoice(tag="latest")
        return LogQuery(filter_, latest, latest, hash32(block_hash, "blockHash"))
    first, last = (_bound(fields, name) for name in ("fromBlock", "toBlock"))
    if first.number is not None and last.number is not None and first.number > last.number:
        raise JsonRpcError(INVALID_PARAMS, "invalid block range params: fromBlock is after toBlock")
    return LogQuery(filter_, first, last)


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
