"""A redemption at a site asks a node for a permit's nonce and the simulation.

The contracts are real ones, so an index that is wrong is told by the chain.
"""

from typing import Any

import pytest

from ltzd.rules.brands.configuration import Perk
from ltzd.store.site_plugin.members import Member
from tests.support.chain.counting_node import CountingClient
from tests.support.rows.core import value
from tests.support.sites.redemptions import Sites, refusal_of
from tests.support.waiting import until


async def until_indexed(sites: Sites, perk: Perk, member: Member) -> None:
    offer, id_ = (
        ("items WHERE item_id", perk.item_id)
        if perk.collection_id is None
        else ("collections WHERE collection_id", perk.collection_id)
    )

    async def is_indexed() -> Any:
        return await value(
            sites.pool,
            f"SELECT EXISTS (SELECT FROM {offer} = $1) "
            "AND EXISTS (SELECT FROM balances WHERE wallet = $2)",
            id_,
            member.wallet,
        )

    await until(is_indexed)


async def a_perk(sites: Sites, kind: str) -> Perk:
    match kind:
        case "collection":
            return await sites.collection(30)
        case "item":
            return await sites.item(30)
    return await sites.collection()


@pytest.mark.parametrize(
    ("kind", "views"),
    # For a permit the site reads the nonce that it signs, and the relay checks the signature.
    [("collection", 2), ("item", 2), ("free", 0)],
)
async def test_a_redemption_reads_a_permits_nonce_and_simulates(
    sites: Sites, kind: str, views: int
) -> None:
    perk, ann = await a_perk(sites, kind), await sites.member(100)
    await until_indexed(sites, perk, ann)
    client = CountingClient(sites.deployed.rpc)
    process = await sites.process(node=client.node)
    async with sites.relaying():
        await sites.redeem(ann, perk, process)

    assert client.questions["view"] == views
    assert client.questions["simulation"] == 1


async def test_with_a_stopped_index_a_node_is_asked_for_everything(sites: Sites) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    await until_indexed(sites, perk, ann)
    await value(sites.pool, "UPDATE chains SET stopped_reason = 'A test', stopped_at = now()")
    client = CountingClient(sites.deployed.rpc)
    process = await sites.process(2.0, client.node)
    async with sites.relaying():
        redeemed = await sites.redeem(ann, perk, process)

    assert redeemed.is_pending, "nothing is indexed, so nothing pays yet"
    # The collection, the balance, the nonce and the claims, twice; the permit, the claims.
    assert client.questions["view"] == 2 * 4 + 1 + 2


async def test_a_refusal_by_an_index_that_is_behind_is_asked_again_on_chain(sites: Sites) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    await until_indexed(sites, perk, ann)
    client = CountingClient(sites.deployed.rpc)
    process = await sites.process(node=client.node)
    await value(
        sites.pool,
        "UPDATE collections SET is_active = false WHERE collection_id = $1",
        perk.collection_id,
    )
    async with sites.relaying():
        await sites.redeem(ann, perk, process)
    assert (await sites.has(ann, perk), await sites.balance(ann)) == (1, 70)
    assert client.questions["view"] == 2 * 4 + 1


async def test_an_index_that_knows_too_much_ltz_spends_nothing(sites: Sites) -> None:
    perk, ann = await sites.collection(30), await sites.member(10, given=100)
    await until_indexed(sites, perk, ann)
    client = CountingClient(sites.deployed.rpc)
    process = await sites.process(node=client.node)
    await value(
        sites.pool, "UPDATE balances SET amount = 10::numeric ^ 20 WHERE wallet = $1", ann.wallet
    )
    async with sites.relaying():
        sentence = await refusal_of(sites.redeem(ann, perk, process))
    assert sentence == "This perk costs 30 LTZ, but your wallet holds 10 LTZ."
    assert await sites.balance(ann) == 10
