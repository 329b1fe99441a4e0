"""Sites where perks are redeemed, on the real contracts: who is logged in, what is on offer."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from ltzd.actions.constraints.evaluation import PurchaseConstraints
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.relayer import Relayer, RelayPolicy
from ltzd.actions.site_plugin.redemptions import RedeemedPerk, SiteRedemptions
from ltzd.actions.users.custodial_signing import ltz_permits
from ltzd.actions.users.custodial_wallets import CustodialWallets
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.chain.node.node import Header
from ltzd.chain.relayer.calls import RelayContracts
from ltzd.errors import RedemptionRefused, Unavailable, ValidationFailed
from ltzd.indexer.contracts import indexed_contracts
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.operator.relays.lane import RelayLane
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.brands.configuration import Brand, Perk, Site
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.site_plugin.redemptions import ALPHABET
from ltzd.store.database import Pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import BlockRow, ChainIdentity
from ltzd.store.site_plugin.members import Member
from ltzd.store.wakeups import WakeupHub
from ltzd.values import LTZ, Address, hex_of
from tests.support.chain.contracts import Contracts as Deployed
from tests.support.chain.contracts import Party
from tests.support.chain.mint_world import POLICY, true
from tests.support.rows.core import BRAND, running, value
from tests.support.sites.members import gave, on_record
from tests.support.waiting import until

PAYOUT = Party().address
CODE = re.compile(f"[{ALPHABET}]{{4}}(-[{ALPHABET}]{{4}}){{2}}")
SEALER = Sealer([b"\x05" * 32])


class Wallets(CustodialWallets):
    """Ours, which may be away or give a key out of hand, and may wait for each other."""

    is_away = False
    keeps_no_key = False
    together: asyncio.Barrier | None = None

    async def sign_typed_data(self, wallet: Address, typed_data: Mapping[str, Any]) -> bytes:
        if self.is_away:
            raise Unavailable("away")
        if self.keeps_no_key:
            raise ValueError("the wallet is not kept here")
        signature = await super().sign_typed_data(wallet, typed_data)
        if (together := self.together) is not None:
            await together.wait()
            self.together = None
        return signature


@dataclass
class Conditions:
    """The brand's constraints, of which one stands in the way; hears who asks."""

    refusal: ValidationFailed | None = None
    speakers: list[TokenUser | None] = field(default_factory=list)

    async def check(
        self,
        _user: Address,
        _collection: int,
        speaker: TokenUser | None,
        _claims: int | None = None,
    ) -> None:
        self.speakers.append(speaker)
        if self.refusal is not None:
            raise self.refusal


class Process:
    """One that serves the site: its own turns, its own waiting."""

    def __init__(self, desk: RelayContext, wallets: Wallets, conditions: Conditions) -> None:
        self.desk = desk
        self.relayer = Relayer(
            desk,
            cast("TokenAuthenticator", None),
            cast("PurchaseConstraints", conditions),
            RelayPolicy(),
        )
        self.redemptions = SiteRedemptions(desk, self.relayer, wallets)


