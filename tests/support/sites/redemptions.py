"""Sites where perks are redeemed on the real contracts: their members, perks and redemptions."""

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
from ltzd.chain.node.node import Node
from ltzd.chain.relayer.calls import RelayContracts
from ltzd.errors import RedemptionRefused, Unavailable, ValidationFailed
from ltzd.indexer.policy import IndexerPolicy
from ltzd.operator.policy import RELAY, RelayTarget
from ltzd.operator.relays.lane import RelayLane
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.brands.configuration import Brand, Perk, Site
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.site_plugin.redemptions import ALPHABET
from ltzd.store.database import Pool, session
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.operator import lanes
from ltzd.store.operator.leases import Leases
from ltzd.store.site_plugin.members import Member
from ltzd.store.wakeups import WakeupHub
from ltzd.values import LTZ, Address, hex_of
from tests.support.chain.contracts import Contracts as Deployed
from tests.support.chain.contracts import Party
from tests.support.chain.mint_world import POLICY, true
from tests.support.rows.core import BRAND, running, value
from tests.support.rows.followers import a_follower
from tests.support.sites.members import insert_earnings, insert_member
from tests.support.waiting import until

PAYOUT = Party().address
CODE = re.compile(f"[{ALPHABET}]{{4}}(-[{ALPHABET}]{{4}}){{2}}")
SEALER = Sealer([b"\x05" * 32])


class Wallets(CustodialWallets):
    """Wallets that ltzd keeps; a test can make them unavailable, keyless or wait for each other."""

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
    """Fake purchase constraints: raises `refusal`, if it is set, and records the token users."""

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
    """A process that serves the site, with a relayer of its own."""

    def __init__(
        self,
        context: RelayContext,
        wallets: Wallets,
        conditions: Conditions,
        wait_seconds: float = 60.0,
    ) -> None:
        self.context = context
        self.relayer = Relayer(
            context,
            cast("TokenAuthenticator", None),
            cast("PurchaseConstraints", conditions),
            RelayPolicy(),
        )
        self.redemptions = SiteRedemptions(
            context, self.relayer, wallets, wait_seconds=wait_seconds
        )


@dataclass
class Sites:
    """`perks` are listed on the brand's site; new members have LTZ from the brand."""

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

    async def process(self, wait_seconds: float = 60.0, node: Node | None = None) -> Process:
        """Starts a further process, which runs until the end of the test; `node` is its own."""
        at = self.deployed.at
        contracts = RelayContracts(
            self.deployed.chain_id,
            ltz=at["LTZ"],
            perk_nft=at["PerkNFT"],
            points_sale=at["PointsSale"],
            business_escrow=at["BusinessEscrow"],
        )
        fees = FeePolicy(cap=100 * GWEI)
        context = RelayContext.create(
            self.pool, self.wakeups, node or self.deployed.node, contracts, fees
        )
        process = Process(context, self.wallets, self.conditions, wait_seconds)
        await self.stack.enter_async_context(running(context.waiters.run(), process.relayer.run()))
        return process

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[None]:
        """Runs a relay lane, whose wallet may have relayed for a test with another database."""
        wallet = self.deployed.relay.signer.address
        nonce = await self.deployed.node.nonce(wallet)
        async with session(self.pool) as connection:
            await lanes.begin_term(connection, self.deployed.chain_id, wallet, RELAY, nonce)
        lane = RelayLane(
            self.pool,
            Leases(self.url),
            self.deployed.node,
            self.deployed.relay.signer,
            RelayTarget(self.deployed.chain_id),
            self.wakeups,
            POLICY,
        )
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            yield

    # --- perks ---

    def _add_perk(self, **contract_id: int) -> Perk:
        perk = Perk(id=str(uuid4()), name="Free coffee", category="drinks", **contract_id)
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
        settings = (brand, PAYOUT, ltz * LTZ, most, each, 3, is_active, signs)
        party = self.deployed.registrar
        receipt = await self.deployed.send(party, "PerkNFT", "createCollection", settings, "")
        created = self.deployed.event("PerkNFT", receipt, "CollectionCreated")
        return self._add_perk(collection_id=created["collectionId"])

    async def item(self, ltz: int, stock: int = 5) -> Perk:
        id_ = uuid4().int >> 66
        settings = (PAYOUT, ltz * LTZ, stock, 0, 1, True, False)
        party = self.deployed.registrar
        await self.deployed.send(party, "PointsSale", "setItem", id_, BRAND, settings, bytes(32))
        return self._add_perk(item_id=id_)

    def nothing(self) -> Perk:
        """Lists a perk whose collection is not on chain."""
        return self._add_perk(collection_id=2**40)

    # --- members ---

    async def member(self, ltz: int = 0, given: int | None = None) -> Member:
        """Adds a member with `ltz` whole LTZ, `given` of them by the brand (by default all)."""
        user = await self.wallets.wallet_of_email(f"{uuid4()}@shop.example")
        if ltz:
            reference = uuid4().bytes + b"\x01" + bytes(7) + uuid4().bytes[8:]
            await self.deployed.send(
                self.deployed.minter, "LTZ", "mintReward", user.wallet, ltz * LTZ, reference
            )
        await insert_earnings(self.pool, BRAND, user.wallet, ltz if given is None else given)
        self.members += 1
        member = Member(BRAND, "site.example", self.members, "ann", uuid4(), user.wallet, None)
        return await insert_member(self.pool, member)

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
        """Returns whole LTZ, after setting the indexed balance to the chain's."""
        await value(
            self.pool,
            "INSERT INTO balances (wallet, amount) VALUES ($1, $2) "
            "ON CONFLICT (wallet) DO UPDATE SET amount = excluded.amount",
            member.wallet,
            Decimal(await self.balance(member) * LTZ),
        )
        funds = await self.first.redemptions.funds(self.brand, member)
        return funds.spendable // LTZ

    # --- outcomes ---

    async def balance(self, member: Member) -> int:
        """Returns whole LTZ."""
        return int(await self.deployed.view("LTZ", "balanceOf", member.wallet)) // LTZ

    async def has(self, member: Member, perk: Perk) -> int:
        """Returns how often the member has the perk, read from the chain."""
        if perk.collection_id is None:
            listing, _ = await self.deployed.view("PointsSale", "item", perk.item_id)
            return int(listing[3])
        return int(
            await self.deployed.view("PerkNFT", "claimsOf", member.wallet, perk.collection_id)
        )

    async def rows(self) -> list[tuple[str, str]]:
        """Returns states and codes, oldest first."""
        async with session(self.pool) as connection:
            records = await connection.fetch(
                "SELECT state, confirmation_code FROM site_redemptions ORDER BY created_at"
            )
        return [(row[0], row[1]) for row in records]

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
        """Returns the number of the relay wallet's transactions, pending ones included."""
        return await self.deployed.node.nonce(self.deployed.relay.address, "pending")


@asynccontextmanager
async def some_sites(url: str, pool: Pool, deployed: Deployed) -> AsyncIterator[Sites]:
    wallets = Wallets(
        pool, SEALER, "https://login.example/", [ltz_permits(deployed.chain_id, deployed.at["LTZ"])]
    )
    async with AsyncExitStack() as stack:
        sites = Sites(pool, url, deployed, WakeupHub(url), wallets, stack)
        policy = IndexerPolicy(poll_seconds=0.01, follows_deep_reorgs=True)
        follower = await a_follower(pool, url, deployed, policy, sites.wakeups, from_head=True)
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
