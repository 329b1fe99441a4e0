"""Signatures that cause a read of the database, and those that do not."""

import time

import pytest

from ltzd.actions.request_signatures import RequestSignatures
from ltzd.errors import SignatureRefused
from ltzd.rules.request_signatures import SignedRequest
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Connection, Pool, transaction
from ltzd.values import Address, hex_of
from tests.support.rows.core import BRAND, a_wallet
from tests.support.surfaces.event_action import SEALER, a_brand


def a_wrong_signature(brand_id: Address) -> SignedRequest:
    return SignedRequest(
        brand_id=hex_of(brand_id),
        timestamp=str(int(time.time())),
        nonce="a" * 16,
        signatures="v1=" + "0" * 64,
        method="GET",
        target=b"/check-perk-status",
        body=b"",
    )


async def test_an_unknown_brand_id_never_causes_a_read_of_keys(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    brand_cache, read = BrandCache(), []
    async with transaction(pool) as connection:
        await brands.apply(connection, a_brand(id=hex_of(BRAND)), SEALER)
        await brand_cache.refresh(connection)
    secrets_of = brand_keys.secrets_of

    async def counted(connection: Connection, brand_id: Address, *more: object) -> object:
        read.append(brand_id)
        return await secrets_of(connection, brand_id, "security_key", SEALER)

    monkeypatch.setattr(brand_keys, "secrets_of", counted)
    signatures = RequestSignatures(pool, SEALER, brand_cache)
    for brand_id in (a_wallet(0xF1), a_wallet(0xF2), BRAND):
        with pytest.raises(SignatureRefused):
            await signatures.check(a_wrong_signature(brand_id), brand_id)
    assert read == [BRAND]
