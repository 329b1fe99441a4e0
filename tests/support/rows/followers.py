"""A follower of real contracts on a real chain."""

from ltzd.chain.node.answers.typed import Header
from ltzd.indexer.contracts import indexed_contracts
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import BlockRow, ChainIdentity
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from tests.support.chain.contracts import Contracts


async def a_follower(
    pool: Pool,
    url: str,
    deployed: Contracts,
    policy: IndexerPolicy,
    wakeups: WakeupHub | None = None,
    *,
    from_head: bool = False,
) -> Follower:
    """A follower of a chain that the database adopts at its beginning or at its head.

    The caller begins the term.
    """
    genesis = await deployed.node.block(0)
    assert isinstance(genesis, Header)
    base = genesis
    if from_head:
        base, _ = await deployed.node.head_and_final()
    at = deployed.at
    chain = ChainIdentity(deployed.chain_id, genesis.hash, at["LTZ"], base.number + 1)
    row = BlockRow(base.number, base.hash, base.parent_hash, base.timestamp)
    async with transaction(pool) as connection:
        await chains.start_following(connection, chain, row)
    contracts = indexed_contracts(
        {
            "ltz": at["LTZ"],
            "perk_nft": at["PerkNFT"],
            "points_sale": at["PointsSale"],
            "business_escrow": at["BusinessEscrow"],
        }
    )
    hub = wakeups or WakeupHub("")
    return Follower(pool, Leases(url), deployed.node, chain, contracts, hub, policy)
