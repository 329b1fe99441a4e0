"""Nodes that fall behind, stay on old branches, refuse large requests, or are all gone for a while.

Each test has an instance behind one or two faulty nodes; the chain itself is never at fault.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.chain.faulty_node import lies, named
from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.refusals import OF_A_FREE_PLAN, OF_ERIGON, Limits
from tests.support.chain.tester import a_tester
from tests.support.instances.untrusted_nodes import CAMPAIGN_MINUTES, Sites, UntrustedNodes, sites
from tests.support.waiting import until

__all__ = ["sites"]

SECONDS = 15.0
SETTLED_SECONDS = 60.0
STALE_SECONDS = 3.0

SMALL_LIMITS = [
    pytest.param(OF_ERIGON, id="erigon"),
    pytest.param(OF_A_FREE_PLAN, id="free plan"),
]
OLDER_VIEWS = ["an older state", "frozen", "alternating"]


@dataclass(frozen=True)
class Undone:
    """The reorgs that an instance has followed since a moment."""

    site: UntrustedNodes
    reorgs_before: int

    @classmethod
    def since_now(cls, site: UntrustedNodes) -> "Undone":
        return cls(site, _reorgs(site))

    def reorgs(self) -> int:
        return _reorgs(self.site) - self.reorgs_before


def _reorgs(site: UntrustedNodes) -> int:
    return site.instance.printed().count('"event": "indexer.reorg"')


# --- one node -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", OLDER_VIEWS if CAMPAIGN_MINUTES else OLDER_VIEWS[:1])
async def test_an_only_node_may_show_an_older_state_and_come_back(sites: Sites, fault: str) -> None:
    """The jump back to the newest block is the other direction of time."""
    site = await sites.of("tester", 1)
    (node,) = site.nodes
    async with site.blocks():
        await named.VIEWS[fault](node)
        posting = asyncio.create_task(site.post(2))
        await asyncio.sleep(STALE_SECONDS)
        node.heal()
        for answer in await posting:
            await site.indexed(answer, SECONDS)
        await site.settle(SETTLED_SECONDS)


async def test_an_instance_that_starts_on_an_older_state_follows_when_the_node_catches_up(
    sites: Sites,
) -> None:
    site = await sites.of("tester", 1)
    (node,) = site.nodes
    async with site.blocks():
        node.faults = Faults(behind=40)
        await site.kill_and_start()
        posting = asyncio.create_task(site.post())
        for behind in (20, 3, 1, 0):
            await asyncio.sleep(0.3)
            node.faults = Faults(behind=behind)
        for answer in await posting:
            await site.indexed(answer, SECONDS)
        await site.settle(SETTLED_SECONDS)


@pytest.mark.parametrize("limits", SMALL_LIMITS if CAMPAIGN_MINUTES else SMALL_LIMITS[:1])
async def test_a_catch_up_ends_behind_an_only_node_with_small_limits(
    sites: Sites, limits: Limits
) -> None:
    site = await sites.of("tester", 1)
    (node,) = site.nodes
    await site.post(5)
    await site.instance.kill9()
    users = site.users
    for number in range(60):
        await site.transfer_on_chain(users[number % 2], users[(number + 1) % 2])
    await site.rpc("anvil_mine", hex(300))
    node.faults = Faults(limits=limits)
    node.forget()

    await site.restart()

    async with site.blocks():
        (answer,) = await site.post()
        await site.indexed(answer, SETTLED_SECONDS)
        await site.settle(SETTLED_SECONDS)
    assert node.refused_by_size, "the node refused nothing: its limits were not reached"
    assert node.repeated == []


@pytest.mark.parametrize("count", [1, 2] if CAMPAIGN_MINUTES else [1])
async def test_null_receipts_of_executed_relays_change_no_outcome(sites: Sites, count: int) -> None:
    site = await sites.of("tester", count)
    async with site.blocks():
        node = await site.in_use()
        node.faults = Faults(lies=(lies.null_receipts,))
        asks = [await site.a_transfer() for _ in range(2)]
        asking = [asyncio.create_task(ask.outcome(site.relays, SETTLED_SECONDS)) for ask in asks]
        await asyncio.sleep(STALE_SECONDS)
        node.heal()
        assert all(await asyncio.gather(*asking))
        await site.settle(SETTLED_SECONDS)


# --- two nodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tester", "anvil"] if CAMPAIGN_MINUTES else ["tester"])
async def test_a_stale_head_of_one_of_two_nodes_undoes_nothing(sites: Sites, kind: Any) -> None:
    site = await sites.of(kind, 2)
    (answer,) = await site.post()
    await site.indexed(answer, SECONDS)
    undone = Undone.since_now(site)
    async with site.blocks():
        node = await site.in_use()
        node.faults = Faults(behind=10)
        await asyncio.sleep(STALE_SECONDS)
        (during,) = await site.post()
        await site.indexed(during, SECONDS)
        node.heal()
    assert undone.reorgs() == 0
    await site.settle(SETTLED_SECONDS)


async def test_a_reorg_is_followed_while_one_of_two_nodes_stays_on_the_old_branch(
    sites: Sites,
) -> None:
    site = await sites.of("tester", 2)
    answers = await site.post(3)
    for answer in answers:
        await site.indexed(answer, SECONDS)
    await site.rpc("evm_setAutomine", False)
    try:
        old = await site.in_use()
        await old.freeze()
        head = await site.rpc.number()
        await site.rpc("anvil_reorg", 2, [])
        async with site.blocks():

            async def is_followed() -> bool:
                new = (await site.rpc.block(head))["hash"]
                hash_ = bytes.fromhex(new[2:])
                return bool(
                    await site.instance.ask("SELECT count(*) FROM blocks WHERE hash = $1", hash_)
                )

            await until(is_followed, SECONDS)
            old.heal()
            await site.settle(SETTLED_SECONDS)
    finally:
        await site.rpc("evm_setAutomine", True)


async def test_after_all_nodes_were_dead_for_a_while_everything_goes_on(sites: Sites) -> None:
    site = await sites.of("tester", 2)
    for node in site.nodes:
        await node.cut()
    answers = await site.post(2)
    assert [answer.status for answer in answers] == [202, 202]
    await site.recover()
    async with site.blocks():
        for answer in answers:
            await site.indexed(answer, SECONDS)
        await site.recovered()
        await site.settle(SETTLED_SECONDS)


async def _is_left_alone(site: UntrustedNodes) -> bool:
    return not await site.trusts_all()


async def test_a_node_that_follows_another_chain_is_left_out_until_it_is_back(
    sites: Sites,
) -> None:
    site = await sites.of("tester", 2)
    async with a_tester() as other, site.blocks():
        node = await site.in_use()
        await node.cut()
        await until(lambda: _is_left_alone(site), SECONDS)
        node.lead_to(other.url)
        await node.connect()

        async def is_left_out() -> bool:
            return "other_chain" in [
                each["reason"] for each in (await site.instance.status())["nodes"]
            ]

        (answer,) = await site.post()
        await site.indexed(answer, SECONDS)
        await until(is_left_out, SECONDS)
        await node.recover()
        await site.recovered()
        await site.settle(SETTLED_SECONDS)


# --- three nodes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["dead", "hung"] if CAMPAIGN_MINUTES else ["dead"])
async def test_an_instance_starts_and_serves_while_one_of_three_nodes_is_gone(
    sites: Sites, fault: str
) -> None:
    site = await sites.of("tester", 3)
    await named.CONNECTION[fault](site.nodes[1])
    await site.kill_and_start()
    async with site.blocks():
        (answer,) = await site.post()
        await site.indexed(answer, SECONDS)
        await site.recover()
        await site.recovered()
        await site.settle(SETTLED_SECONDS)
