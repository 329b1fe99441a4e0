"""The nodes that one command works with: all that answer, since none of them is believed alone."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from ltzd.chain.deployment.agreement import AgreeingNodes
from ltzd.chain.node.client import RpcClient, node_names
from ltzd.chain.node.node import Node
from ltzd.chain.node.opening import open_rpc
from ltzd.chain.node.rpc import RpcPolicy
from ltzd.cli.output import print_message
from ltzd.daemon.indexer import DEV_CHAIN_IDS
from ltzd.errors import Misconfigured, NodeUnavailable
from ltzd.values import Hash32

_ANSWER_SECONDS = 5.0


class AnsweringNodes(msgspec.Struct, frozen=True):
    """The nodes that answer, by name, and what is wrong with the others, the `silent` ones."""

    clients: Mapping[str, RpcClient]
    faults: tuple[str, ...]
    silent: tuple[str, ...]

    @property
    def nodes(self) -> tuple[tuple[str, Node], ...]:
        return tuple((name, Node(rpc)) for name, rpc in self.clients.items())


@asynccontextmanager
async def answering_nodes(
    urls: Sequence[str], chain_id: int, genesis: Hash32
) -> AsyncIterator[AnsweringNodes]:
    """Open all nodes of the chain that answer. Raises NodeUnavailable if none does."""
    async with AsyncExitStack() as stack:
        clients: dict[str, RpcClient] = {}
        faults, silent = [], []
        for name, url in zip(node_names(urls), urls, strict=True):
            rpc = await stack.enter_async_context(
                open_rpc(url, RpcPolicy(timeout_seconds=_ANSWER_SECONDS))
            )
            try:
                fault = await _foreign_chain(Node(rpc), chain_id, genesis)
            except NodeUnavailable as error:
                fault = error.message
            if fault is None:
                clients[name] = rpc
            else:
                faults.append(f"{name}: {fault}")
                silent.append(name)
        if not clients:
            raise NodeUnavailable(f"No node answers ({'; '.join(faults)})")
        yield AnsweringNodes(clients, tuple(faults), tuple(silent))


async def _foreign_chain(node: Node, chain_id: int, genesis: Hash32) -> str | None:
    """Why the node is not of the database's chain, or None."""
    if await node.chain_id() != chain_id:
        return f"it is on another chain than the database's, {chain_id}"
    block = await node.block(0)
    if block is not None and block.hash != genesis:
        return "the genesis block of its chain is not the database's"
    return None


@asynccontextmanager
async def agreeing_nodes(
    urls: Sequence[str],
    chain_id: int | None,
    named_by: str = "node.chain_id",
    *,
    signs: bool = True,
) -> AsyncIterator[AgreeingNodes]:
    """Open all nodes that answer, and print which do not.

    `chain_id` is the chain that the person means, by the setting or option `named_by`. Raises
    NodeUnavailable if no node answers, and Misconfigured if one is on another chain. A command that
    `signs` raises Misconfigured if `chain_id` is None, too: nodes that lie would choose the chain
    that the signature is valid on. A chain for development need not be named, since nobody has
    anything to lose on it.
    """
    async with AsyncExitStack() as stack:
        clients: dict[str, RpcClient] = {}
        faults = []
        for name, url in zip(node_names(urls), urls, strict=True):
            rpc = await stack.enter_async_context(
                open_rpc(url, RpcPolicy(timeout_seconds=_ANSWER_SECONDS))
            )
            try:
                shown = await Node(rpc).chain_id()
            except NodeUnavailable as error:
                faults.append(f"{name}: {error.message}")
                continue
            if signs and chain_id is None and shown not in DEV_CHAIN_IDS:
                raise Misconfigured(
                    f"{named_by} is not set, and the node {name} says that it is on chain {shown}. "
                    "A signature is valid on the chain that it names, so a person must name it: "
                    f"set {named_by} = {shown} if you mean that chain. Nothing was sent."
                )
            if chain_id not in {None, shown}:
                raise Misconfigured(
                    f"The node {name} is on chain {shown}, not on {chain_id}: correct node.urls or "
                    f"{named_by}. Nothing was sent."
                )
            clients[name] = rpc
        if not clients:
            raise NodeUnavailable(f"No node answers ({'; '.join(faults)})")
        for fault in faults:
            print_message(f"Not asked: {fault}")
        yield AgreeingNodes(clients)
