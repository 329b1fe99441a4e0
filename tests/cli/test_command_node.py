"""The node of a command: the first that answers."""

import pytest

from ltzd.cli.command_node import agreeing_nodes, first_answering
from ltzd.errors import Misconfigured, NodeUnavailable
from tests.support.chain.node_fleet import CHAIN_ID, FleetNode, serving


async def test_a_command_uses_the_first_node_that_answers() -> None:
    dead, second, third = FleetNode("dead", mode="http_500"), FleetNode("b"), FleetNode("c")
    async with (
        serving(dead),
        serving(second),
        serving(third),
        first_answering([dead.url, second.url, third.url]) as rpc,
    ):
        assert await rpc.call("who") == "b"


async def test_a_command_without_any_node_names_them_all_without_their_paths() -> None:
    first, second = FleetNode("a", mode="http_500"), FleetNode("b", mode="http_500")
    async with serving(first), serving(second):
        with pytest.raises(NodeUnavailable) as raised:
            async with first_answering([f"{first.url}/hunter2", second.url]):
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
        with pytest.raises(Misconfigured, match=r"set node\.chain_id = 1 if"):
            async with agreeing_nodes([node.url], None):
                pass
