"""Builds the services of the site plugin's API."""

from contextlib import AsyncExitStack

import msgspec

from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.relayer import Relayer
from ltzd.actions.site_plugin.check_ins import CheckIns
from ltzd.actions.site_plugin.leaderboards import Leaderboards
from ltzd.actions.site_plugin.links import SiteLinks
from ltzd.actions.site_plugin.members import SiteMembers, SitePolicy
from ltzd.actions.site_plugin.redemptions import SiteRedemptions
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.actions.users.registration import UserRegistration
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.daemon.settings.settings import SiteSettings
from ltzd.http.services import SiteServices
from ltzd.providers import host_sites
from ltzd.providers.host_sites import HostSiteClient
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.replica import ReplicaReads
from ltzd.store.users.erased_addresses import ErasedAddresses


class LinkDependencies(msgspec.Struct, frozen=True):
    """The verifier of wallet owners' tokens, and the sealer of link codes."""

    users: TokenAuthenticator
    sealer: Sealer
    erased: ErasedAddresses


def build_site_services(  # noqa: PLR0913 (a call of its own for each service would name them twice)
    settings: SiteSettings,
    context: RelayContext,
    relayer: Relayer,
    brands: BrandCache,
    identity: IdentityProvider,
    owners: LinkDependencies,
    capacity: MintCapacity,
    stack: AsyncExitStack,
    *,
    replica: ReplicaReads,
    allow_loopback: bool,
) -> SiteServices:
    host_site = HostSiteClient(host_sites.guard_policy(allow_loopback=allow_loopback))
    stack.push_async_callback(host_site.close)
    policy = SitePolicy(settings.base_url, settings.rest_prefix, settings.namespace)
    members = SiteMembers(
        context.pool,
        brands,
        UserRegistration(context.pool, identity, owners.erased),
        host_site,
        policy,
    )
    return SiteServices(
        members=members,
        check_ins=CheckIns(context.pool, context.wakeups, brands, capacity),
        leaderboards=Leaderboards(replica),
        redemptions=SiteRedemptions(context, relayer, identity, replica),
        links=SiteLinks(context.pool, members, owners.users, owners.sealer),
    )
