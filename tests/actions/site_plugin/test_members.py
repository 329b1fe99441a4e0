"""Members of sites, with PostgreSQL, the sandbox's identity provider and a scripted site."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from ltzd.actions.site_plugin.members import LONGEST_USERNAME, NoEmailAddress
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import (
    HostSiteUnavailable,
    IdentityUnavailable,
    NotLoggedIn,
    RateLimited,
    SiteUnknown,
)
from ltzd.providers.host_sites import HostCredentials
from ltzd.store.database import Pool, session
from ltzd.values import address_of
from tests.support.rows.core import BRAND, value
from tests.support.sites.host_sites import a_log_in
from tests.support.sites.log_ins import HOST, SITE, World, a_world
from tests.support.surfaces.event_action import a_brand, a_handler
from tests.support.surfaces.event_action import a_request as an_event


@pytest_asyncio.fixture
async def world(pool: Pool, sandbox: Sandbox) -> AsyncIterator[World]:
    async with a_world(pool, sandbox) as world:
        yield world


# --- sites --------------------------------------------------------------------------------------


async def test_a_host_identifies_its_brand_unless_the_brand_is_disabled(world: World) -> None:
    assert world.members.brand_of(HOST).address == BRAND
    for host in ("", "example", "www.site.example", "shop.example"):
        with pytest.raises(SiteUnknown):
            world.members.brand_of(host)
        with pytest.raises(SiteUnknown):
            await world.members.member(host, a_log_in())
    assert world.site.requests == []

    await value(
        world.pool, "UPDATE brands SET disabled_at = now(), revision = nextval('brand_revisions')"
    )
    async with session(world.pool) as connection:
        await world.brand_cache.refresh(connection)
    with pytest.raises(SiteUnknown):
        world.members.brand_of(HOST)


async def test_each_host_is_asked_at_its_own_address(world: World) -> None:
    first, other = await world.log_in(HOST), await world.log_in("other.example")

    assert world.site.requests == [
        "/site.example/api/wp/v2/users/me?context=edit",
        "/other.example/api/wp/v2/users/me?context=edit",
    ]
    assert (first.host, other.host, first.wallet) == (HOST, "other.example", other.wallet)
    assert await world.rows() == 2


async def test_a_brands_own_rest_prefix_counts_before_the_settings(world: World) -> None:
    await world.brand(site=SITE | {"rest_prefix": "own/rest"})
    log_in = a_log_in()
    await world.members.member(HOST, log_in)
    assert world.site.requests == ["/site.example/own/rest/wp/v2/users/me?context=edit"]
    assert world.members.is_confirmed(HOST, log_in)
    assert not world.members.is_confirmed("stranger.example", log_in)


# --- members ------------------------------------------------------------------------------------


async def test_a_member_has_the_same_wallet_as_his_events(
    world: World, database_url: str, sandbox: Sandbox
) -> None:
    async with a_handler(database_url, sandbox, a_brand(site=SITE)) as handler:
        event = await handler.record(an_event("ann@Site.example"))

    member = await world.log_in()

    assert (member.wallet, member.brand_id, member.site_user_id) == (event.wallet, BRAND, 42)
    assert (member.username, member.subject) == ("ann", None)
    assert member.user_id == await value(world.pool, "SELECT id FROM users")


async def test_a_member_known_from_a_log_in_is_not_a_new_user_of_a_later_event(
    world: World, database_url: str, sandbox: Sandbox
) -> None:
    member = await world.log_in()
    async with a_handler(database_url, sandbox, a_brand(site=SITE)) as handler:
        event = await handler.record(an_event("ann@site.example"))
    assert (event.wallet_created, event.wallet) == (False, member.wallet)


async def test_the_brands_limit_of_new_wallets_holds(world: World) -> None:
    await world.brand(max_new_wallets_per_hour=1)
    first = await world.log_in()
    with pytest.raises(RateLimited):
        await world.log_in(id=43, email="ben@site.example")
    assert await world.log_in(id=42, email="ann@site.example") == first
    assert await world.rows() == 1


async def test_a_known_member_causes_no_write_on_the_same_day_and_no_identity_request(
    world: World,
) -> None:
    member = await world.log_in()
    world.sandbox.faults.order("identity", Fault(times=1_000, status=503))
    writes = await value(world.pool, "SELECT xmin::text FROM site_members")

    assert await world.log_in() == member
    assert await world.log_in(email="ANN@SITE.example") == member
    assert await value(world.pool, "SELECT xmin::text FROM site_members") == writes
    with pytest.raises(IdentityUnavailable):
        await world.log_in(id=43, email="ben@site.example")
    assert await world.rows() == 1


async def test_a_member_who_comes_daily_is_not_idle(world: World) -> None:
    """Retention counts from the last visit, which is written once a day."""
    member = await world.log_in()
    for ago, is_written in (("23 hours", False), ("25 hours", True), ("400 days", True)):
        await value(world.pool, f"UPDATE site_members SET seen_at = now() - interval '{ago}'")
        assert await world.log_in() == member
        age = "SELECT now() - seen_at < interval '1 hour' FROM site_members"
        assert await value(world.pool, age) is is_written


async def test_concurrent_first_log_ins_create_one_member(world: World) -> None:
    members = await asyncio.gather(*(world.log_in() for _ in range(10)))
    assert len(set(members)) == 1
    assert await world.rows() == 1


async def test_a_changed_username_is_stored(world: World) -> None:
    member = await world.log_in()
    renamed = await world.log_in(username="anna")
    assert (renamed.username, renamed.wallet) == ("anna", member.wallet)
    assert await value(world.pool, "SELECT username FROM site_members") == "anna"


@pytest.mark.parametrize(
    ("username", "shown"),
    [
        ("Ada Lovelace", "Ada Lovelace"),
        ("\u202eevil\u202c\x00\n", "evil"),
        ("x" * 1_000, "x" * LONGEST_USERNAME),
        ("\u5c71\u7530", "\u5c71\u7530"),
        ("\x07", ""),
        ("x" * 64 + "@site.example", "x" * 64 + "@site.example"),
    ],
)
async def test_a_username_is_stored_cleaned_and_shortened_for_display(
    world: World, username: str, shown: str
) -> None:
    assert (await world.log_in(username=username)).username == shown
    assert (await world.log_in()).username == shown


async def test_another_e_mail_address_has_another_wallet(world: World) -> None:
    first = await world.log_in()
    other = await world.log_in(email="ben@site.example")

    assert other.wallet == address_of((await world.token("ben@site.example"))["walletAddress"])
    assert (other.wallet != first.wallet, other.user_id != first.user_id) == (True, True)
    assert await world.log_in(email="ann@site.example") == first
    assert await world.rows() == 1


@pytest.mark.parametrize(
    "email", ["", "ann", "@", "ann@", "a\x00n@site.example", "a" * 300 + "@site.example"]
)
async def test_without_a_usable_e_mail_address_there_is_no_wallet(world: World, email: str) -> None:
    with pytest.raises(NoEmailAddress, match="no usable e-mail address"):
        await world.log_in(email=email)
    assert await world.rows() == 0
    assert await value(world.pool, "SELECT count(*) FROM users") == 0


async def test_a_member_who_removed_his_email_address_has_no_wallet(world: World) -> None:
    await world.log_in()
    with pytest.raises(NoEmailAddress):
        await world.log_in(email="")


@pytest.mark.parametrize("email", ["\u212aen@site.example", "ken@shop\u212a.example"])
async def test_an_email_address_that_equals_another_only_after_case_folding_has_no_wallet(
    world: World, email: str
) -> None:
    await world.log_in(email=email.lower())
    with pytest.raises(NoEmailAddress, match="no usable e-mail address"):
        await world.log_in(id=43, email=email)
    assert await world.rows() == 1
    with pytest.raises(NoEmailAddress):
        await world.log_in(id=42, email=email)


@pytest.mark.parametrize("number", [2**63, 10**40])
async def test_a_site_with_impossible_users_is_unavailable(world: World, number: int) -> None:
    with pytest.raises(HostSiteUnavailable):
        await world.log_in(id=number)
    assert (await world.log_in(id=2**63 - 1)).site_user_id == 2**63 - 1


async def test_without_credentials_no_request_is_sent(world: World) -> None:
    for credentials in (HostCredentials(), HostCredentials(cookie=a_log_in().cookie)):
        with pytest.raises(NotLoggedIn):
            await world.members.member(HOST, credentials)
    assert world.site.requests == []


# --- the site's statement about the address -----------------------------------------------------


@pytest.mark.parametrize("confirmed", [True, False, None])
async def test_a_member_carries_the_sites_statement_about_his_email_address(
    world: World, confirmed: bool | None
) -> None:
    if confirmed is not None:
        world.site.user["ltzd_email_confirmed"] = confirmed
    for _ in range(2):  # as a new member and as a known one
        assert (await world.log_in()).email_confirmed is confirmed


async def test_no_log_holds_an_address_or_a_cookie(world: World) -> None:
    with capture_logs() as logs:
        log_in = a_log_in()
        await world.members.member(HOST, log_in)
    assert [entry["event"] for entry in logs] == ["site_member.created"]
    logged = str(logs).lower()
    for secret in ("ann@", str(log_in.cookie).lower()):
        assert secret not in logged
