"""`ltzd index rebuild`: what it orders, shows and cancels."""

import json
from pathlib import Path

import pytest_asyncio

from ltzd.store.database import Pool
from tests.indexer.test_other_contracts import DERIVED, FACTS, IndexedChain, a_follower, live
from tests.support.chain.fake_node import FakeNode
from tests.support.chain.rebuilding import rebuilding
from tests.support.commands import ltzd
from tests.support.rows.core import pool, running, value
from tests.support.waiting import until

__all__ = ["pool"]

_STATE = "SELECT state FROM rebuilds ORDER BY id DESC LIMIT 1"


@pytest_asyncio.fixture
async def indexed(pool: Pool, database_url: str) -> IndexedChain:
    indexed = await a_follower(pool, database_url, FakeNode())
    live(indexed.node)
    await indexed.catch_up()
    return indexed


async def test_a_rebuild_is_ordered_shown_and_done(
    indexed: IndexedChain, database_url: str, data_dir: Path
) -> None:
    whole = await indexed.tables(*DERIVED, *FACTS)
    follower = (await a_follower(indexed.pool, database_url, indexed.node)).follower
    async with (
        running(follower.run()),
        rebuilding(indexed.pool, database_url, indexed.node),
    ):
        await until(lambda: _serves(indexed.pool))
        shown = await ltzd("index", "rebuild", "--from", "2", "--data-dir", data_dir)
    assert shown.code == 0, shown.err
    assert shown.out.endswith("The index was rebuilt.\n")  # after the follower's log
    assert "No process" not in shown.err
    assert await indexed.tables(*DERIVED, *FACTS) == whole


async def _serves(pool: Pool) -> bool:
    return bool(await value(pool, "SELECT count(*) FROM leases WHERE name LIKE 'indexer/%'"))


async def test_without_an_indexer_the_order_stays_and_the_command_says_so(
    indexed: IndexedChain, data_dir: Path
) -> None:
    shown = await ltzd("index", "rebuild", "--json", "--data-dir", data_dir)
    assert shown.code == 0
    assert json.loads(shown.out)["state"] == "ordered"
    assert "No process with the role indexer runs" in shown.err

    other = await ltzd("index", "rebuild", "--from", "3", "--data-dir", data_dir)
    assert other.code != 0
    assert "--cancel" in other.err

    cancelled = await ltzd("index", "rebuild", "--cancel", "--data-dir", data_dir)
    assert cancelled.code == 0
    assert await value(indexed.pool, _STATE) == "cancelled"


async def test_nothing_is_cancelled_where_no_rebuild_is_open(
    indexed: IndexedChain, data_dir: Path
) -> None:
    shown = await ltzd("index", "rebuild", "--cancel", "--data-dir", data_dir)
    assert (shown.code, shown.err) == (1, "No rebuild is open.\n")


async def test_a_block_that_no_chain_has_is_refused(indexed: IndexedChain, data_dir: Path) -> None:
    for command, option in (("rebuild", "--from"), ("check", "--from"), ("repair", "--to")):
        done = await ltzd("index", command, option, str(2**63), "--data-dir", data_dir)
        assert done.code == 2
        assert "Invalid value for" in done.err
    assert await value(indexed.pool, "SELECT count(*) FROM rebuilds") == 0
