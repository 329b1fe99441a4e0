"""Real contracts on a real chain: indexed facts equal the contracts' own answers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from ltzd.chain.contracts import contract_abi
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, session
from ltzd.store.indexer import collections, tokens
from ltzd.values import LTZ, ZERO_ADDRESS, hex_of
from tests.support.chain.contracts import HOUR, Party, a_reference, deployed_contracts
from tests.support.chain.contracts import Contracts as Deployed
from tests.support.rows.followers import a_follower
from tests.support.rows.tokens import indexed_token

URI = "https://perks.example/"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def deployed() -> AsyncIterator[Deployed]:
    async with deployed_contracts("anvil") as deployed:
        yield deployed


@pytest.fixture
async def follower(pool: Pool, database_url: str, deployed: Deployed) -> Follower:
    """A follower that reads the chain from its beginning, deployment included."""
    policy = IndexerPolicy(head_blocks=1_000, follows_deep_reorgs=True)
    follower = await a_follower(pool, database_url, deployed, policy)
    await follower.begin_term()
    return follower


async def row(pool: Pool, sql: str, *arguments: object) -> tuple[Any, ...]:
    async with session(pool) as connection:
        record = await connection.fetchrow(sql, *arguments)
    assert record is not None, sql
    return tuple(record)


async def allow(deployed: Deployed, user: Party, contract: str, ltz: int) -> None:
    permit = await deployed.permit(user, contract, ltz * LTZ)
    await deployed.send(deployed.relay, contract, "permitLTZ", *permit)


async def a_collection(deployed: Deployed, brand: Party, payout: Party) -> int:
    params = (brand.address, payout.address, 4 * LTZ, 0, 2, 3, True, False)
    receipt = await deployed.send(deployed.registrar, "PerkNFT", "createCollection", params, URI)
    created: int = deployed.event("PerkNFT", receipt, "CollectionCreated")["collectionId"]
    return created


async def test_claims_transfers_and_redemptions_of_a_perk_are_indexed(
    pool: Pool, deployed: Deployed, follower: Follower
) -> None:
    user, heir, brand, other_brand, payout = (Party() for _ in range(5))
    await deployed.mint(user, 10)
    collection = await a_collection(deployed, brand, payout)
    await allow(deployed, user, "PerkNFT", 4)
    claim_ref, charge_ref = a_reference(), a_reference()
    claim = (user.address, collection, 4 * LTZ, 0, claim_ref)
    claimed = await deployed.send(deployed.relay, "PerkNFT", "claimFor", *claim)
    token: int = deployed.event("PerkNFT", claimed, "Claimed")["tokenId"]
    charge = (token, user.address, 2, 3, charge_ref)
    redeemed = await deployed.send(deployed.relay, "PerkNFT", "redeemCharge", *charge)
    await deployed.give_gas_money(user)
    moved = await deployed.send(user, "PerkNFT", "transferFrom", user.address, heir.address, token)
    update = (collection, 5 * LTZ, 9, 1, False)
    await deployed.send(deployed.registrar, "PerkNFT", "updateCollection", *update)
    await deployed.send(deployed.registrar, "PerkNFT", "setBrand", collection, other_brand.address)
    await follower.step()

    async with session(pool) as connection:
        indexed = await indexed_token(connection, token)
        kept = await connection.fetchrow(
            "SELECT * FROM collections WHERE collection_id = $1", collection
        )
        held = [
            await tokens.count_held(connection, party.address, collection, 5)
            for party in (user, heir)
        ]
    assert indexed is not None
    assert indexed.holder == await deployed.view("PerkNFT", "ownerOf", token) == heir.address
    remaining, charges = await deployed.view("PerkNFT", "chargesOf", token)
    assert (indexed.remaining, indexed.max_charges, held) == (remaining, charges, [0, 1])
    assert indexed.claimed_at.timestamp() == await time_of(deployed, claimed)
    assert indexed.last_redeemed_at is not None
    assert indexed.last_redeemed_at.timestamp() == await time_of(deployed, redeemed)
    assert indexed.block_number == int(moved["blockNumber"], 16)
    assert kept is not None
    params, minted, uri = await deployed.view("PerkNFT", "collection", collection)
    assert (
        hex_of(kept["brand"]),
        hex_of(kept["payout"]),
        kept["price"],
        kept["max_supply"],
        kept["max_per_user"],
        kept["charges"],
        kept["is_active"],
        kept["requires_signature"],
    ) == tuple(hex_of(value) if isinstance(value, bytes) else value for value in params)
    assert (kept["minted"], kept["uri"], kept["brand"]) == (minted, uri, other_brand.address)
    assert await row(pool, "SELECT user_address, price, claims, reference FROM perk_claims") == (
        user.address,
        4 * LTZ,
        1,
        claim_ref,
    )
    assert await row(
        pool, "SELECT holder, amount, remaining, reference FROM charge_redemptions"
    ) == (user.address, 2, 1, charge_ref)


async def test_a_sale_is_indexed(pool: Pool, deployed: Deployed, follower: Follower) -> None:
    user, brand, payout, reference = Party(), Party(), Party(), a_reference()
    huge = 2**255 + 11
    await deployed.mint(user, 20)
    item = [payout.address, 5 * LTZ, 10, 0, 3, True, False]
    await deployed.send(
        deployed.registrar, "PointsSale", "setItem", huge, brand.address, tuple(item), b"\x0a" * 32
    )
    await allow(deployed, user, "PointsSale", 20)
    order = (user.address, huge, 2, 10 * LTZ, reference)
    await deployed.send(deployed.relay, "PointsSale", "buyFor", *order)
    item[1], item[5] = 6 * LTZ, False
    await deployed.send(
        deployed.registrar, "PointsSale", "setItem", huge, brand.address, tuple(item), b"\x0b" * 32
    )
    await follower.step()

    listed, _ = await deployed.view("PointsSale", "item", huge)
    assert await row(
        pool,
        "SELECT payout, price, stock, sold, max_per_order, is_active, burns FROM items "
        "WHERE item_id = $1 AND brand = $2 AND metadata = $3",
        huge,
        brand.address,
        b"\x0b" * 32,
    ) == tuple(listed)
    assert listed[3] == 2
    assert await row(pool, "SELECT buyer, quantity, paid, reference FROM purchases") == (
        user.address,
        2,
        10 * LTZ,
        reference,
    )


async def test_deals_of_every_ending_are_indexed(
    pool: Pool, deployed: Deployed, follower: Follower
) -> None:
    business = Party()
    await deployed.send(deployed.registrar, "BusinessEscrow", "setBusiness", business.address, True)
    endings: dict[str, tuple[Party, str, tuple[object, ...]]] = {
        "released": (deployed.settler, "release", ()),
        "refunded": (deployed.settler, "refund", ()),
        "split": (deployed.arbiter, "split", (3 * LTZ,)),
    }
    deals: dict[bytes, str] = {}
    until_when = await deployed.now() + 24 * HOUR
    for state in ("locked", *endings):
        user, deal = Party(), a_reference()
        await deployed.mint(user, 10)
        await allow(deployed, user, "BusinessEscrow", 10)
        lock = (user.address, business.address, 10 * LTZ, until_when, deal)
        await deployed.send(deployed.relay, "BusinessEscrow", "lockFor", *lock)
        if state in endings:
            by, function, rest = endings[state]
            await deployed.send(by, "BusinessEscrow", function, deal, *rest)
        deals[deal] = state
    await follower.step()

    got = {"locked": (0, 0), "released": (0, 10), "refunded": (10, 0), "split": (7, 3)}
    for deal, state in deals.items():
        to_user, to_business = (ltz * LTZ for ltz in got[state])
        on_chain = await deployed.view("BusinessEscrow", "deal", deal)
        assert await row(
            pool,
            "SELECT user_address, amount, business, refund_after, state, to_user, to_business "
            "FROM deals WHERE deal_id = $1",
            deal,
        ) == (*on_chain[:4], state, to_user, to_business)
    decided = "SELECT decided_by FROM deal_facts WHERE state = 'released'"
    assert await row(pool, decided) == (deployed.settler.address,)


async def test_facts_that_a_reorg_drops_are_undone_and_repeated_facts_are_indexed_again(
    pool: Pool, deployed: Deployed, follower: Follower
) -> None:
    user = Party()
    await deployed.mint(user, 4)
    collection = await a_collection(deployed, Party(), Party())
    await allow(deployed, user, "PerkNFT", 4)
    ask = contract_abi.encode_call(
        "PerkNFT", "claimFor", user.address, collection, 4 * LTZ, 0, a_reference()
    )
    raw = await deployed.sign(deployed.relay, deployed.at["PerkNFT"], ask)
    await deployed.publish(raw)
    await follower.step()
    token = collection << 32 | 1
    async with session(pool) as connection:
        assert await indexed_token(connection, token) is not None

    await deployed.rpc.call("anvil_reorg", 1, [])
    await deployed.rpc.call("evm_mine")
    while await follower.step():
        pass
    async with session(pool) as connection:
        assert await indexed_token(connection, token) is None
        assert (await collections.read_owners(connection, [collection]))[collection].minted == 0
        balance = "SELECT amount FROM balances WHERE wallet = $1"
        assert await connection.fetchval(balance, user.address) == 4 * LTZ

    await deployed.publish(raw)
    while await follower.step():
        pass
    async with session(pool) as connection:
        again = await indexed_token(connection, token)
        assert again is not None
        assert again.holder == user.address != ZERO_ADDRESS
        assert (await collections.read_owners(connection, [collection]))[collection].minted == 1


async def time_of(deployed: Deployed, receipt: Any) -> int:
    header = await deployed.node.block(int(receipt["blockNumber"], 16))
    assert header is not None
    return header.timestamp
