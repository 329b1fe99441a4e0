"""Finds out at the start which chain this process follows, and that its nodes are of that chain."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import structlog

from ltzd.chain.node.node import Node
from ltzd.chain.pool.pool import NodePool
from ltzd.daemon.settings.settings import Settings
from ltzd.errors import LtzdError, Misconfigured, NodeUnavailable
from ltzd.store import database
from ltzd.store.database import Pool
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import BlockRow, ChainIdentity
from ltzd.values import hex_of

log = structlog.get_logger()

_SLOWER_SECONDS = 1.0
"""How much later than the first node of the chain another one may answer."""
_ANSWER_SECONDS = 4.0
"""How long a start waits for nodes that hang. With a new database one node at least must answer."""


@dataclass(frozen=True, slots=True)
class NodeChain:
    """The chain of one node, and the block before the one in which LTZ was deployed.

    `codes` holds the contracts' code by the setting's name.
    """

    identity: ChainIdentity
    base: BlockRow
    codes: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)


Answers: TypeAlias = Mapping[str, NodeChain | LtzdError]
"""By the node's name: its chain, or why it has none for ltzd."""


class Agreement(msgspec.Struct, frozen=True):
    """The chain to follow.

    `base` is None if the database follows the chain already. `unavailable` says why no node could
    confirm that, and is None if one has.
    """

    chain: ChainIdentity
    base: BlockRow | None = None
    unavailable: str | None = None


async def chain_of(
    settings: Settings, pool: Pool, nodes: NodePool, answer_seconds: float = _ANSWER_SECONDS
) -> ChainIdentity:
    """The chain that the database, the settings and the nodes agree on.

    A new database adopts the nodes' chain, on which all that answer within `answer_seconds` must
    agree. Later the first node of the database's chain is enough, and a node of another chain is
    left out; the process also starts while no node answers, and events queue. Raises Misconfigured.
    """
    async with database.session(pool) as connection:
        known = await chains.identity(connection)
    answers = await ask_nodes(settings, nodes, known, answer_seconds, slower_seconds=0.0)
    agreement = agree(settings, known, answers)
    if agreement.base is not None:
        async with database.transaction(pool) as connection:
            await chains.start_following(connection, agreement.chain, agreement.base)
    if agreement.unavailable is not None:
        log.warning("node.unavailable_at_start", reason=agreement.unavailable)
    return agreement.chain


def agree(settings: Settings, known: ChainIdentity | None, answers: Answers) -> Agreement:
    """The chain that database, settings and nodes agree on. Raises Misconfigured."""
    node_chains = {
        name: answer for name, answer in answers.items() if isinstance(answer, NodeChain)
    }
    if known is None:
        return _of_new_database(answers, node_chains)
    if any(chain.identity == known for chain in node_chains.values()):
        return Agreement(known)
    _refuse_other_settings(settings, known)
    for name, chain in node_chains.items():
        raise Misconfigured(
            f"The database follows {_described(known)}, but the node {name} is on "
            f"{_described(chain.identity)}: use that chain's node and contracts, or another "
            "database."
        )
    _raise_misconfigured(answers)
    return Agreement(known, unavailable=_faults(answers))


def _refuse_other_settings(settings: Settings, known: ChainIdentity) -> None:
    """Raises Misconfigured if the settings name other contracts than the database."""
    contracts = settings.contracts
    if known.ltz != contracts.ltz:
        raise Misconfigured(
            f"The database follows LTZ {hex_of(known.ltz)}, but contracts.ltz is "
            f"{hex_of(contracts.ltz)}: correct contracts, or use another database."
        )
    if known.first_block != contracts.first_block:
        raise Misconfigured(
            f"The database follows the chain from block {known.first_block} on, but "
            f"contracts.first_block is {contracts.first_block}: set contracts.first_block = "
            f"{known.first_block}, or use another database."
        )


