"""A node of two answers one kind of request falsely, and all others as the other node does."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.chain.faulty_node.lies import Lie
from tests.support.chain.faulty_node.named import lie_with
from tests.support.instances.untrusted_nodes import Sites, UntrustedNodes, sites
from tests.support.waiting import until

__all__ = ["sites"]

SECONDS = 20.0
SETTLED_SECONDS = 60.0


def simulations_without_an_answer(method: str, params: Sequence[Any], result: Any) -> Any:
    return "zz" if method == "eth_call" and "gas" in params[0] else result


def receipts_of_other_transactions(method: str, _params: Sequence[Any], result: Any) -> Any:
    if method == "eth_getTransactionReceipt" and result:
        return {**result, "transactionHash": "0x" + "ab" * 32}
    return result


def logs_of_other_transactions(method: str, _params: Sequence[Any], result: Any) -> Any:
    if method == "eth_getLogs" and result:
        return [{**log, "transactionHash": "0x" + "ab" * 32} for log in result]
    return result


LIES: dict[str, Lie] = {
    "no answer to simulations": simulations_without_an_answer,
    "receipts of other transactions": receipts_of_other_transactions,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_events_and_relays_succeed_while_the_node_in_use_answers_falsely(
    sites: Sites, lie: Lie
) -> None:
    site = await sites.of("anvil", 2)
    async with site.blocks():
        await lie_with(lie)(await site.in_use())
        try:
            for _ in range(3):
                (answer,) = await site.post()
                await site.indexed(answer, SECONDS)
                ask = await site.a_transfer()
                assert await ask.outcome(site.relays, SECONDS)
                assert {each.status for each in ask.answers} <= {200, 202}
        finally:
            await site.recover()
        await site.settle(SETTLED_SECONDS)
    assert "lane.failed" not in site.instance.printed()


@pytest.mark.parametrize("is_liar_in_use", [True, False])
async def test_logs_whose_transactions_two_nodes_dispute_are_not_indexed(
    sites: Sites, is_liar_in_use: bool
) -> None:
    """No hash of a block proves which of its transactions wrote a log."""
    site = await sites.of("anvil", 2)
    async with site.blocks():
        used = await site.in_use()
        (other,) = [node for node in site.nodes if node is not used]
        await lie_with(logs_of_other_transactions)(used if is_liar_in_use else other)
        try:
            (answer,) = await site.post()
            await until(lambda: are_disputed(site))
            assert (await site.instance.event(answer.event_id))["status"] == "published"
        finally:
            await site.recover()
        await site.indexed(answer, SECONDS)
        await site.settle(SETTLED_SECONDS)


async def are_disputed(site: UntrustedNodes) -> bool:
    """Whether both nodes' logs contradict each other, and nothing else is held against a node."""
    prefix = "disagreement_"
    return all(
        {kind for kind in node["errors"] if kind.startswith(prefix)} == {f"{prefix}logs"}
        for node in (await site.instance.status())["nodes"]
    )
