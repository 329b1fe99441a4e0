"""The nodes that one command works with.

Most commands make all requests to the first node that answers, so that they see one view of the
chain. A command that compares asks all nodes.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from ltzd.chain.node.client import RpcClient, node_name
from ltzd.chain.node.node import Node
from ltzd.chain.node.opening import open_rpc
from ltzd.chain.node.rpc import RpcPolicy
from ltzd.errors import NodeUnavailable
from ltzd.values import Hash32

_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class AnsweringNodes:
    """The nodes that answer, by name, and what is wrong with the others, the `silent` ones."""

    nodes: tuple[tuple[str, Node], ...]
    faults: tuple[str, ...]
    silent: tuple[str, ...]


@asynccontextmanager
async def answering_nodes(
    urls: Sequence[str], chain_id: int, genesis: Hash32
) -> AsyncIterator[AnsweringNodes]:
    """Opens all nodes of the chain that answer. Raises NodeUnavailable if none does."""
    async with AsyncExitStack() as stack:
        nodes, faults, silent = [], [], []
        for url in urls:
            name = node_name(url)
            rpc = await stack.enter_async_context(
                open_rpc(url, RpcPolicy(timeout_seconds=_ANSWER_SECONDS))
            )
            try:
                fault = await _foreign_chain(Node(rpc), chain_id, genesis)
            except NodeUnavailable as error:
                fault = error.message
            if fault is None:
                nodes.append((name, Node(rpc)))
            else:
                faults.append(f"{name}: {fault}")
                silent.append(name)
        if not nodes:
            raise NodeUnavailable(f"No node answers ({'; '.join(faults)})")
        yield AnsweringNodes(tuple(nodes), tuple(faults), tuple(silent))


async def _foreign_chain(node: Node, chain_id: int, genesis: Hash32) -> str | None:
    """Why the node is not of the database's chain, or None."""
    if await node.chain_id() != chain_id:
        return f"it is on another chain than the database's, {chain_id}"
    block = await node.block(0)
    if block is not None and block.hash != genesis:
        return "the genesis block of its chain is not the database's"
    return None


@asynccontextmanager
async def first_answering(urls: Sequence[str]) -> AsyncIterator[RpcClient]:
    """Opens the first node that answers. Raises NodeUnavailable, which names all that do not."""
    url = urls[0] if len(urls) == 1 else await _first_answering(urls)
    async with open_rpc(url) as rpc:
        yield rpc


async def _first_answering(urls: Sequence[str]) -> str:
    faults = []
    for url in urls:
        try:
            async with open_rpc(url, RpcPolicy(timeout_seconds=_ANSWER_SECONDS)) as rpc:
                await Node(rpc).chain_id()
        except NodeUnavailable as error:
            faults.append(f"{node_name(url)}: {error.message}")
        else:
            return url
    raise NodeUnavailable(f"No node answers ({'; '.join(faults)})")
