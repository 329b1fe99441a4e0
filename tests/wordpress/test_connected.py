"""A real WordPress with a live ltzd: `ltzd dev --site-url`, the settings page, and a member's day.

Skipped where Debian's packages of a WordPress (scripts/test-tools) are missing.
"""

import json
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest_asyncio

from tests.support.instances.instance import Instance, an_instance
from tests.support.sites.wordpress import Session, WordPressSite

COFFEE = "6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77"
SETTINGS = "/wp-admin/options-general.php?page=ltzd-loyalty"
KEEP = "update_option( 'ltzd_loyalty', json_decode( $argv[1], true ) );"


async def keep(site: WordPressSite, **settings: str) -> None:
    await site.run(KEEP, json.dumps(settings))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ltzd(site: WordPressSite) -> AsyncIterator[Instance]:
    async with an_instance("--chain", "anvil", "--site-url", site.url) as instance:
        brand = instance.dev_json["brand"]["brandId"]
        await keep(site, url=instance.base_url, brand=brand, host="site.example")
        yield instance
        await site.run("delete_option( 'ltzd_loyalty' );")


async def a_member(site: WordPressSite) -> Session:
    name = f"ann{uuid4().hex[:10]}"
    await site.register(name, f"{name}@shop.example")
    return await site.log_in(name)


async def test_the_settings_page_sends_a_log_in_to_ltzd_and_back(
    site: WordPressSite, ltzd: Instance
) -> None:
    administrator = await site.log_in("admin")
    status, page = await administrator.open(site.url + SETTINGS)
    assert status == 200
    for sentence in (
        "ltzd serves site.example.",
        "ltzd knows the brand.",
        "ltzd asked this site who you are, and the site told it.",
    ):
        assert sentence in page
    assert "Application passwords are off" not in page


async def test_a_member_checks_in_and_redeems_a_perk_at_a_real_wordpress(
    site: WordPressSite, ltzd: Instance
) -> None:
    member = await a_member(site)
    status, answer = await member.ask("POST", "/loyalty/v1/checkin")
    assert (status, answer["streak"]["currentStreak"]) == (200, 1)
    order = {"perkId": COFFEE, "maxCost": 0}
    status, answer = await member.ask("POST", "/loyalty/v1/redeem", json=order)
    assert status == 200, answer
    assert answer["confirmationCode"]
