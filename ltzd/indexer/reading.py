"""Reads blocks and our contracts' logs from a node; believes an empty answer only with a reason.

A `Stretch` is a run of blocks with every fact in it, ready to be committed. Far from the head it
holds headers only of blocks with facts and of its last block.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, TypeVar

import structlog

from ltzd import telemetry
from ltzd.chain.contracts import business_escrow, ltz, perk_nft, points_sale
from ltzd.chain.node import bloom
from ltzd.chain.node.node import Header, Node
from ltzd.chain.node.rpc import RpcError
from ltzd.errors import Broken, NodeUnavailable
from ltzd.indexer.policy import Contracts
from ltzd.rules.indexer.contract_facts import EscrowFact, PerkFact, SaleFact, TokenTransferred
from ltzd.rules.indexer.log_position import PositionedFact
from ltzd.rules.indexer.mint_facts import Fact, RewardMinted, Transfer
from ltzd.rules.perk_charges import MOST_TOKEN_ID
from ltzd.store.indexer.chains import BlockRow
from ltzd.values import Address, Hash32, address_of, hex_of

log = structlog.get_logger()

AnyFact = TypeVar("AnyFact", bound=PositionedFact)
Log = dict[str, Any]

_LOGS_A_TURN = 200

# Whatever else we keep of LTZ comes with a Transfer, and so does a claim.
_KEPT_OF_LTZ: Final = (ltz.TRANSFER_TOPIC,)
_KEPT_OF_PERK_NFT: Final = (
    perk_nft.TRANSFER_TOPIC,
    perk_nft.CHARGE_REDEEMED_TOPIC,
    perk_nft.COLLECTION_CREATED_TOPIC,
    perk_nft.COLLECTION_UPDATED_TOPIC,
    perk_nft.COLLECTION_BRAND_SET_TOPIC,
)
_KEPT_OF_POINTS_SALE: Final = (points_sale.PURCHASED_TOPIC, points_sale.ITEM_SET_TOPIC)
_KEPT_OF_BUSINESS_ESCROW: Final = (
    business_escrow.LOCKED_TOPIC,
    business_escrow.RELEASED_TOPIC,
    business_escrow.REFUNDED_TOPIC,
    business_escrow.SPLIT_TOPIC,
)


@dataclass(frozen=True, slots=True)
class BlockRange:
    """`parent_hash` is that of the first block, None where only logs were read."""

    parent_hash: Hash32 | None
    blocks: Sequence[BlockRow]
    transfers: Sequence[Transfer]
    mints: Sequence[RewardMinted]
    perks: Sequence[PerkFact]
    sales: Sequence[SaleFact]
    deals: Sequence[EscrowFact]

    @property
    def moves_tokens(self) -> bool:
        return any(isinstance(fact, TokenTransferred) for fact in self.perks)

    @property
    def last(self) -> tuple[int, Hash32]:
        return self.blocks[-1].number, self.blocks[-1].hash


async def read_head(node: Node, contracts: Contracts, first: int, last: int) -> BlockRange | None:
    """Blocks first…last with all headers; None when the node's answers do not fit each other.

    That happens while the chain changes under the question; ask again.
    """
    headers, logs = await node.headers_and_logs(first, last, *contracts.all())
    chain = _linked(headers, first)
    if chain is None:
        return None
    by_block = _by_block(logs)
    hashes = {header.hash for header in chain}
    if not by_block.keys() <= hashes:
        return None
    for header in chain:
        told = by_block.get(header.hash, ())
        logs += await _doubted(node, header, _silent(header, contracts, told))
    return await _stretch(chain[0].parent_hash, chain, logs, contracts)


async def read_range(node: Node, contracts: Contracts, first: int, last: int) -> BlockRange | None:
    """Final blocks first…last by one getLogs; fewer while the node finds the span too large."""
    while True:
        try:
            logs, header = await node.logs_up_to(first, last, *contracts.all())
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
    return await _stretch(None, headers, logs, contracts)


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


def _by_block(logs: Iterable[Log]) -> dict[Hash32, list[Log]]:
    grouped: dict[Hash32, list[Log]] = {}
    for each in logs:
        grouped.setdefault(Hash32(bytes.fromhex(each["blockHash"][2:])), []).append(each)
    return grouped


def _silent(header: Header, contracts: Contracts, told: Iterable[Log]) -> list[Address]:
    """Contracts with no log in the answer, though the block's bloom may hold some that we keep."""
    heard = {address_of(each["address"]) for each in told}
    return [
        contract
        for contract, topics in (
            (contracts.ltz, _KEPT_OF_LTZ),
            (contracts.perk_nft, _KEPT_OF_PERK_NFT),
            (contracts.points_sale, _KEPT_OF_POINTS_SALE),
            (contracts.business_escrow, _KEPT_OF_BUSINESS_ESCROW),
        )
        # A contract's and an event's six bits lie less often than three.
        if contract not in heard and bloom.may_hold_any(header.bloom, contract, topics)
    ]


