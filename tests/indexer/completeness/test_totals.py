"""The contracts' own totals agree with the tables, and tell of every fact that is missing."""

import secrets

from ltzd.indexer.completeness.totals import TotalsCheck, check_totals
from ltzd.indexer.contracts import indexed_contracts
from ltzd.indexer.follower import Follower
from ltzd.store.database import Pool, session
from ltzd.values import LTZ
from tests.indexer.test_contracts_on_a_chain import a_collection, allow, deployed, follower
from tests.support.chain.contracts import HOUR, Party, a_reference
from tests.support.chain.contracts import Contracts as Deployed
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, FakeNode
from tests.support.rows.core import follow

__all__ = ["deployed", "follower"]


async def live(deployed: Deployed) -> None:
    """Each contract does something that it can tell a total of."""
    user, brand, payout = (Party() for _ in range(3))
    await deployed.mint(user, 50)
    collection = await a_collection(deployed, brand, payout)
    await allow(deployed, user, "PerkNFT", 4)
    claim = (user.address, collection, 4 * LTZ, 0, a_reference())
    await deployed.send(deployed.relay, "PerkNFT", "claimFor", *claim)
    item_id = secrets.randbelow(2**64)
    item = (payout.address, 5 * LTZ, 10, 0, 3, True, True)
    await deployed.send(
        deployed.registrar, "PointsSale", "setItem", item_id, brand.address, item, bytes(32)
    )
    await allow(deployed, user, "PointsSale", 20)
    order = (user.address, item_id, 2, 10 * LTZ, a_reference())
    await deployed.send(deployed.relay, "PointsSale", "buyFor", *order)
    await deployed.send(deployed.registrar, "BusinessEscrow", "setBusiness", brand.address, True)
    await allow(deployed, user, "BusinessEscrow", 10)
    until_when = await deployed.now() + 24 * HOUR
    lock = (user.address, brand.address, 10 * LTZ, until_when, a_reference())
    await deployed.send(deployed.relay, "BusinessEscrow", "lockFor", *lock)


async def compared(pool: Pool, deployed: Deployed) -> TotalsCheck:
    names = {"ltz": "LTZ", "perk_nft": "PerkNFT", "points_sale": "PointsSale"}
    names["business_escrow"] = "BusinessEscrow"
    contracts = indexed_contracts({ours: deployed.at[name] for ours, name in names.items()})
    sources = [(contract.address, contract.totals) for contract in contracts]
    return await check_totals(pool, deployed.chain_id, deployed.node, sources, bytes(32))


async def test_totals_agree_and_each_wrong_row_is_told_by_name(
    pool: Pool, deployed: Deployed, follower: Follower
) -> None:
    await live(deployed)
    while await follower.step():
        pass
    assert (await compared(pool, deployed)).differences == []

    changes = {
        "UPDATE balances SET amount = amount + 5": ("the supply of LTZ", "the balance of "),
        "UPDATE tokens SET holder = decode(repeat('0a', 20), 'hex')": ("the holder of token ",),
        "UPDATE collections SET minted = minted + 1": ("the tokens of collection ",),
        "UPDATE items SET sold = sold - 1": ("the sold pieces of item ",),
        "UPDATE deals SET state = 'released'": ("the state of deal 0x",),
    }
    changes["UPDATE tokens SET token_id = token_id + 1"] = ("the holder of token ",)
    for change, names in changes.items():
        async with session(pool) as connection, connection.transaction():
            await connection.execute(change)
        named = [each.name for each in (await compared(pool, deployed)).differences or ()]
        assert all(any(name in each for each in named) for name in names), (change, named)


async def test_a_node_without_the_state_gives_no_result(pool: Pool) -> None:
    node = FakeNode()
    node.mine(3)
    await follow(pool, node)
    sources = [(contract.address, contract.totals) for contract in CONTRACTS]

    async def differences() -> object:
        return (await check_totals(pool, CHAIN_ID, node.node, sources, bytes(32))).differences

    assert await differences() == []
    node.kept_states = 1
    assert await differences() is None
    node.kept_states, node.is_down = 1_000, True
    assert await differences() is None
