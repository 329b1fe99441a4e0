"""Reads blocks and LTZ's logs from a node, and believes an empty answer only with a reason.

A `Stretch` is a run of blocks with every fact in it, ready to be committed. Far from the head it
holds headers only of blocks with facts and of its last block.
"""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from ltzd import telemetry
from ltzd.chain import bloom, ltz
from ltzd.chain.node import Header, Node
from ltzd.chain.rpc import RpcError
from ltzd.errors import NodeUnavailable
from ltzd.rules.facts import Fact, RewardMinted, Transfer
from ltzd.store.chains import BlockRow
from ltzd.values import Address, Hash32

log = structlog.get_logger()

_LOGS_A_TURN = 200


@dataclass(frozen=True, slots=True)
class Stretch:
    """`parent_hash` is that of the first block, None where only logs were read."""

    parent_hash: Hash32 | None
    blocks: Sequence[BlockRow]
    transfers: Sequence[Transfer]
    mints: Sequence[RewardMinted]

    @property
    def last(self) -> tuple[int, Hash32]:
        return self.blocks[-1].number, self.blocks[-1].hash


async def read_head(node: Node, contract: Address, first: int, last: int) -> Stretch | None:
    """Blocks first…last with all headers; None when the node's answers do not fit each other.

    That happens while the chain changes under the question; ask again.
    """
    headers, logs = await node.headers_and_logs(first, last, contract)
    chain = _linked(headers, first)
    if chain is None:
        return None
    by_block = _by_block(logs)
    hashes = {header.hash for header in chain}
    if not by_block.keys() <= hashes:
        return None
    for header in chain:
        if header.hash not in by_block:
            by_block[header.hash] = await _doubted(node, contract, header)
    return await _stretch(
        chain[0].parent_hash, chain, (log for each in by_block.values() for log in each)
    )


async def read_range(node: Node, contract: Address, first: int, last: int) -> Stretch | None:
    """Final blocks first…last by one getLogs; fewer while the node finds the span too large."""
    while True:
        try:
            logs, header = await node.logs_up_to(first, last, contract)
            break
        except RpcError as error:
            if last == first:
                raise NodeUnavailable(f"eth_getLogs of one block: {error.message}") from error
            last = first + (last - first) // 2
            log.info("indexer.range_halved", blocks=last - first + 1, reason=error.message)
    if header is None:
        return None  # the node that answered has not come so far: its logs may be cut off
    numbers = sorted({int(each["blockNumber"], 16) for each in logs} | {last})
    headers = [header for header in await node.headers(numbers) if header is not None]
    if [header.number for header in headers] != numbers:
        return None
    if not _by_block(logs).keys() <= {header.hash for header in headers}:
        return None
    return await _stretch(None, headers, logs)


def _linked(headers: Sequence[Header | None], first: int) -> list[Header] | None:
    """The headers if they are one chain, cut off where the node has no more; None if torn."""
    chain: list[Header] = []
    for offset, header in enumerate(headers):
        if header is None:
            break
        if header.number != first + offset or (chain and header.parent_hash != chain[-1].hash):
            return None
        chain.append(header)
    return chain or None


def _by_block(logs: Iterable[dict[str, Any]]) -> dict[Hash32, list[dict[str, Any]]]:
    grouped: dict[Hash32, list[dict[str, Any]]] = {}
    for each in logs:
        grouped.setdefault(Hash32(bytes.fromhex(each["blockHash"][2:])), []).append(each)
    return grouped


async def _doubted(node: Node, contract: Address, header: Header) -> list[dict[str, Any]]:
    """Logs of a block that came back empty: asked again if its bloom may hold some."""
    # Whatever we keep comes with a Transfer, and six bits lie less often than three.
    if not bloom.may_hold(header.bloom, contract, ltz.TRANSFER_TOPIC):
        return []
    logs = await node.logs_of_block(header.hash, contract)
    if not logs:
        logs = await node.logs_by_receipts(header.hash, contract)
    telemetry.LOG_COMPLETENESS.labels("found" if logs else "empty").inc()
    return logs


async def _stretch(
    parent_hash: Hash32 | None, headers: Sequence[Header], logs: Iterable[dict[str, Any]]
) -> Stretch:
    """Decode in turns, so that a large block does not hold up the requests of this process."""
    found: dict[tuple[Hash32, int], Fact] = {}  # a node may say the same log twice
    for turn in _turns(logs):
        found.update({(fact.block_hash, fact.log_index): fact for fact in _facts(turn)})
        await asyncio.sleep(0)
    facts = sorted(found.values(), key=lambda fact: (fact.block_number, fact.log_index))
    return Stretch(
        parent_hash,
        [BlockRow(each.number, each.hash, each.parent_hash, each.timestamp) for each in headers],
        [fact for fact in facts if isinstance(fact, Transfer)],
        [fact for fact in facts if isinstance(fact, RewardMinted)],
    )


def _turns(logs: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rest = iter(logs)
    while turn := list(itertools.islice(rest, _LOGS_A_TURN)):
        yield turn


def _facts(logs: Iterable[dict[str, Any]]) -> Iterable[Fact]:
    for each in logs:
        if each.get("removed"):
            continue
        try:
            fact = ltz.decode_log(each)
        except ValueError as error:
            raise NodeUnavailable("The node's log is malformed") from error
        if fact is not None:
            yield fact
