"""Opens the signers of the operator's wallets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ltzd.chain.remote_signing import open_remote_signer
from ltzd.chain.signing import Signer, WalletSigner
from ltzd.daemon.keys import read_key
from ltzd.daemon.settings.wallets import KmsSettings, SignerSettings, Web3SignerSettings
from ltzd.errors import Misconfigured
from ltzd.providers.signers.web3signer import Web3SignerKey, Web3SignerPolicy


@asynccontextmanager
async def open_signer(settings: SignerSettings) -> AsyncIterator[WalletSigner]:
    """The signer, which may be used until the end of the block.

    Raises Misconfigured for a key that a person must correct, and SignerUnavailable.
    """
    if settings.kms is not None:
        async with _open_kms(settings.kms) as signer:
            yield signer
    elif settings.web3signer is not None:
        async with Web3SignerKey(_web3signer_policy(settings.web3signer)) as key:
            yield await open_remote_signer(key)
    else:
        assert settings.key_file is not None, "the settings name one signer"
        # Decrypting a keystore takes about a second.
        secret = await asyncio.to_thread(read_key, settings.key_file, settings.password_file)
        yield Signer(secret)


@asynccontextmanager
async def _open_kms(settings: KmsSettings) -> AsyncIterator[WalletSigner]:
    # botocore takes 0.2 s to import.
    from ltzd.providers.signers.kms import KmsKey, KmsPolicy  # noqa: PLC0415

    policy = KmsPolicy(settings.key_id, settings.region, settings.endpoint)
    async with KmsKey(policy) as key:
        yield await open_remote_signer(key)


def _web3signer_policy(settings: Web3SignerSettings) -> Web3SignerPolicy:
    """Raises Misconfigured for a certificate that cannot be used."""
    public_key = settings.public_key
    return Web3SignerPolicy(
        url=settings.url,
        public_key=None if public_key is None else bytes.fromhex(public_key.removeprefix("0x")),
        tls=_tls(settings),
    )


def _tls(settings: Web3SignerSettings) -> ssl.SSLContext | None:
    if settings.ca_file is None and settings.certificate_file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.certificate_key_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
        raise Misconfigured(
            f"The certificates for {settings.url} cannot be used: {error}."
        ) from error
    return context
