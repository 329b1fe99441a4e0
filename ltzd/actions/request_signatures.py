"""Verifies brands' signatures of requests (LTZ-HMAC v1, `rules/request_signatures.py`)."""

import time
from datetime import UTC, datetime

from ltzd.errors import SignatureRefused
from ltzd.rules.request_signatures import SignedRequest, check_form, is_signed_with
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.brands.keys import BrandSecret
from ltzd.store.database import Pool, session
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import Address, hex_of


class RequestSignatures:
    def __init__(self, pool: Pool, sealer: Sealer, brands: BrandCache) -> None:
        self._pool = pool
        self._sealer = sealer
        self._brands = brands
        self._keys: dict[Address, tuple[int, list[BrandSecret]]] = {}
        """With the brand's revision: rotating a key changes it, so no key here is out of date."""

    async def check(self, signed: SignedRequest, brand_id: Address) -> None:
        """Raises SignatureRefused, with one text for another brand's and an invalid signature.

        Does not check for replay: the caller inserts the nonce in its own transaction.
        """
        now = time.time()
        check_form(signed, now)
        revision = self._brands.revision_of(brand_id)
        # Anybody may invent an id: an unknown brand has revision 0, and its keys are not read.
        at, secrets = self._keys.get(brand_id, (0, []))
        if at != revision:
            secrets = await self._read(brand_id, revision)
        keys = [secret.text for secret in secrets if _counts(secret, now)]
        if signed.brand_id.lower() != hex_of(brand_id) or not is_signed_with(signed, keys):
            raise SignatureRefused("The request is not signed by this brand")

    async def _read(self, brand_id: Address, revision: int) -> list[BrandSecret]:
        async with session(self._pool) as connection:
            secrets = await brand_keys.secrets_of(
                connection, brand_id, "security_key", self._sealer
            )
        self._keys[brand_id] = revision, secrets
        return secrets


def _counts(key: BrandSecret, now_seconds: float) -> bool:
    return key.until is None or datetime.fromtimestamp(now_seconds, UTC) < key.until
