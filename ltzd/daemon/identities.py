"""Builds whoever keeps users' wallets and makes their tokens: a vendor's client, or our own."""

from contextlib import AsyncExitStack

from ltzd.actions.identities import Identities, UserTokens
from ltzd.actions.local_signing import ltz_permits
from ltzd.actions.local_wallets import LinkingTokens, LocalWallets
from ltzd.daemon.identity_settings import OidcIdentity, VendorIdentity
from ltzd.providers.identity import IdentityClient
from ltzd.providers.identity_tokens import IdentityTokens
from ltzd.providers.oidc import OidcTokens
from ltzd.store.chains import ChainIdentity
from ltzd.store.database import Pool
from ltzd.store.sealing import Sealer


async def identities(
    settings: VendorIdentity | OidcIdentity,
    pool: Pool,
    sealer: Sealer,
    chain: ChainIdentity,
    stack: AsyncExitStack,
) -> tuple[Identities, UserTokens]:
    """Raises Misconfigured."""
    if isinstance(settings, OidcIdentity):
        permits = ltz_permits(chain.chain_id, chain.ltz)
        wallets = LocalWallets(pool, sealer, settings.issuer, [permits])
        issued = await stack.enter_async_context(OidcTokens(settings.policy()))
        return wallets, LinkingTokens(issued, wallets)
    policy = settings.policy()
    client = await stack.enter_async_context(IdentityClient(policy))
    return client, await stack.enter_async_context(IdentityTokens(policy))
