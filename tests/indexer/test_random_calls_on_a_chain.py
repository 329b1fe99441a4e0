"""After random calls by anybody the index equals the contracts' answers, and the books agree."""

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from ltzd.chain.contracts.business_escrow import DealStatus
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.books.readers import Readers
from ltzd.store.books.reconciliation import reconcile_all
from ltzd.store.database import Connection, Pool, session
from ltzd.values import Address, address_of
from tests.support.chain.contracts import Contracts, deployed_contracts
from tests.support.index_model.random_calls import ITEMS, RandomCalls
from tests.support.rows.followers import a_follower

NEAR = IndexerPolicy(head_blocks=1_000, follows_deep_reorgs=True, second_check_seconds=0.0)
BLOCKS, DEEPEST = 50, 5


@pytest_asyncio.fixture(loop_scope="session")
async def deployed() -> AsyncIterator[Contracts]:
    async with deployed_contracts("anvil") as deployed:
        yield deployed


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_after_random_calls_and_reorgs_the_index_equals_the_contracts(
    pool: Pool, database_url: str, deployed: Contracts, seed: int
) -> None:
    follower = await a_follower(pool, database_url, deployed, NEAR)
    await follower.begin_term()
    calls, chance = RandomCalls(deployed, seed), random.Random(seed)
    await calls.prepare()
    await deployed.rpc.call("evm_setAutomine", False)
    for block in range(BLOCKS):
        await calls.mine()
        if chance.random() < 0.3:
            await arrive(follower)
        if block > DEEPEST and chance.random() < 0.1:
            await deployed.rpc.call("anvil_reorg", chance.randint(1, DEEPEST), [])
            await deployed.rpc.call("evm_mine")
    await arrive(follower)

    async with session(pool) as connection:
        await assert_ltz_equal(connection, deployed, calls)
        await assert_tokens_equal(connection, deployed, calls)
        await assert_items_equal(connection, deployed)
        await assert_deals_equal(connection, deployed, calls)
        discrepancies, _ = await reconcile_all(Readers([connection]), 5)
        has_charges = await connection.fetchval("SELECT EXISTS (SELECT FROM charge_redemptions)")
    # Nobody has asked ltzd for these rewards and redemptions.
    foreign = {"foreign_mint", "foreign_charge"} if has_charges else {"foreign_mint"}
    assert {each.kind for each in discrepancies} == foreign


async def arrive(follower: Follower) -> None:
    while await follower.step():
        pass


async def assert_ltz_equal(connection: Connection, deployed: Contracts, calls: RandomCalls) -> None:
    rows = await connection.fetch("SELECT wallet, amount FROM balances")
    balances = {Address(row["wallet"]): int(row["amount"]) for row in rows}
    wallets = [*(party.address for party in calls.parties), *deployed.at.values()]
    held = {wallet: await deployed.view("LTZ", "balanceOf", wallet) for wallet in wallets}
    assert balances == {wallet: amount for wallet, amount in held.items() if amount}
    assert sum(balances.values()) == await deployed.view("LTZ", "totalSupply")


async def assert_tokens_equal(
    connection: Connection, deployed: Contracts, calls: RandomCalls
) -> None:
    rows = await connection.fetch(
        """
        SELECT t.token_id, t.holder, coalesce(t.remaining, c.charges) AS remaining
          FROM tokens t
          JOIN collections c USING (collection_id)
        """
    )
    tokens = {int(row["token_id"]): (Address(row["holder"]), row["remaining"]) for row in rows}
    minted = 0
    for row in await connection.fetch("SELECT * FROM collections ORDER BY collection_id"):
        collection = row["collection_id"]
        params, on_chain, _ = await deployed.view("PerkNFT", "collection", collection)
        assert row["minted"] == on_chain
        assert listed(
            row, "brand payout price max_supply max_per_user charges is_active requires_signature"
        ) == values(params)
        minted += on_chain
        for token in range((collection << 32) + 1, (collection << 32) + 1 + on_chain):
            remaining, _ = await deployed.view("PerkNFT", "chargesOf", token)
            assert tokens[token] == (await deployed.view("PerkNFT", "ownerOf", token), remaining)
        for user in calls.users:
            claims = await connection.fetchval(
                "SELECT coalesce(max(claims), 0) FROM perk_claims "
                "WHERE user_address = $1 AND collection_id = $2",
                *(user.address, collection),
            )
            assert claims == await deployed.view("PerkNFT", "claimsOf", user.address, collection)
    assert minted == len(tokens)


async def assert_items_equal(connection: Connection, deployed: Contracts) -> None:
    rows = await connection.fetch("SELECT * FROM items ORDER BY item_id")
    assert [int(row["item_id"]) for row in rows] == sorted(ITEMS)
    for row in rows:
        item, brand = await deployed.view("PointsSale", "item", int(row["item_id"]))
        columns = "payout price stock sold max_per_order is_active burns brand"
        assert listed(row, columns) == values((*item, brand))


async def assert_deals_equal(
    connection: Connection, deployed: Contracts, calls: RandomCalls
) -> None:
    on_chain = {deal: await deployed.view("BusinessEscrow", "deal", deal) for deal in calls.deals}
    expected = {
        deal: (*values(rest), DealStatus(status).name.lower())
        for deal, (*rest, status) in on_chain.items()
        if status != DealStatus.NONE
    }
    rows = await connection.fetch("SELECT * FROM deals")
    columns = "user_address amount business refund_after state"
    assert {row["deal_id"]: listed(row, columns) for row in rows} == expected
    for row in rows:
        whole = 0 if row["state"] == "locked" else row["amount"]
        assert row["to_user"] + row["to_business"] == whole


def listed(row: Any, columns: str) -> tuple[Any, ...]:
    return tuple(row[column] for column in columns.split())


def values(on_chain: Any) -> tuple[Any, ...]:
    """Addresses as bytes."""
    return tuple(address_of(each) if isinstance(each, str) else each for each in on_chain)
