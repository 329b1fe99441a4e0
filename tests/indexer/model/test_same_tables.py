"""Two indexings of the same chain, over other paths, end with the same rows in every table."""

from msgspec.structs import replace

from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, open_pool, session
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import ZERO_ADDRESS
from tests.support.chain.fake_node import CONTRACTS, FakeNode, transfer_log
from tests.support.index_model.campaign import TRANSFERS
from tests.support.index_model.index import FAR, NEAR
from tests.support.index_model.tables import DERIVED, FACTS
from tests.support.rows.core import a_wallet, follow
from tests.support.services.postgres import Databases

_BLOCK_TRANSFERS = 250
_HOLDERS = TRANSFERS // 10


async def test_transfers_that_are_indexed_twice_give_the_same_tables(
    databases: Databases,
) -> None:
    """Once in large ranges; once in small ones, through restarts, and with whole blocks."""
    node = FakeNode()
    mine_transfers(node)
    straight, winding = replace(FAR, range_blocks=2_000), replace(FAR, range_blocks=3)
    async with databases.fresh() as url:
        pool = await open_pool(url)
        await index_chain(pool, url, node, [straight])
        once = await table_hashes(pool)
        pool.terminate()
    async with databases.fresh() as url:
        pool = await open_pool(url)
        await index_chain(pool, url, node, [winding, NEAR, winding, straight])
        twice = await table_hashes(pool)
        pool.terminate()
    assert once == twice
    assert once["transfers"][0] == TRANSFERS


def mine_transfers(node: FakeNode) -> None:
    for first in range(0, TRANSFERS, _BLOCK_TRANSFERS):
        node.mine(
            logs=[
                transfer_log(ZERO_ADDRESS, a_wallet(1 + number * 7919 % _HOLDERS), 10**18 + number)
                if number % 3
                else transfer_log(a_wallet(1 + number * 7919 % _HOLDERS), a_wallet(1), 0)
                for number in range(first, first + _BLOCK_TRANSFERS)
            ]
        )
    node.mine(node.final_depth or 0)


async def index_chain(pool: Pool, url: str, node: FakeNode, policies: list[IndexerPolicy]) -> None:
    """Index the chain in turns of some steps, each by a new follower with the next policy."""
    chain = await follow(pool, node)
    turn = 0
    while True:
        policy = policies[turn % len(policies)]
        turn += 1
        follower = Follower(pool, Leases(url), node.node, chain, CONTRACTS, WakeupHub(""), policy)
        await follower.begin_term()
        for _ in range(5):
            if not await follower.step():
                break
        async with session(pool) as connection:
            cursor = await connection.fetchval("SELECT cursor_hash FROM chains")
        if cursor == node.head.hash:
            return


async def table_hashes(pool: Pool) -> dict[str, tuple[int, str]]:
    """The number of rows of each table, and a hash of them in one order.

    `blocks` is not compared: ranges keep only the headers of blocks with facts.
    """
    hashes: dict[str, tuple[int, str]] = {}
    async with session(pool) as connection:
        for table in (*FACTS, *DERIVED):
            row = await connection.fetchrow(
                f"""
                SELECT count(*), md5(string_agg(line, ',' ORDER BY line))
                  FROM (SELECT md5({table}::text) AS line FROM {table}) AS lines
                """
            )
            hashes[table] = (row[0], row[1])
    return hashes
