"""Builds the components of one process from the settings, in the order of the layers.

Each role of a process has a pool of database connections and a client of the pool of nodes. All
roles share one set of wakeups.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import msgspec
import structlog

from ltzd.actions.constraints.chat_members import ChatMembers
from ltzd.actions.constraints.evaluation import PurchaseConstraints
from ltzd.actions.domain_verification import DomainVerification
from ltzd.actions.event_handler.hash_waiter import MintHashWaiters
from ltzd.actions.event_handler.policy import DEFAULT_POLICY, EventPolicy
from ltzd.actions.event_handler.record import EventHandler
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.payments import Payments
from ltzd.actions.perk_charges import PerkCharges
from ltzd.actions.pregeneration import Pregeneration
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.relayer import Relayer, RelayPolicy
from ltzd.actions.request_signatures import RequestSignatures
from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.actions.users.wallet_migration import WalletMigration
from ltzd.cache.rate_limits import RateLimits
from ltzd.chain.node.node import Node
from ltzd.chain.pool.chain_check import ExpectedChain
from ltzd.chain.pool.pool import NodePool
from ltzd.chain.pool.watch import NodeWatch
from ltzd.chain.relayer.calls import RelayContracts
from ltzd.daemon.chain_identity import chain_of
from ltzd.daemon.deliveries import DeliveriesRole, build_deliveries
from ltzd.daemon.identity_provider import open_identity_provider
from ltzd.daemon.indexer import IndexerRole, build_indexer
from ltzd.daemon.operator import FleetDependencies, OperatorRole, build_operator
from ltzd.daemon.process_state import ProcessState, ServiceWatch
from ltzd.daemon.processes import this_process
from ltzd.daemon.settings.settings import Settings
from ltzd.daemon.site_services import LinkDependencies, build_site_services
from ltzd.http.admission.gate import AdmissionGate
from ltzd.http.services import SiteServices
from ltzd.operator.fleet.fleet import SettingsWallet
from ltzd.operator.policy import InProcessHooks
from ltzd.providers import brand_webhooks
from ltzd.providers.brand_webhooks import BrandWebhooks
from ltzd.providers.chat import ChatPlatform, ChatPolicy
from ltzd.providers.checkouts import PaymentProviderAccess, PaymentsPolicy
from ltzd.providers.dns_txt import DnsPolicy, TxtResolver
from ltzd.providers.external_api import ExternalApiClient
from ltzd.providers.oauth.lookups import AccountLookups
from ltzd.providers.outbound.guarded_http import GuardPolicy
from ltzd.rules.conditions.facts import ProcessIdentity
from ltzd.rules.database_connections import pooled_pools
from ltzd.store import database, durability, schema_revisions
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.operator import wallets
from ltzd.store.operator.leases import Leases
from ltzd.store.relayer.direct_lanes import DirectLanes
from ltzd.store.replica import ReplicaReads
from ltzd.store.role_pools import RolePools, open_fresh_pool, open_role_pools
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.wakeups import WakeupHub

log = structlog.get_logger()

IDENTITY = "identity"
"""The identity provider among the services that are watched."""


class Daemon(msgspec.Struct, frozen=True):
    """The components of one process: what every process has, HTTP's actions, the other roles.

    `operator`, `indexer` and `deliveries` are None in a process without this role.
    """

    settings: Settings
    process: ProcessIdentity
    state: ProcessState
    services: ServiceWatch
    pools: RolePools
    replica: ReplicaReads
    nodes: NodePool
    node_watch: NodeWatch
    node: Node
    wakeups: WakeupHub
    gate: AdmissionGate
    limits: RateLimits
    brands: BrandCache
    identity: IdentityProvider
    hashes: MintHashWaiters
    events: EventHandler
    relay_context: RelayContext
    relayer: Relayer
    perk_charges: PerkCharges
    constraints: PurchaseConstraints
    pregeneration: Pregeneration
    domains: DomainVerification
    payments: Payments
    site: SiteServices
    operator: OperatorRole | None
    indexer: IndexerRole | None
    deliveries: DeliveriesRole | None


@asynccontextmanager
async def open_daemon(
    settings: Settings,
    *,
    is_dev: bool = False,
    must_be_durable: bool = False,
    event_policy: EventPolicy = DEFAULT_POLICY,
    settings_wallets: Sequence[SettingsWallet] | None = None,
) -> AsyncIterator[Daemon]:
    """Migrate the schema, connect, check the chain, and build the components.

    With `is_dev`, and with the setting `staging`, outgoing requests may go to this machine. With
    `must_be_durable` a PostgreSQL that may lose confirmed commits is refused. `settings_wallets`
    are the settings' wallets if the caller has opened them.
    Raises Misconfigured, DatabaseUnavailable.
    """
    url = settings.database_url.get_secret_value()
    sealer = Sealer.from_file(settings.master_key_file, *settings.old_master_key_files)
    if must_be_durable:
        await durability.require_at_start(url)
    await schema_revisions.migrate(url, in_child=not is_dev)
    erased = ErasedAddresses(sealer)
    async with AsyncExitStack() as stack:
        pools = await stack.enter_async_context(
            open_role_pools(
                url,
                settings.roles,
                settings.database.policy(),
                pooled_url=settings.database.plain_pooled_url(),
                replica_url=settings.database.plain_replica_url(),
                must_be_durable=must_be_durable,
            )
        )
        await _warn_of_few_connections(pools.admin, settings)
        pool = pools.http
        replica = ReplicaReads(
            pools.http, pools.replica, most_seconds=settings.database.replica_seconds
        )
        nodes = await stack.enter_async_context(NodePool(settings.node.plain_urls()))
        limits = await stack.enter_async_context(_limits(settings))
        chain = await chain_of(settings, pools.admin, nodes)
        nodes.expect(ExpectedChain(chain.chain_id, chain.genesis_hash, chain.ltz))
        watch = NodeWatch(nodes)
        await watch.check_all()
        node = Node(nodes.client("http"))
        identity, tokens = await open_identity_provider(
            settings.identity, pool, sealer, chain, stack
        )
        wakeups, leases = WakeupHub(url), Leases(url)
        brands = BrandCache()
        async with database.session(pools.admin) as connection:
            await brands.refresh(connection)
        hashes = MintHashWaiters(pool, wakeups)
        signatures = RequestSignatures(pool, sealer, brands)
        allow_loopback = is_dev or settings.staging
        apis = ExternalApiClient(GuardPolicy(allow_loopback=allow_loopback))
        stack.push_async_callback(apis.close)
        platform = await _chat_platform(settings, stack)
        constraints = PurchaseConstraints(pool, brands, apis, ChatMembers(pool, identity, platform))
        stack.push_async_callback(constraints.close)
        provider = await _payment_provider(settings, stack)
        accounts = _account_lookups(settings, stack)
        pregeneration = Pregeneration(pool, brands, identity, accounts, limits, signatures)
        stack.push_async_callback(pregeneration.close)
        capacity = MintCapacity(pool, node, chain.chain_id, chain.ltz)
        context = _relay_context(settings, pool, node, chain, wakeups)
        users = TokenAuthenticator(tokens, identity, WalletMigration(pool, identity, erased))
        direct_lanes = DirectLanes()
        relayer = Relayer(
            context,
            users,
            constraints,
            RelayPolicy(gas_budgets=settings.relay.budgets()),
            direct_lanes,
        )
        operator = indexer = deliveries = None
        if "operator" in settings.roles:
            operator = await build_operator(
                settings,
                FleetDependencies(
                    pools.operator,
                    leases,
                    Node(nodes.client("operator")),
                    chain,
                    wakeups,
                    # The users that this process is meeting are rewards on their way to a mint
                    # lane.
                    InProcessHooks(hashes.deliver, lambda: identity.under_way),
                    direct_lanes,
                    is_dev=is_dev,
                ),
                stack,
                settings_wallets,
            )
        if "indexer" in settings.roles:
            indexer = build_indexer(
                settings,
                pools.indexer,
                leases,
                Node(nodes.client("indexer")),
                chain,
                wakeups,
                partial(open_fresh_pool, url, must_be_durable=must_be_durable),
                is_dev=is_dev,
            )
        if "deliveries" in settings.roles:
            deliveries = build_deliveries(
                settings,
                pools.deliveries,
                leases,
                wakeups,
                sealer,
                erased,
                _brands_servers(stack, allow_loopback=allow_loopback),
                platform,
            )
        yield Daemon(
            settings=settings,
            process=this_process(settings.roles),
            state=ProcessState(),
            services=ServiceWatch({IDENTITY: (identity.ping, tokens.ping)}),
            pools=pools,
            replica=replica,
            nodes=nodes,
            node_watch=watch,
            node=node,
            wakeups=wakeups,
            gate=AdmissionGate(delay=pools.http.mean_wait),
            limits=limits,
            brands=brands,
            identity=identity,
            hashes=hashes,
            events=EventHandler(
                pool,
                wakeups,
                brands,
                identity,
                hashes,
                signatures,
                limits,
                capacity,
                erased=erased,
                policy=event_policy,
            ),
            relay_context=context,
            relayer=relayer,
            perk_charges=PerkCharges(
                context, brands, signatures, limits, sealer, settings.relay.budgets(), replica
            ),
            constraints=constraints,
            pregeneration=pregeneration,
            domains=DomainVerification(pool, sealer, brands, _txt_records(settings)),
            payments=Payments(
                pool,
                wakeups,
                brands,
                identity,
                hashes,
                provider,
                capacity,
                erased,
            ),
            site=build_site_services(
                settings.site,
                context,
                relayer,
                brands,
                identity,
                LinkDependencies(users, sealer, erased),
                capacity,
                stack,
                replica=replica,
                allow_loopback=allow_loopback,
            ),
            operator=operator,
            indexer=indexer,
            deliveries=deliveries,
        )


async def _warn_of_few_connections(pool: Pool, settings: Settings) -> None:
    async with database.session(pool) as connection:
        lanes = max(len(settings.operator.named_wallets()), await wallets.count_served(connection))
        pooled = pooled_pools(settings.roles) if settings.database.pooled_url else ()
        needed = settings.database.policy().total(settings.roles, lanes, pooled)
        allowed = await database.connections_allowed(connection)
    if needed > allowed:
        log.warning(
            "database.too_few_connections",
            needed=needed,
            allowed=allowed,
            reason="raise PostgreSQL's max_connections, or lower the bounds in [database]",
        )


def _account_lookups(settings: Settings, stack: AsyncExitStack) -> AccountLookups:
    unchecked = settings.accounts.unchecked_providers()
    if unchecked and "http" in settings.roles:
        log.warning(
            "accounts.unchecked",
            providers=unchecked,
            reason="these providers are not configured: only the format of account ids is checked",
        )
    lookups = AccountLookups(settings.accounts.policy())
    stack.push_async_callback(lookups.close)
    return lookups


async def _chat_platform(settings: Settings, stack: AsyncExitStack) -> ChatPlatform | None:
    """The client of the chat platform; None if neither a token nor `levels_url` is configured."""
    discord, levels_url = settings.accounts.discord, settings.chat.levels_url
    if discord is None and levels_url is None:
        return None
    policy = ChatPolicy(levels_url=levels_url)
    if discord is not None:
        access = discord.access()
        policy = replace(policy, base_url=access.base_url, token=access.token)
    return await stack.enter_async_context(ChatPlatform(policy))


def _txt_records(settings: Settings) -> TxtResolver:
    dns = settings.dns
    return TxtResolver(DnsPolicy(dns.nameservers, dns.port, dns.timeout_seconds))


async def _payment_provider(
    settings: Settings, stack: AsyncExitStack
) -> PaymentProviderAccess | None:
    account = settings.payments
    if account is None or "http" not in settings.roles:
        return None
    policy = PaymentsPolicy(
        base_url=account.base_url,
        secret_key=account.key().get_secret_value(),
        signing_secret=account.events_secret().get_secret_value(),
    )
    return await stack.enter_async_context(PaymentProviderAccess(policy))


def _brands_servers(stack: AsyncExitStack, *, allow_loopback: bool) -> BrandWebhooks:
    servers = BrandWebhooks(brand_webhooks.guard_policy(allow_loopback=allow_loopback))
    stack.push_async_callback(servers.close)
    return servers


def _limits(settings: Settings) -> RateLimits:
    """The rate limits, which only HTTP uses; the other roles need no Redis."""
    if settings.redis_url is None or "http" not in settings.roles:
        return RateLimits()
    return RateLimits(settings.redis_url.get_secret_value())


def _relay_context(
    settings: Settings, pool: Pool, node: Node, chain: ChainIdentity, wakeups: WakeupHub
) -> RelayContext:
    contracts = RelayContracts(chain.chain_id, **settings.contracts.addresses())
    return RelayContext.create(pool, wakeups, node, contracts, settings.operator.fees())
