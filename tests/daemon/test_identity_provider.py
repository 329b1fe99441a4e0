"""The settings choose the keeper of users' wallets; callers see no difference."""

from contextlib import AsyncExitStack
from pathlib import Path

from ltzd.actions.users.custodial_wallets import CustodialWallets
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.daemon.identity_provider import open_identity_provider
from ltzd.daemon.settings.identity import OidcIdentitySettings, VendorIdentitySettings
from ltzd.providers.identity.client import IdentityClient
from ltzd.store.database import Pool
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer.chains import ChainIdentity
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT
from tests.support.rows.core import a_hash, pool
from tests.support.secret_files import write_secret
from tests.support.services.oidc import AUDIENCE, an_issuer

__all__ = ["pool"]

CHAIN = ChainIdentity(CHAIN_ID, a_hash("genesis"), LTZ_AT, 1)


async def test_an_e_mail_user_and_whoever_logs_in_with_it_at_an_issuer_have_one_wallet(
    pool: Pool, tmp_path: Path
) -> None:
    sealer = Sealer.from_file(tmp_path / "master.key", create=True)
    async with an_issuer() as issuer, AsyncExitStack() as stack:
        settings = OidcIdentitySettings(kind="oidc", issuer=issuer.issuer, audience=(AUDIENCE,))
        kept, tokens = await open_identity_provider(settings, pool, sealer, CHAIN, stack)
        assert isinstance(kept, CustodialWallets)
        users = TokenAuthenticator(tokens, kept)
        earned = await kept.wallet_of_email("Ada@shop.example")

        claimed = await users.user_of(issuer.token(email="ada@shop.example", email_verified=False))
        assert earned.wallet not in await users.wallets_of(claimed)
        proven = await users.user_of(
            issuer.token(sub="user-8", email="ada@shop.example", email_verified=True)
        )
        assert earned.wallet in await users.wallets_of(proven)


async def test_a_vendors_client_gets_all_that_its_settings_say(pool: Pool, tmp_path: Path) -> None:
    key = tmp_path / "signer"
    write_secret(key, "a key\n")
    settings = VendorIdentitySettings.model_validate(
        {
            "base_url": "https://identity.example",
            "app_id": "app",
            "app_secret": "secret",
            "signer_id": "quorum",
            "signer_key_file": key,
        }
    )
    policy = settings.policy()
    assert (policy.signer_id, policy.signer_key, policy.issuer) == ("quorum", "a key", "privy.io")
    plain = settings.model_copy(update={"signer_id": None, "signer_key_file": None})
    assert (plain.policy().signer_id, plain.policy().signer_key) == (None, None)
    sealer = Sealer.from_file(tmp_path / "master.key", create=True)
    async with AsyncExitStack() as stack:
        client, _ = await open_identity_provider(plain, pool, sealer, CHAIN, stack)
        assert isinstance(client, IdentityClient)
