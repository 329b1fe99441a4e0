"""A rebuild gives the tables that indexing has given, whatever was in them before."""

import pytest

from ltzd.store.database import Pool
from tests.indexer.test_other_contracts import DERIVED, FACTS, a_follower, live
from tests.support.chain.fake_node import FakeNode
from tests.support.chain.rebuilding import order, rebuild
from tests.support.rows.core import value

_TABLES = (*DERIVED, *FACTS)


@pytest.mark.parametrize("from_block", [0, 1, 3, 100])
async def test_a_rebuild_gives_the_same_tables_again(
    pool: Pool, database_url: str, from_block: int
) -> None:
    node = FakeNode()
    node.final_depth = 1
    indexing = await a_follower(pool, database_url, node)
    live(node)
    await indexing.catch_up()
    await indexing.follower.step()
    whole = await indexing.tables(*_TABLES)

    await order(pool, from_block)
    await rebuild(pool, database_url, node)

    assert await indexing.tables(*_TABLES) == whole
    assert await value(pool, "SELECT state FROM rebuilds") == "done"
