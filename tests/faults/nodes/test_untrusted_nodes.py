"""One, two and three nodes with faults: events and relays flow, and books and chain agree.

`make campaign-nodes` runs the random campaign for minutes and tries every fault. Seeds are printed;
LTZD_TEST_SEED repeats a run.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import Mapping

import pytest

from ltzd.dev.services.chain import Kind
from tests.support.chain.faulty_node import named
from tests.support.chain.faulty_node.named import BeginFault
from tests.support.chain.faulty_node.node import FaultyNode
from tests.support.instances.untrusted_nodes import CAMPAIGN_MINUTES, Sites, UntrustedNodes, sites

__all__ = ["sites"]

FAILOVER_SECONDS = 15.0
"""The deadline for an event while a node fails: 5 s, and time for a loaded machine."""

SETTLED_SECONDS = 60.0
SHORTLY_SECONDS = 6.0
LONGEST_FAULT_SECONDS = 4.0 if CAMPAIGN_MINUTES else 1.5
MOST_RELAYS = 30

BRIEFLY = (
    "dead",
    "hung",
    "half an answer",
    "behind",
    "alternating",
    "a future head",
    "padded blocks",
    "no logs and no blooms",
    "another branch",
)
"""The faults that `make test` tries; the campaign tries all of them."""

UNDECIDABLE = ("another branch",)
"""Lies that stop an instance with two nodes until they end, since either node may be the liar."""


@pytest.mark.parametrize("fault", named.ALL if CAMPAIGN_MINUTES else BRIEFLY)
async def test_an_event_is_minted_while_the_node_in_use_is_at_fault(
    sites: Sites, fault: str
) -> None:
    site = await sites.of("anvil", 3 if fault in UNDECIDABLE else 2)
    async with site.blocks():
        node = await site.in_use()
        await named.ALL[fault](node)
        try:
            (answer,) = await site.post()
            await site.indexed(answer, FAILOVER_SECONDS)
        finally:
            await node.recover()
        await site.recovered()


# --- the random campaign ------------------------------------------------------------------------

ALONE: Mapping[str, BeginFault] = {
    **named.CONNECTION,
    **named.SIZES,
    **named.VIEWS,
    **named.LIES,
}
"""The faults of an only node: no other node can disprove a forgery."""


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        *[("tester", 1), ("anvil", 2)],
        *([("tester", 2), ("tester", 3), ("anvil", 1), ("anvil", 3)] if CAMPAIGN_MINUTES else []),
    ],
)
async def test_books_and_chain_agree_after_random_faults(
    sites: Sites, kind: Kind, count: int
) -> None:
    seed = int(os.environ.get("LTZD_TEST_SEED") or time.time_ns())
    print(f"seed {seed}, {kind}, {count} nodes")
    seconds = CAMPAIGN_MINUTES * 60 / 6 or SHORTLY_SECONDS
    site = await sites.of(kind, count)
    campaign = Campaign(site, random.Random(seed))
    try:
        async with site.blocks():
            await campaign.run(seconds)
            await site.settle(SETTLED_SECONDS)
    finally:
        print(campaign.summary())


class Campaign:
    """Events and relays flow while faults begin and end at random moments, one at a time.

    One node shows older states and lies; the connection of any node may fail.
    """

    def __init__(self, site: UntrustedNodes, moments: random.Random) -> None:
        self._site = site
        self._moments = moments
        self._liar = moments.choice(site.nodes)
        self._faults = ALONE if len(site.nodes) == 1 else named.ALL
        self._begun: list[str] = []
        self._over = asyncio.Event()

    async def run(self, seconds: float) -> None:
        """Ends with all nodes healthy and the instance running."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._post_events())
            group.create_task(self._relay(seconds))
            try:
                await self._begin_and_end_faults(seconds)
            finally:
                await self._site.recover()
                self._over.set()
        assert self._site.instance.is_running, self._site.instance.printed()[-3000:]

    def summary(self) -> str:
        events, relays = len(self._site.answers), len(self._site.asks)
        return f"{events} events, {relays} relays through {', '.join(self._begun)}"

    async def _begin_and_end_faults(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        restart_at = self._moments.randrange(3, 8)
        while time.monotonic() < end:
            name = self._moments.choice(list(self._faults))
            self._begun.append(name)
            any_node = self._moments.choice(self._site.nodes)
            node = any_node if name in named.CONNECTION else self._liar
            await self._faults[name](node)
            if len(self._begun) >= restart_at and self._may_start_with(name, node):
                restart_at = sys.maxsize
                self._begun[-1] += " at the start"
                await self._site.kill_and_start()
            await asyncio.sleep(self._moments.uniform(0.2, LONGEST_FAULT_SECONDS))
            await node.recover()
            await asyncio.sleep(self._moments.uniform(0.0, LONGEST_FAULT_SECONDS / 3))

    def _may_start_with(self, name: str, node: FaultyNode) -> bool:
        """`ltzd dev` sets itself up by one node, which must answer over HTTP.

        The second node is reached by WebSocket only.
        """
        first, *others = self._site.nodes
        is_http_left = node is not first or len(others) > 1
        return name in named.VIEWS or (name == "dead" and is_http_left)

    async def _post_events(self) -> None:
        """Four clients, each with one event at a time."""

        async def client() -> None:
            while not self._over.is_set():
                await self._site.post_through_kills()

        await asyncio.gather(*(client() for _ in range(4)))

    async def _relay(self, seconds: float) -> None:
        """Begins a few relays in the time of the campaign, each as soon as the last has ended."""
        pause = max(0.5, seconds / MOST_RELAYS)
        while not self._over.is_set():
            ask = await self._site.a_transfer()
            await ask.outcome(self._site.relays, SETTLED_SECONDS)
            await asyncio.sleep(pause)