async def _doubted(node: Node, header: Header, silent: Sequence[Address]) -> list[Log]:
    """The logs of contracts that were silent about a block: asked again, by hash, then receipts."""
    if not silent:
        return []
    logs = await node.logs_of_block(header.hash, *silent)
    heard = {address_of(each["address"]) for each in logs}
    still = [contract for contract in silent if contract not in heard]
    if still:
        logs += await node.logs_by_receipts(header.hash, *still)
    telemetry.LOG_COMPLETENESS.labels("found" if logs else "empty").inc()
    return logs


async def _stretch(
    parent_hash: Hash32 | None,
    headers: Sequence[Header],
    logs: Iterable[Log],
    contracts: Contracts,
) -> BlockRange:
    told = _by_contract(logs, contracts)
    ltz_facts: list[Fact] = await _decoded(told[contracts.ltz], ltz.decode_log)
    perks: list[PerkFact] = await _decoded(told[contracts.perk_nft], perk_nft.decode_log)
    _refuse_foreign_tokens(perks, contracts)
    return BlockRange(
        parent_hash,
        [BlockRow(each.number, each.hash, each.parent_hash, each.timestamp) for each in headers],
        [fact for fact in ltz_facts if isinstance(fact, Transfer)],
        [fact for fact in ltz_facts if isinstance(fact, RewardMinted)],
        perks,
        await _decoded(told[contracts.points_sale], points_sale.decode_log),
        await _decoded(told[contracts.business_escrow], business_escrow.decode_log),
    )


def _by_contract(logs: Iterable[Log], contracts: Contracts) -> Mapping[Address, list[Log]]:
    """What a node tells of contracts that it was not asked for is left aside."""
    by_text: dict[str, list[Log]] = defaultdict(list)
    for each in logs:
        by_text[each["address"]].append(each)
    told: dict[Address, list[Log]] = {contract: [] for contract in contracts.all()}
    for text, some in by_text.items():
        told.get(address_of(text), []).extend(some)
    return told


async def _decoded(
    logs: Iterable[Log],
    decode: Callable[[Log], AnyFact | None],
) -> list[AnyFact]:
    """Each fact once, in the chain's order; a node may say the same log twice.

    In turns, so that a large block does not hold up the requests of this process.
    """
    found: dict[tuple[int, Hash32, int], AnyFact] = {}
    for turn in _turns(logs):
        found.update((fact.position.order, fact) for fact in _facts(turn, decode))
        await asyncio.sleep(0)
    return [fact for _, fact in sorted(found.items(), key=itemgetter(0))]


def _turns(logs: Iterable[Log]) -> Iterator[list[Log]]:
    rest = iter(logs)
    while turn := list(itertools.islice(rest, _LOGS_A_TURN)):
        yield turn


def _facts(logs: Iterable[Log], decode: Callable[[Log], AnyFact | None]) -> Iterator[AnyFact]:
    for each in logs:
        if each.get("removed"):
            continue
        try:
            fact = decode(each)
        except ValueError as error:
            raise NodeUnavailable("The node's log is malformed") from error
        if fact is not None:
            yield fact


def _refuse_foreign_tokens(perks: Iterable[PerkFact], contracts: Contracts) -> None:
    """Raises Broken for a token id that only another ERC-721 gives."""
    for fact in perks:
        if isinstance(fact, TokenTransferred) and fact.token_id > MOST_TOKEN_ID:
            raise Broken(
                f"The contract at {hex_of(contracts.perk_nft)} is no PerkNFT: it moved the token "
                f"{fact.token_id}; correct contracts.perk_nft"
            )
