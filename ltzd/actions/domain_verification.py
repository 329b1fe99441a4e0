"""Finds the brand that a domain's own TXT record names (spec 4.1, verify-dns).

A record counts if it names a known brand together with one of its keys. A record of an unknown or
disabled brand, or with a wrong key, is ignored.
"""

from ltzd.providers.dns_txt import TxtResolver
from ltzd.rules.domains.txt_records import is_key_among, parse_record, record_name
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, session
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import Address


class DomainVerification:
    def __init__(
        self, pool: Pool, sealer: Sealer, brands: BrandCache, records: TxtResolver
    ) -> None:
        self._pool = pool
        self._sealer = sealer
        self._brands = brands
        self._records = records

    async def brand_of(self, domain: str) -> Address | None:
        """Return the brand of the first valid record, if there is one. Raises DnsUnavailable."""
        texts = await self._records.resolve(record_name(domain))
        claims = [claim for claim in map(parse_record, texts) if claim is not None]
        known = {claim.brand for claim in claims if self._brands.get(claim.brand) is not None}
        digests = await self._digests_of(known) if known else {}
        for claim in claims:
            if is_key_among(claim.key, digests.get(claim.brand, ())):
                return claim.brand
        return None

    async def _digests_of(self, brands: set[Address]) -> dict[Address, list[bytes]]:
        async with session(self._pool) as connection:
            return {
                brand: await brand_keys.verifying_digests(connection, brand, self._sealer)
                for brand in brands
            }
