"""Opens the signers of the operator's wallets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ltzd.chain.signing import Signer, WalletSigner
from ltzd.daemon.keys import read_key
from ltzd.daemon.settings.wallets import SignerSettings
from ltzd.errors import Misconfigured


@asynccontextmanager
async def open_signer(settings: SignerSettings) -> AsyncIterator[WalletSigner]:
    """The signer, which may be used until the end of the block.

    Raises Misconfigured for a key that a person must correct, and SignerUnavailable.
    """
    if settings.key_file is None:
        raise Misconfigured("The signer names no key.")
    # Decrypting a keystore takes about a second.
    key = await asyncio.to_thread(read_key, settings.key_file, settings.password_file)
    yield Signer(key)
