"""A person with an e-mail address, a pregenerated account and a log-in, at either wallet backend.

Events, pregenerations and tokens go through the actions that serve them, as in one process.
"""

from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from ltzd.actions.event_handler.hash_waiter import MintHashWaiters
from ltzd.actions.event_handler.record import EventHandler
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.pregeneration import Pregeneration, PregenerationRequest
from ltzd.actions.request_signatures import RequestSignatures
from ltzd.actions.users.custodial_wallets import CustodialWallets, LinkingTokenVerifier
from ltzd.actions.users.identity_provider import IdentityProvider, TokenVerifier
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.actions.users.wallet_migration import WalletMigration
from ltzd.cache.rate_limits import RateLimits
from ltzd.providers.identity.client import IdentityClient
from ltzd.providers.identity.tokens import IdentityTokens
from ltzd.providers.oauth.answers import AccountVerification
from ltzd.providers.oidc.claims import OidcUser
from ltzd.rules.brands.configuration import EventRule
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.store.brands import configurations as brands
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import open_pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.clocks import ManualClock
from tests.support.rows.core import BRAND, running
from tests.support.services.identity import Provider
from tests.support.surfaces.event_action import NO_HASH_WAIT, NO_LIMITS, SEALER, a_brand, a_request

ISSUER = "https://login.example/"
TYPE = "account_creation"


class EveryAccountExists:
    async def verify(self, account: OAuthAccount, party: Hashable = None) -> AccountVerification:
        return AccountVerification("exists", f"u{account.user_id}")


class FakeIssuer:
    """An issuer whose tokens need no signature: `users` holds each token's user."""

    def __init__(self) -> None:
        self.users: dict[str, OidcUser] = {}

    async def user_of(self, token: str) -> OidcUser:
        return self.users[token]

    async def ping(self) -> bool:
        return True


class World:
    """The actions of one process; `clock` measures how old its settled migrations are."""

    def __init__(self, url: str, identity: IdentityProvider, tokens: TokenVerifier) -> None:
        self.url = url
        self.identity = identity
        self.tokens = tokens
        self.clock = ManualClock()

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            self.pool = await open_pool(self.url)
            stack.callback(self.pool.terminate)
            rule = EventRule(type=TYPE, reward=100, **NO_LIMITS)
            cache = BrandCache()
            async with transaction(self.pool) as connection:
                brand = a_brand(rule, duplicate_window_seconds=0)
                await brands.apply(connection, brand, SEALER)
                await cache.refresh(connection)
            limits = await stack.enter_async_context(RateLimits())
            wakeups = WakeupHub(self.url)
            self.following = WalletMigration(
                self.pool, self.identity, ErasedAddresses(SEALER), self.clock
            )
            self.users = TokenAuthenticator(self.tokens, self.identity, self.following)
            signatures = RequestSignatures(self.pool, SEALER, cache)
            self.pregeneration = Pregeneration(
                self.pool, cache, self.identity, EveryAccountExists(), limits, signatures
            )
            stack.push_async_callback(self.pregeneration.close)
            hashes = MintHashWaiters(self.pool, wakeups)
            capacity = MintCapacity(self.pool, FakeNode().node, CHAIN_ID, LTZ_AT)
            self.events = EventHandler(
                self.pool,
                wakeups,
                cache,
                self.identity,
                hashes,
                signatures,
                limits,
                capacity,
                erased=ErasedAddresses(SEALER),
                policy=NO_HASH_WAIT,
            )
            await stack.enter_async_context(running(self.events.run()))
            yield

    async def event(self, email: str) -> Address:
        """Records an event; returns the wallet of the answer, which is the reward's as well."""
        recorded = await self.events.record(a_request(email))
        assert await self.rewarded(recorded.event_id) == recorded.wallet
        return recorded.wallet

    async def rewarded(self, event_id: UUID) -> Address:
        async with session(self.pool) as connection:
            return Address(
                await connection.fetchval("SELECT wallet FROM rewards WHERE id = $1", event_id)
            )

    async def pregenerated(self, account: OAuthAccount, **metadata: object) -> Address:
        request = PregenerationRequest(BRAND, account, metadata)
        return (await self.pregeneration.pregenerate(request)).kept.wallet

    async def used(self, token: str) -> tuple[Address, ...]:
        """Returns the wallets that the token speaks for, as `/relay` finds them."""
        return await self.users.wallets_of(await self.users.user_of(token))

    async def moved_on(self) -> None:
        """Lets a minute pass without a request."""
        self.clock.now += 61


class LocalWorld(World):
    """With wallets that ltzd keeps itself."""

    issuer: FakeIssuer

    def token(self, subject: str, *accounts: OAuthAccount, email: str | None = None) -> str:
        token = uuid4().hex
        self.issuer.users[token] = OidcUser(subject, None, accounts, email)
        return token


@asynccontextmanager
async def a_local_world(url: str) -> AsyncIterator[LocalWorld]:
    async with AsyncExitStack() as stack:
        pool = await open_pool(url)
        stack.callback(pool.terminate)
        issuer = FakeIssuer()
        wallets = CustodialWallets(pool, Sealer([b"\x05" * 32]), ISSUER, ())
        world = LocalWorld(url, wallets, LinkingTokenVerifier(issuer, wallets))
        world.issuer = issuer
        await stack.enter_async_context(world.begun())
        yield world


class VendorWorld(World):
    """With the sandbox's identity provider."""

    provider: Provider

    async def log_in(self, account: OAuthAccount, **order: object) -> dict[str, Any]:
        return await self.provider.log_in_with(account.provider, account.user_id, **order)


@asynccontextmanager
async def a_vendor_world(url: str, provider: Provider) -> AsyncIterator[VendorWorld]:
    async with (
        IdentityClient(provider.policy) as identity,
        IdentityTokens(provider.policy) as tokens,
    ):
        world = VendorWorld(url, identity, tokens)
        world.provider = provider
        async with world.begun():
            yield world
