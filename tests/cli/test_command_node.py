"""The nodes of a command: all that answer."""

import pytest

from ltzd.cli.command_node import agreeing_nodes
from ltzd.errors import Misconfigured, NodeUnavailable
from tests.support.chain.node_fleet import CHAIN_ID, FleetNode, serving


async def test_a_command_leaves_out_a_node_that_does_not_answer() -> None:
    dead, second = FleetNode("dead", mode="http_500"), FleetNode("b")
    async with (
        serving(dead),
        serving(second),
        agreeing_nodes([dead.url, second.url], CHAIN_ID) as nodes,
    ):
        assert await nodes.agreed("its name", lambda rpc: rpc.call("who")) == "b"


async def test_a_command_without_any_node_names_them_all_without_their_paths() -> None:
    first, second = FleetNode("a", mode="http_500"), FleetNode("b", mode="http_500")
    async with serving(first), serving(second):
        with pytest.raises(NodeUnavailable) as raised:
            async with agreeing_nodes([f"{first.url}/hunter2", second.url], CHAIN_ID):
                pass
    assert first.url.removeprefix("http://") in raised.value.message
    assert "hunter2" not in raised.value.message


async def test_two_nodes_behind_one_host_are_both_asked() -> None:
    gateway = FleetNode("gateway")
    async with (
        serving(gateway),
        agreeing_nodes([f"{gateway.url}?first", f"{gateway.url}?second"], CHAIN_ID) as nodes,
    ):
        assert len(await nodes.each(lambda rpc: rpc.call("who"))) == 2


async def test_a_person_names_the_chain_of_a_signature() -> None:
    """A node of a test network could say that it is on the main network."""
    async with serving(node := FleetNode("liar", chain_id=1)):
        async with agreeing_nodes([node.url], None, signs=False) as nodes:
            assert len(nodes.clients) == 1
        with pytest.raises(Misconfigured, match=r"set node\.chain_id = 1 if"):
            async with agreeing_nodes([node.url], None):
                pass
