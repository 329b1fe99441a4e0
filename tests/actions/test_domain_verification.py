"""Domain verification on a real database and a real name server."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from ltzd.actions.domain_verification import DomainVerification
from ltzd.dev.sandbox.dns.records import name_of
from ltzd.dev.sandbox.dns.server import DnsServer
from ltzd.dev.sandbox.faults import DNS, Fault, Faults
from ltzd.errors import DnsUnavailable
from ltzd.providers.dns_txt import TxtResolver
from ltzd.rules.brands.configuration import Brand
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.brands.keys import KeyName, NewKeys, Rotation
from ltzd.store.database import Pool, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import Address, checksummed, hex_of
from tests.support.rows.core import a_wallet

SHOP, RIVAL, NOBODY = a_wallet(0xB), a_wallet(0xC), a_wallet(0xD)
DOMAIN = "shop.example"
BOTH = pytest.mark.parametrize("name", ["api_key", "verification_token"])


@dataclass
class World:
    pool: Pool
    sealer: Sealer
    brand_cache: BrandCache
    server: DnsServer
    faults: Faults
    keys: dict[Address, NewKeys]
    domains: DomainVerification

    async def record(self, *values: str, domain: str = DOMAIN) -> None:
        assert self.server._store is not None
        await self.server._store.set(name_of(f"_ltz.{domain}"), values, "control")

    async def brand(self, domain: str = DOMAIN) -> Address | None:
        return await self.domains.brand_of(domain)

    async def rotate(self, name: KeyName, *, revoke: bool = False) -> Rotation:
        async with transaction(self.pool) as connection:
            return await brand_keys.rotate(connection, SHOP, name, self.sealer, revoke=revoke)

    async def disable(self) -> None:
        async with transaction(self.pool) as connection:
            await brand_records.switch(connection, SHOP, "disabled", on=True)
            await self.brand_cache.refresh(connection)

    def key(self, name: str, brand: Address = SHOP) -> str:
        key: str = getattr(self.keys[brand], name)
        return key


@pytest_asyncio.fixture
async def world(pool: Pool, tmp_path: Path) -> AsyncIterator[World]:
    sealer = Sealer.from_file(tmp_path / "master.key", create=True)
    brand_cache, keys = BrandCache(), {}
    async with transaction(pool) as connection:
        for brand in (SHOP, RIVAL):
            configuration = {
                "id": hex_of(brand),
                "name": "Shop",
                "domains": [f"{brand.hex()[-2:]}.example"],
            }
            applied = await brands.apply(connection, Brand.model_validate(configuration), sealer)
            assert applied.keys is not None
            keys[brand] = applied.keys
        await brand_cache.refresh(connection)
    faults = Faults()
    server = DnsServer(tmp_path, faults)
    await server.start()
    domains = DomainVerification(pool, sealer, brand_cache, TxtResolver(server.policy()))
    yield World(pool, sealer, brand_cache, server, faults, keys, domains)
    await server.stop()


def says(key: str, brand: Address = SHOP) -> str:
    return f"brand_id={hex_of(brand)};api_key={key}"


@BOTH
async def test_either_key_of_the_brand_verifies_its_domain(world: World, name: str) -> None:
    await world.record(says(world.key(name)))
    assert await world.brand() == SHOP


@BOTH
async def test_a_rotated_key_verifies_while_it_counts_and_so_does_the_new_one(
    world: World, name: KeyName
) -> None:
    rotation = await world.rotate(name)
    for key in (world.key(name), rotation.key):
        await world.record(says(key))
        assert await world.brand() == SHOP


@BOTH
async def test_a_revoked_key_verifies_no_domain(world: World, name: KeyName) -> None:
    await world.record(says(world.key(name)))
    assert await world.brand() == SHOP
    rotation = await world.rotate(name, revoke=True)
    assert await world.brand() is None
    await world.record(says(rotation.key))
    assert await world.brand() == SHOP


async def test_an_expired_api_key_verifies_no_domain(world: World) -> None:
    await world.rotate("api_key")
    await world.record(says(world.key("api_key")))
    assert await world.brand() == SHOP
    async with transaction(world.pool) as connection:
        await connection.execute("UPDATE retired_secrets SET expires_at = now()")
    assert await world.brand() is None


@pytest.mark.parametrize("name", ["security_key", "webhook_secret"])
async def test_the_brands_other_secrets_verify_no_domain(world: World, name: str) -> None:
    await world.record(says(world.key(name)))
    assert await world.brand() is None


async def test_wrong_keys_and_unknown_brands_are_answered_like_a_missing_record(
    world: World,
) -> None:
    own = world.key("api_key")
    for value in (
        says(world.key("api_key", RIVAL)),
        says(own + "0"),
        says(own[:-1]),
        says(own.upper()),
        says(own, NOBODY),
        f"api_key={own}",
        "v=spf1 -all",
    ):
        await world.record(value)
        assert await world.brand() is None
    await world.record()
    assert await world.brand() is None


async def test_a_disabled_brand_is_answered_like_a_missing_record(world: World) -> None:
    await world.record(says(world.key("api_key")))
    assert await world.brand() == SHOP
    await world.disable()
    assert await world.brand() is None


async def test_one_valid_record_among_others_is_enough(world: World) -> None:
    right = f"api_key={world.key('verification_token')} ; brand_id={checksummed(SHOP)}"
    wrong = [says("ltzvt_wrong"), says(world.key("api_key"), RIVAL), says("x", NOBODY)]
    await world.record("v=spf1 -all", *wrong, right, "brand_id=;api_key=")
    assert await world.brand() == SHOP


async def test_with_two_valid_records_the_answer_is_always_the_same(world: World) -> None:
    ours, theirs = says(world.key("api_key")), says(world.key("api_key", RIVAL), RIVAL)
    for values in ((ours, theirs), (theirs, ours)):
        await world.record(*values)
        assert await world.brand() == SHOP


async def test_a_record_in_several_strings_counts(world: World) -> None:
    await world.record(f"note={'x' * 300};{says(world.key('api_key'))}")
    assert await world.brand() == SHOP


async def test_a_record_of_a_parent_or_child_domain_does_not_count(world: World) -> None:
    await world.record(says(world.key("api_key")))
    assert await world.brand("www.shop.example") is None
    assert await world.brand("hop.example") is None


async def test_a_domain_too_long_to_have_a_record_has_none(world: World) -> None:
    assert await world.brand("a." * 122 + "example") is None


async def test_a_failing_resolver_is_not_a_missing_record(world: World) -> None:
    await world.record(says(world.key("api_key")))
    world.faults.order(DNS, Fault(times=1, status=503))
    with pytest.raises(DnsUnavailable):
        await world.brand()
    assert await world.brand() == SHOP
