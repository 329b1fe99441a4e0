"""Reorgs of the tester chain and of anvil leave no gap for a reader beside the indexer."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ltzd.chain.contracts import contract_abi
from ltzd.dev.services.chain import Kind
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool
from ltzd.values import LTZ, hex_of
from tests.support.chain.contracts import Contracts, Party, a_reference, deployed_contracts
from tests.support.rows.followers import a_follower
from tests.support.rows.index_readers import IndexReader, IndexState

DEPTHS = (1, 2, 3, 5, 9, 17, 33, 64)


@pytest_asyncio.fixture(loop_scope="session", params=["tester", "anvil"])
async def deployed(request: pytest.FixtureRequest) -> AsyncIterator[Contracts]:
    kind: Kind = request.param
    async with deployed_contracts(kind) as contracts:
        yield contracts


async def head_hash(deployed: Contracts) -> bytes:
    head, _ = await deployed.node.head_and_final()
    return bytes(head.hash)


async def arrive(follower: Follower, reader: IndexReader, deployed: Contracts) -> IndexState:
    """Steps until the node's head is indexed; returns what a reader sees then."""
    for _ in range(100):
        await follower.step()
        state = await reader.read()
        if state.cursor[1] == await head_hash(deployed):
            return state
    raise AssertionError("the follower does not arrive")


async def mint(deployed: Contracts, to: Party) -> bytes:
    """Mines a mint in a block of its own; returns the raw transaction."""
    data = contract_abi.encode_call("LTZ", "mintReward", to.address, LTZ, a_reference())
    raw = await deployed.sign(deployed.minter, deployed.at["LTZ"], data)
    await deployed.publish(raw)
    return raw


async def test_reorgs_of_one_to_sixty_four_blocks_leave_no_gap(
    pool: Pool, database_url: str, deployed: Contracts
) -> None:
    """Each reorg keeps half of the mints that it moves, all in its first block."""
    policy = IndexerPolicy(follows_deep_reorgs=True)
    follower = await a_follower(pool, database_url, deployed, policy)
    await follower.begin_term()
    reader = IndexReader(pool)
    user = Party()
    for depth in DEPTHS:
        moved = [await mint(deployed, user) for _ in range(depth)]
        before = await arrive(follower, reader, deployed)
        kept = moved[: depth // 2]
        await deployed.rpc.call("anvil_reorg", depth, [[hex_of(raw), 0] for raw in kept])
        reader.seen.clear()
        async with reader.polling():
            after = await arrive(follower, reader, deployed)

        assert reader.seen <= {before, after}, f"a gap at depth {depth}"
        assert after.cursor[0] == before.cursor[0]
        assert after.held == before.held - (depth - len(kept)) * LTZ
        assert after.held == await deployed.view("LTZ", "totalSupply")
