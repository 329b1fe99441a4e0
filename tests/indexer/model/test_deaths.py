"""The indexer dies at each request to PostgreSQL, before or after it: nothing is half written."""

import pytest

from ltzd.errors import DatabaseUnavailable
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, open_pool
from tests.support.index_model.campaign import CAMPAIGN
from tests.support.index_model.chain import ModelChain
from tests.support.index_model.index import FAR, NEAR, ModelIndex
from tests.support.index_model.node import LogFaultsNode
from tests.support.services.mortal_proxy import Moment, MortalProxy, a_mortal_proxy

_MOST_REQUESTS = 200
_STEPS = (1, 1, 1) if CAMPAIGN else (2, 7, 11)
"""The difference between the requests of two deaths: `make campaign-index` tries each request."""


@pytest.mark.parametrize(
    ("moment", "policy", "every"),
    [
        pytest.param("before", NEAR, _STEPS[0], id="before-near"),
        pytest.param("after", NEAR, _STEPS[1], id="after-near"),
        pytest.param("after", FAR, _STEPS[2], id="after-far"),
    ],
)
async def test_a_death_at_any_request_leaves_the_index_as_after_a_block(
    pool: Pool, database_url: str, moment: Moment, policy: IndexerPolicy, every: int
) -> None:
    """Each life undoes a reorg, follows the new branch, and ends some requests later."""
    node = LogFaultsNode()
    node.final_depth = 8
    chain = ModelChain(node, seed=20)
    index = ModelIndex(pool, database_url, chain, policy)
    await index.start()
    chain.mine(30)
    await index.catch_up()
    async with a_mortal_proxy(database_url) as (proxy, url):
        for request in range(1, _MOST_REQUESTS, every):
            chain.reorg(3)
            chain.mine(12)
            await _live(proxy, url, index, request, moment)
            if not proxy.is_dead:
                break
            await index.catch_up()
        else:
            raise AssertionError("the indexer dies for ever")
    assert request > 20, "a term, an undone reorg and new blocks take more requests"


async def _live(
    proxy: MortalProxy, url: str, index: ModelIndex, request: int, moment: Moment
) -> None:
    """A process that follows the chain over a new pool, and dies at this request of it."""
    proxy.revive()
    proxy.die_at(request, moment)
    try:
        pool = await open_pool(url, open_at_start=0)
        await index.catch_up_over(pool)
    except DatabaseUnavailable:
        await index.compare()
    finally:
        pool.terminate()