def _of_new_database(answers: Answers, node_chains: Mapping[str, NodeChain]) -> Agreement:
    if not node_chains:
        _raise_misconfigured(answers)
        raise Misconfigured(
            f"No node answers and the database is new: {_faults(answers)}. "
            "Start a node, or correct node.urls."
        )
    first = next(iter(node_chains.values()))
    if any(chain != first for chain in node_chains.values()):
        described = "; ".join(
            f"{name}: {_described(chain.identity)}" for name, chain in node_chains.items()
        )
        raise Misconfigured(
            f"The nodes of node.urls are of different chains ({described}) and the database is "
            "new: name only nodes of the chain to follow."
        )
    _raise_misconfigured(answers)
    return Agreement(first.identity, first.base)


def _raise_misconfigured(answers: Answers) -> None:
    for answer in answers.values():
        if isinstance(answer, Misconfigured):
            raise answer


def _faults(answers: Answers) -> str:
    return "; ".join(
        f"{name}: {answer.message}"
        for name, answer in answers.items()
        if isinstance(answer, LtzdError)
    )


async def ask_nodes(
    settings: Settings,
    nodes: NodePool,
    known: ChainIdentity | None,
    seconds: float,
    slower_seconds: float = _SLOWER_SECONDS,
) -> Answers:
    """The chain of each node by the node's name, or why it has none for us.

    The first node of the chain `known` ends the wait for the others, `slower_seconds` later, and so
    do `seconds`. Without `known` they end it only once a node has answered.
    """
    tasks = {
        name: asyncio.create_task(_read_or_fault(settings, name, node))
        for name, node in nodes.nodes()
    }
    try:
        await _first_of_chain(tasks.values(), known, seconds)
        if known is None and not any(map(_has_chain, tasks.values())):
            await asyncio.wait(tasks.values())
        elif tasks:
            await asyncio.wait(tasks.values(), timeout=slower_seconds)
        silent = NodeUnavailable("the node has not answered yet", kind="timeout")
        return {name: task.result() if task.done() else silent for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()


async def _first_of_chain(
    tasks: Iterable[asyncio.Task[NodeChain | LtzdError]],
    known: ChainIdentity | None,
    seconds: float,
) -> None:
    """Wait for the first node of the chain `known`, for all nodes, or for so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            for answer in asyncio.as_completed(tasks):
                chain = await answer
                if isinstance(chain, NodeChain) and chain.identity == known:
                    return
    except TimeoutError:
        return


def _has_chain(task: asyncio.Task[NodeChain | LtzdError]) -> bool:
    return task.done() and isinstance(task.result(), NodeChain)


async def _read_or_fault(settings: Settings, name: str, node: Node) -> NodeChain | LtzdError:
    try:
        return await _read(settings, name, node)
    except (NodeUnavailable, Misconfigured) as error:
        return error


async def _read(settings: Settings, name: str, node: Node) -> NodeChain:
    """Raises NodeUnavailable, Misconfigured."""
    contracts, expected_id = settings.contracts, settings.node.chain_id
    chain_id = await node.chain_id()
    if expected_id is not None and chain_id != expected_id:
        raise Misconfigured(
            f"The node {name} is on chain {chain_id}, but node.chain_id says {expected_id}: "
            "correct one of them."
        )
    genesis = await node.block(0)
    base = await node.block(max(0, contracts.first_block - 1))
    if genesis is None or base is None:
        raise NodeUnavailable("the node has not reached the block in which LTZ was deployed")
    addresses = contracts.addresses()
    codes = await asyncio.gather(*(node.code(address) for address in addresses.values()))
    missing = [
        f"contracts.{setting} {hex_of(address)}"
        for (setting, address), code in zip(addresses.items(), codes, strict=True)
        if not code
    ]
    if missing:
        raise Misconfigured(
            f"There is no contract at {' and '.join(missing)} on the chain of the node {name}; "
            f"correct the {'address' if len(missing) == 1 else 'addresses'}, or use that chain's "
            "node."
        )
    identity = ChainIdentity(chain_id, genesis.hash, contracts.ltz, contracts.first_block)
    block = BlockRow(base.number, base.hash, base.parent_hash, base.timestamp)
    return NodeChain(identity, block, dict(zip(addresses, codes, strict=True)))


def _described(chain: ChainIdentity) -> str:
    return (
        f"chain {chain.chain_id} (genesis {hex_of(chain.genesis_hash)}, LTZ {hex_of(chain.ltz)} "
        f"from block {chain.first_block} on)"
    )
