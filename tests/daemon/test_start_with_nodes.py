"""The chain of a process at its start, while some or all of its nodes hang."""

import asyncio
from pathlib import Path

import pytest

from ltzd.chain.pool.policy import NodePoolPolicy
from ltzd.chain.pool.pool import NodePool
from ltzd.daemon.chain_identity import NodeChain, ask_nodes, chain_of
from ltzd.store.database import session
from ltzd.store.indexer import chains
from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.node import faulty_nodes
from tests.support.chain.node_fleet import FleetNode, serving
from tests.support.surfaces.event_surface import an_event_surface

PATIENT = NodePoolPolicy(timeout=600.0)


@pytest.mark.parametrize(("has_other", "answer_seconds"), [(True, 600.0), (False, 0.1)])
async def test_a_start_with_a_known_chain_does_not_wait_for_a_node_that_hangs(
    database_url: str, tmp_path: Path, has_other: bool, answer_seconds: float
) -> None:
    hung = FleetNode("hung", mode="hung")
    async with an_event_surface(database_url, tmp_path) as surface, serving(hung):
        settings, pool = surface.daemon.settings, surface.daemon.pools.admin
        others = settings.node.plain_urls() if has_other else []
        async with NodePool([hung.url, *others], PATIENT) as nodes, asyncio.timeout(60):
            chain = await chain_of(settings, pool, nodes, answer_seconds)
        assert chain.chain_id == surface.daemon.relay_context.contracts.chain_id


async def test_a_node_that_answers_later_than_another_one_is_not_called_silent(
    database_url: str, tmp_path: Path
) -> None:
    async with an_event_surface(database_url, tmp_path) as surface:
        settings, pool = surface.daemon.settings, surface.daemon.pools.admin
        (url,) = settings.node.plain_urls()
        async with faulty_nodes(url, 1) as (slow,), session(pool) as connection:
            slow.faults = Faults(late_seconds=0.3)
            known = await chains.identity(connection)
            async with NodePool([slow.url, url], PATIENT) as nodes, asyncio.timeout(60):
                answers = await ask_nodes(settings, nodes, known, 600.0, slower_seconds=600.0)
        assert len(answers) == 2
        assert all(isinstance(answer, NodeChain) for answer in answers.values()), answers
