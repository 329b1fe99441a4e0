"""Verifies brands' signatures of requests (LTZ-HMAC v1, `rules/request_signatures.py`)."""

import time
from datetime import UTC, datetime

from cachetools import LRUCache

from ltzd.concurrency.clock import Clock
from ltzd.errors import SignatureRefused
from ltzd.rules.request_signatures import SignedRequest, check_form, is_signed_with
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.brands.keys import BrandSecret
from ltzd.store.database import Pool, session
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import Address, hex_of

_KEPT = 10_000


class RequestSignatures:
    def __init__(
        self,
        pool: Pool,
        sealer: Sealer,
        brands: BrandCache,
        wall_clock: Clock = time.time,
    ) -> None:
        self._pool = pool
        self._sealer = sealer
        self._brands = brands
        self._wall_clock = wall_clock
        # Keyed by revision: rotating a key changes it, so cached keys are never out of date.
        self._keys: LRUCache[tuple[Address, int], list[BrandSecret]] = LRUCache(_KEPT)

    async def check(self, signed: SignedRequest, brand_id: Address) -> None:
        """Raises SignatureRefused, with one text for another brand's and an invalid signature.

        Does not check for replay: the caller inserts the nonce in its own transaction.
        """
        now = self._wall_clock()
        check_form(signed, now)
        keys = [key.text for key in await self._current(brand_id) if _counts(key, now)]
        if signed.brand_id.lower() != hex_of(brand_id) or not is_signed_with(signed, keys):
            raise SignatureRefused("The request is not signed by this brand")

    async def _current(self, brand_id: Address) -> list[BrandSecret]:
        """Return no keys for an unknown brand, without a query: anybody may invent an id."""
        at = (brand_id, self._brands.revision_of(brand_id))
        if at[1] == 0:
            return []
        keys = self._keys.get(at)
        if keys is None:
            async with session(self._pool) as connection:
                keys = await brand_keys.secrets_of(
                    connection, brand_id, "security_key", self._sealer
                )
            self._keys[at] = keys
        return keys


def _counts(key: BrandSecret, now_seconds: float) -> bool:
    return key.until is None or datetime.fromtimestamp(now_seconds, UTC) < key.until
