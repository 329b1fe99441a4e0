"""Members who log in at a brand's sites and own wallets, as one process of ltzd serves them.

The parts are real: PostgreSQL, the sandbox's identity provider, and a site whose member a test
sets.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp

from ltzd.actions.site_plugin.links import LinkCode, SiteLinks
from ltzd.actions.site_plugin.members import SiteMembers, SitePolicy
from ltzd.actions.users.registration import UserRegistration
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.actions.users.wallet_migration import WalletMigration
from ltzd.dev.sandbox import Sandbox
from ltzd.providers.host_sites import HostSiteClient
from ltzd.providers.identity.client import IdentityClient
from ltzd.providers.identity.tokens import IdentityTokens
from ltzd.providers.outbound.guarded_http import GuardPolicy
from ltzd.store.brands import configurations as brands
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, transaction
from ltzd.store.site_plugin.members import Member
from ltzd.store.users.erased_addresses import ErasedAddresses
from tests.support.rows.core import value
from tests.support.sites.host_sites import FakeSite, a_fake_site, a_log_in
from tests.support.surfaces.event_action import SEALER, a_brand

HOST = "site.example"
SITE = {"hosts": (HOST, "other.example")}


class World:
    """The site actions of one process, with their database, site and identity provider."""

    def __init__(self, pool: Pool, sandbox: Sandbox, site: FakeSite) -> None:
        self.pool = pool
        self.sandbox = sandbox
        self.site = site
        self.brand_cache = BrandCache()
        self.members: SiteMembers
        self.links: SiteLinks
        self.users: TokenAuthenticator
        self.http: aiohttp.ClientSession

    async def brand(self, **changes: Any) -> None:
        async with transaction(self.pool) as connection:
            await brands.apply(connection, a_brand(**{"site": SITE} | changes), SEALER)
            await self.brand_cache.refresh(connection)

    async def log_in(self, host: str = HOST, **user: object) -> Member:
        """Logs in as the site's member, after these changes."""
        self.site.user |= user
        return (await self.members.member(host, a_log_in())).member

    async def token(self, email: str, **more: object) -> dict[str, str]:
        url = self.sandbox.control_endpoints()["identityTokenUrl"]
        async with self.http.post(url, json={"email": email} | more) as answer:
            assert answer.status == 200
            tokens: dict[str, str] = await answer.json()
            return tokens

    async def code(
        self, email: str, allowance: int = 500, *, host: str = HOST, **more: object
    ) -> LinkCode:
        """Returns a code for the owner of this address."""
        tokens = await self.token(email, **more)
        owner = await self.links.owner_of(tokens["accessToken"])
        return await self.links.new_code(owner, host, allowance)

    async def rows(self) -> int:
        count: int = await value(self.pool, "SELECT count(*) FROM site_members")
        return count


@asynccontextmanager
async def a_world(pool: Pool, sandbox: Sandbox) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        world = World(pool, sandbox, await stack.enter_async_context(a_fake_site()))
        await world.brand()
        world.http = await stack.enter_async_context(aiohttp.ClientSession())
        identity = await stack.enter_async_context(IdentityClient(sandbox.identity_policy()))
        tokens = await stack.enter_async_context(IdentityTokens(sandbox.identity_policy()))
        sites = HostSiteClient(GuardPolicy(allow_loopback=True))
        stack.push_async_callback(sites.close)
        policy = SitePolicy(world.site.base + "/{host}", "api")
        registration = UserRegistration(pool, identity, ErasedAddresses(SEALER))
        world.members = SiteMembers(pool, world.brand_cache, registration, sites, policy)
        world.users = TokenAuthenticator(
            tokens, identity, WalletMigration(pool, identity, ErasedAddresses(SEALER))
        )
        world.links = SiteLinks(pool, world.members, world.users, SEALER)
        yield world
