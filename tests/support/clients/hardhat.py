"""Hardhat's node for tests: a second Ethereum client that shares no code with anvil or py-evm's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from ltzd.dev.services import ports
from tests.support.clients.programs import START_SECONDS, running
from tests.support.ports import free_port
from tests.support.waiting import until

_CLI = "node_modules/hardhat/dist/src/cli.js"


@asynccontextmanager
async def a_hardhat_node() -> AsyncIterator[str]:
    """Starts the node at block 0, mining on demand; yields its URL."""
    port = free_port()
    url = f"http://{ports.LOOPBACK}:{port}"
    command = ["node", _CLI, "node", "--hostname", ports.LOOPBACK, "--port", str(port)]
    async with running(*command) as process, aiohttp.ClientSession() as http:

        async def is_ready() -> bool:
            assert process.returncode is None, "Hardhat's node has ended"
            call = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
            try:
                async with http.post(url, json=call) as reply:
                    return reply.status == 200
            except aiohttp.ClientConnectionError:
                return False

        await until(is_ready, seconds=START_SECONDS)
        yield url