@dataclass
class Sites:
    """`perks` are on the brand's site; whoever is welcomed has LTZ that the brand gave him."""

    pool: Pool
    url: str
    deployed: Deployed
    wakeups: WakeupHub
    wallets: Wallets
    stack: AsyncExitStack
    conditions: Conditions = field(default_factory=Conditions)
    perks: list[Perk] = field(default_factory=list)
    members: int = 0
    first: Process = field(init=False)

    verified_emails: bool = True

    @property
    def brand(self) -> Brand:
        return Brand(
            id=hex_of(BRAND),
            name="Demo",
            domains=("shop.example",),
            perks=tuple(self.perks),
            site=Site(hosts=("site.example",), verified_emails=self.verified_emails),
        )

    async def process(self) -> Process:
        """Another one, for as long as the test."""
        at = self.deployed.at
        contracts = RelayContracts(
            self.deployed.chain_id,
            ltz=at["LTZ"],
            perk_nft=at["PerkNFT"],
            points_sale=at["PointsSale"],
            business_escrow=at["BusinessEscrow"],
        )
        fees = FeePolicy(cap=100 * GWEI)
        desk = RelayContext.of(self.pool, self.wakeups, self.deployed.node, contracts, fees)
        process = Process(desk, self.wallets, self.conditions)
        await self.stack.enter_async_context(running(desk.board.run(), process.relayer.run()))
        return process

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[None]:
        lane = RelayLane(
            self.pool,
            self.url,
            self.deployed.node,
            self.deployed.relay.signer,
            self.deployed.chain_id,
            self.wakeups,
            POLICY,
        )
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            yield

    # What is on offer

    def _listed(self, **behind: int) -> Perk:
        perk = Perk(id=str(uuid4()), name="Free coffee", category="drinks", **behind)
        self.perks.append(perk)
        return perk

    async def collection(
        self,
        ltz: int = 0,
        *,
        brand: Address = BRAND,
        most: int = 0,
        each: int = 0,
        is_active: bool = True,
        signs: bool = False,
    ) -> Perk:
        said = (brand, PAYOUT, ltz * LTZ, most, each, 3, is_active, signs)
        party = self.deployed.registrar
        receipt = await self.deployed.send(party, "PerkNFT", "createCollection", said, "")
        created = self.deployed.event("PerkNFT", receipt, "CollectionCreated")
        return self._listed(collection_id=created["collectionId"])

    async def item(self, ltz: int, stock: int = 5) -> Perk:
        id_ = uuid4().int >> 66
        terms = (PAYOUT, ltz * LTZ, stock, 0, 1, True, False)
        party = self.deployed.registrar
        await self.deployed.send(party, "PointsSale", "setItem", id_, BRAND, terms, bytes(32))
        return self._listed(item_id=id_)

    def nothing(self) -> Perk:
        """It is in the file, and not on chain."""
        return self._listed(collection_id=2**40)

    # Who is there

    async def member(self, ltz: int = 0, given: int | None = None) -> Member:
        """Who holds this much, `given` of it by the brand: all, if nothing else is said."""
        user = await self.wallets.wallet_of_email(f"{uuid4()}@shop.example")
        if ltz:
            reference = uuid4().bytes + b"\x01" + bytes(7) + uuid4().bytes[8:]
            await self.deployed.send(
                self.deployed.minter, "LTZ", "mintReward", user.wallet, ltz * LTZ, reference
            )
        await gave(self.pool, BRAND, user.wallet, ltz if given is None else given)
        self.members += 1
        member = Member(BRAND, "site.example", self.members, "ann", uuid4(), user.wallet, None)
        return await on_record(self.pool, member)

    async def redeem(
        self,
        member: Member,
        perk: Perk,
        process: Process | None = None,
        max_cost: int | None = None,
    ) -> RedeemedPerk:
        redemptions = (process or self.first).redemptions
        return await redemptions.redeem(self.brand, member, UUID(perk.id), max_cost)

    async def spendable(self, member: Member) -> int:
        """In whole LTZ, where the index knows as much of the wallet as the chain."""
        await value(
            self.pool,
            "INSERT INTO balances (wallet, amount) VALUES ($1, $2) "
            "ON CONFLICT (wallet) DO UPDATE SET amount = excluded.amount",
            member.wallet,
            Decimal(await self.balance(member) * LTZ),
        )
        funds = await self.first.redemptions.funds(self.brand, member)
        return funds.spendable // LTZ

    # What became of it

    async def balance(self, member: Member) -> int:
        """In whole LTZ."""
        return int(await self.deployed.view("LTZ", "balanceOf", member.wallet)) // LTZ

    async def has(self, member: Member, perk: Perk) -> int:
        """How many times, by the chain."""
        if perk.collection_id is None:
            listing, _ = await self.deployed.view("PointsSale", "item", perk.item_id)
            return int(listing[3])
        return int(
            await self.deployed.view("PerkNFT", "claimsOf", member.wallet, perk.collection_id)
        )

    async def rows(self) -> list[tuple[str, str]]:
        """States and codes, the oldest first."""
        async with session(self.pool) as connection:
            found = await connection.fetch(
                "SELECT state, confirmation_code FROM site_redemptions ORDER BY created_at"
            )
        return [(row[0], row[1]) for row in found]

    async def states(self) -> list[str]:
        return [state for state, _ in await self.rows()]

    async def minutes_pass(self, minutes: int) -> None:
        await value(
            self.pool,
            "UPDATE site_redemptions SET created_at = created_at - $1 * interval '1 minute', "
            "completed_at = completed_at - $1 * interval '1 minute'",
            minutes,
        )

    async def sent(self) -> int:
        """Transactions of the relay wallet, those that wait too."""
        return await self.deployed.node.nonce(self.deployed.relay.address, "pending")


async def a_follower(url: str, pool: Pool, deployed: Deployed, wakeups: WakeupHub) -> Follower:
    """Of a chain that the database adopts at its head."""
    head, _ = await deployed.node.head_and_final()
    genesis = await deployed.node.block(0)
    assert isinstance(genesis, Header)
    at = deployed.at
    chain = ChainIdentity(deployed.chain_id, genesis.hash, at["LTZ"], head.number + 1)
    base = BlockRow(head.number, head.hash, head.parent_hash, head.timestamp)
    async with transaction(pool) as connection:
        await chains.start_following(connection, chain, base)
    contracts = indexed_contracts(
        {
            "ltz": at["LTZ"],
            "perk_nft": at["PerkNFT"],
            "points_sale": at["PointsSale"],
            "business_escrow": at["BusinessEscrow"],
        }
    )
    policy = IndexerPolicy(poll_seconds=0.01, follows_deep_reorgs=True)
    return Follower(pool, url, deployed.node, chain, contracts, wakeups, policy)


@asynccontextmanager
async def some_sites(url: str, pool: Pool, deployed: Deployed) -> AsyncIterator[Sites]:
    wallets = Wallets(
        pool, SEALER, "https://login.example/", [ltz_permits(deployed.chain_id, deployed.at["LTZ"])]
    )
    async with AsyncExitStack() as stack:
        sites = Sites(pool, url, deployed, WakeupHub(url), wallets, stack)
        follower = await a_follower(url, pool, deployed, sites.wakeups)
        await stack.enter_async_context(running(follower.run()))
        sites.first = await sites.process()
        yield sites


def code_of(redeemed: RedeemedPerk) -> str:
    assert not redeemed.is_pending
    code = redeemed.redemption.confirmation_code
    assert CODE.fullmatch(code), code
    return code


async def refusal_of(redeeming: Awaitable[RedeemedPerk]) -> str:
    with pytest.raises(RedemptionRefused) as refused:
        await redeeming
    return refused.value.message
