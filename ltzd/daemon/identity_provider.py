"""Builds the identity provider: a vendor's client, or custodial wallets with an OIDC issuer."""

from contextlib import AsyncExitStack

from ltzd.actions.users.custodial_signing import ltz_permits
from ltzd.actions.users.custodial_wallets import CustodialWallets, LinkingTokenVerifier
from ltzd.actions.users.identity_provider import IdentityProvider, TokenVerifier
from ltzd.daemon.settings.identity import OidcIdentitySettings, VendorIdentitySettings
from ltzd.providers.identity.client import IdentityClient
from ltzd.providers.identity.tokens import IdentityTokens
from ltzd.providers.oidc.tokens import OidcTokens
from ltzd.store.database import Pool
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer.chains import ChainIdentity


async def open_identity_provider(
    settings: VendorIdentitySettings | OidcIdentitySettings,
    pool: Pool,
    sealer: Sealer,
    chain: ChainIdentity,
    stack: AsyncExitStack,
) -> tuple[IdentityProvider, TokenVerifier]:
    """The client for users and wallets, and the verifier of their tokens. Raises Misconfigured."""
    if isinstance(settings, OidcIdentitySettings):
        permits = ltz_permits(chain.chain_id, chain.ltz)
        wallets = CustodialWallets(pool, sealer, settings.issuer, [permits])
        issued = await stack.enter_async_context(OidcTokens(settings.policy()))
        return wallets, LinkingTokenVerifier(issued, wallets)
    policy = settings.policy()
    client = await stack.enter_async_context(IdentityClient(policy))
    return client, await stack.enter_async_context(IdentityTokens(policy))
