"""A node of three, or of two, lies about logs of true blocks: every event is minted and indexed."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.chain.faulty_node.named import lie_with
from tests.support.instances.untrusted_nodes import Sites, sites

__all__ = ["sites"]

_EVENTS = 3
_INDEXED_SECONDS = 20.0

Logs = list[dict[str, Any]]
LIES: dict[str, Callable[[Logs], Logs]] = {
    "no topics": lambda logs: [{**log, "topics": []} for log in logs],
    "the last log of each answer left out": lambda logs: logs[:-1],
    "marked as removed": lambda logs: [{**log, "removed": True} for log in logs],
    "other amounts": lambda logs: [{**log, "data": "0x" + "00" * 31 + "01"} for log in logs],
}


def lying(change: Callable[[Logs], Logs]) -> Callable[[str, Sequence[Any], Any], Any]:
    def lie(method: str, _params: Sequence[Any], result: Any) -> Any:
        if method == "eth_getLogs" and result:
            return change(result)
        if method == "eth_getBlockReceipts" and result:
            return [{**receipt, "logs": change(receipt["logs"])} for receipt in result]
        return result

    return lie


@pytest.mark.parametrize("lie", LIES)
async def test_logs_that_only_the_node_in_use_shows_are_not_believed(
    sites: Sites, lie: str
) -> None:
    site = await sites.of("anvil", 3)
    async with site.blocks():
        node = await site.in_use()
        await lie_with(lying(LIES[lie]))(node)
        try:
            answers = await site.post(_EVENTS)
            for answer in answers:
                await site.indexed(answer, _INDEXED_SECONDS)
        finally:
            await node.recover()


@pytest.mark.parametrize("is_in_use", [True, False], ids=["in use", "not in use"])
async def test_of_two_nodes_the_block_itself_decides_which_logs_are_true(
    sites: Sites, is_in_use: bool
) -> None:
    """Amounts are in no bloom, and none of two nodes is trusted more than the other."""
    site = await sites.of("anvil", 2)
    async with site.blocks():
        used = await site.in_use()
        liar = next(node for node in site.nodes if (node is used) == is_in_use)
        await lie_with(lying(LIES["other amounts"]))(liar)
        try:
            answers = await site.post(_EVENTS)
            for answer in answers:
                await site.indexed(answer, _INDEXED_SECONDS)
        finally:
            await liar.recover()
