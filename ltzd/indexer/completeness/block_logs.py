"""Reads all logs of a block in doubt: proved by the block's hash, or confirmed by another node."""

from collections.abc import Sequence

import msgspec

from ltzd.chain.node import bloom
from ltzd.chain.node.answers.typed import Header, quantity
from ltzd.chain.node.node import Node
from ltzd.errors import NodeUnavailable
from ltzd.indexer.contracts import IndexedContract, NodeLog
from ltzd.values import address_of, hash_of


class BlockLogs(msgspec.Struct, frozen=True):
    """All logs of the contracts in a block. `is_proved`: the block's hash proves them."""

    logs: Sequence[NodeLog]
    is_proved: bool


async def read_block_logs(
    node: Node, header: Header, contracts: Sequence[IndexedContract]
) -> BlockLogs:
    """Read a block's receipts; if they prove nothing, add the logs that another node shows.

    Raises NodeUnavailable if the node shows no receipts of the block.
    """
    addresses = [contract.address for contract in contracts]
    logs, is_proved = await node.proven_logs(header.hash, *addresses)
    if is_proved or node.is_alone:
        return BlockLogs(logs, is_proved)
    for other in node.others(header.number):
        try:
            shown, is_proved = await other.proven_logs(header.hash, *addresses)
        except NodeUnavailable:
            continue  # This node lacks the block, or does not answer.
        known = {entry["logIndex"] for entry in logs}
        more = [entry for entry in shown if entry["logIndex"] not in known]
        if is_proved:
            return BlockLogs(shown, is_proved=True)
        return BlockLogs([*logs, *(entry for entry in more if fits_block(entry, header))], False)
    return BlockLogs(logs, is_proved=False)


def fits_block(entry: NodeLog, header: Header) -> bool:
    """Whether the log may be of this block: a node could answer with logs of another one."""
    try:
        values = [address_of(entry["address"]), *map(hash_of, entry["topics"])]
        place = quantity(entry["blockNumber"]), hash_of(entry["blockHash"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return place == (header.number, header.hash) and (
        not any(header.bloom) or bloom.may_hold(header.bloom, *values)
    )
