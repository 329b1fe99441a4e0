"""The node that one command works with: the first of the settings' nodes that answers.

A command makes all its requests to this node, so that they see one view of the chain.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ltzd.chain.node.client import RpcClient, node_name
from ltzd.chain.node.node import Node
from ltzd.chain.node.opening import open_rpc
from ltzd.chain.node.rpc import RpcPolicy
from ltzd.errors import NodeUnavailable

_ANSWER_SECONDS = 5.0


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
