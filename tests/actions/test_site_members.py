"""Who asks at a brand's site: on PostgreSQL, the sandbox's identity provider and a site that tells
whatever a test has it tell."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from ltzd.actions.newcomers import Newcomers
from ltzd.actions.site_members import (
    LONGEST_USERNAME,
    LoggedIn,
    NoEmailAddress,
    SiteMembers,
    SitePolicy,
)
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import (
    HostSiteUnavailable,
    IdentityUnavailable,
    LinkRefused,
    NotLoggedIn,
    RateLimited,
    SiteUnknown,
)
from ltzd.providers.host_sites import HostCredentials, HostSites
from ltzd.providers.identity import IdentityClient
from ltzd.providers.identity_tokens import IdentityTokens
from ltzd.store import brands
from ltzd.store.brands import BrandBook
from ltzd.store.database import Pool, session, transaction
from ltzd.store.site_members import Member
from ltzd.values import Address, address_of
from tests.support.core import BRAND, value
from tests.support.event_action import SEALER, a_brand, a_handler
from tests.support.event_action import a_request as an_event
from tests.support.site_world import SHORT, FakeSite, a_fake_site, a_log_in

HOST = "site.example"
SITE = {"hosts": (HOST, "other.example")}


class World:
    """One process's worth of the action, and what stands around it."""

    def __init__(self, pool: Pool, sandbox: Sandbox, site: FakeSite) -> None:
        self.pool = pool
        self.sandbox = sandbox
        self.site = site
        self.book = BrandBook()
        self.members: SiteMembers
        self.http: aiohttp.ClientSession

    async def brand(self, **changes: Any) -> None:
        async with transaction(self.pool) as connection:
            await brands.apply(connection, a_brand(**{"site": SITE} | changes), SEALER)
            await self.book.refresh(connection)

    async def log_in(self, host: str = HOST, **user: object) -> Member:
        """As whoever the site says from now on."""
        self.site.user |= user
        return (await self.members.member(host, a_log_in())).member

    async def token(self, email: str, **more: object) -> dict[str, str]:
        url = self.sandbox.doors()["identityTokenUrl"]
        async with self.http.post(url, json={"email": email} | more) as answer:
            assert answer.status == 200
            tokens: dict[str, str] = await answer.json()
            return tokens

    async def rows(self) -> int:
        count: int = await value(self.pool, "SELECT count(*) FROM site_members")
        return count


@asynccontextmanager
async def a_world(pool: Pool, sandbox: Sandbox) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        world = World(pool, sandbox, await stack.enter_async_context(a_fake_site()))
        await world.brand()
        world.http = await stack.enter_async_context(aiohttp.ClientSession())
        identity = await stack.enter_async_context(IdentityClient(sandbox.identity_policy()))
        tokens = await stack.enter_async_context(IdentityTokens(sandbox.identity_policy()))
        sites = HostSites(SHORT)
        stack.push_async_callback(sites.close)
        world.members = SiteMembers(
            pool,
            world.book,
            Newcomers(pool, identity),
            sites,
            tokens,
            identity,
            SitePolicy(world.site.base + "/{host}", "api"),
        )
        yield world


@pytest_asyncio.fixture
async def world(pool: Pool, sandbox: Sandbox) -> AsyncIterator[World]:
    async with a_world(pool, sandbox) as world:
        yield world


# --- whose site ---------------------------------------------------------------------------------


async def test_a_host_names_its_brand_and_a_disabled_brands_nobody(world: World) -> None:
    assert world.members.brand_of(HOST).address == BRAND
    for host in ("", "example", "www.site.example", "shop.example"):
        with pytest.raises(SiteUnknown):
            world.members.brand_of(host)
        with pytest.raises(SiteUnknown):
            await world.members.member(host, a_log_in())
    assert world.site.asked == []

    await value(
        world.pool, "UPDATE brands SET disabled_at = now(), revision = nextval('brand_revisions')"
    )
    async with session(world.pool) as connection:
        await world.book.refresh(connection)
    with pytest.raises(SiteUnknown):
        world.members.brand_of(HOST)


async def test_each_host_is_asked_at_its_own_address(world: World) -> None:
    one, other = await world.log_in(HOST), await world.log_in("other.example")

    assert world.site.asked == [
        "/site.example/api/wp/v2/users/me?context=edit",
        "/other.example/api/wp/v2/users/me?context=edit",
    ]
    assert (one.host, other.host, one.wallet) == (HOST, "other.example", other.wallet)
    assert await world.rows() == 2


# --- who it is ----------------------------------------------------------------------------------


async def test_a_member_has_the_wallet_that_his_events_have(
    world: World, database_url: str, sandbox: Sandbox
) -> None:
    async with a_handler(database_url, sandbox, a_brand(site=SITE)) as handler:
        event = await handler.record(an_event("ann@Site.example"))

    member = await world.log_in()

    assert (member.wallet, member.brand_id, member.site_user_id) == (event.wallet, BRAND, 42)
    assert (member.username, member.subject) == ("ann", None)
    assert member.user_id == await value(world.pool, "SELECT id FROM users")


async def test_a_member_who_comes_first_is_no_new_user_of_a_later_event(
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


async def test_a_known_member_is_not_written_again_nor_asked_for(world: World) -> None:
    member = await world.log_in()
    world.sandbox.faults.order("identity", Fault(times=1_000, status=503))
    writes = await value(world.pool, "SELECT xmin::text FROM site_members")

    assert await world.log_in() == member
    assert await world.log_in(email="ANN@SITE.example") == member
    assert await value(world.pool, "SELECT xmin::text FROM site_members") == writes
    with pytest.raises(IdentityUnavailable):
        await world.log_in(id=43, email="ben@site.example")
    assert await world.rows() == 1


async def test_a_crowd_of_first_log_ins_is_one_member(world: World) -> None:
    found = await asyncio.gather(*(world.log_in() for _ in range(10)))
    assert len(set(found)) == 1
    assert await world.rows() == 1


async def test_a_new_name_is_taken_over(world: World) -> None:
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
async def test_a_name_is_kept_as_far_as_a_page_can_show_it(
    world: World, username: str, shown: str
) -> None:
    assert (await world.log_in(username=username)).username == shown
    assert (await world.log_in()).username == shown


async def test_another_e_mail_address_has_another_wallet(world: World) -> None:
    one = await world.log_in()
    other = await world.log_in(email="ben@site.example")

    assert other.wallet == address_of((await world.token("ben@site.example"))["walletAddress"])
    assert (other.wallet != one.wallet, other.user_id != one.user_id) == (True, True)
    assert await world.log_in(email="ann@site.example") == one
    assert await world.rows() == 1


@pytest.mark.parametrize(
    "email", ["", "ann", "@", "ann@", "a\x00n@site.example", "a" * 300 + "@site.example"]
)
async def test_without_a_usable_e_mail_address_there_is_no_wallet(world: World, email: str) -> None:
    with pytest.raises(NoEmailAddress, match="no usable e-mail address"):
        await world.log_in(email=email)
    assert await world.rows() == 0
    assert await value(world.pool, "SELECT count(*) FROM users") == 0


async def test_who_has_taken_his_address_away_has_no_wallet_any_more(world: World) -> None:
    await world.log_in()
    with pytest.raises(NoEmailAddress):
        await world.log_in(email="")


@pytest.mark.parametrize("email", ["\u212aen@site.example", "ken@shop\u212a.example"])
async def test_an_address_that_is_anothers_only_in_lower_case_has_no_wallet(
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


async def test_without_credentials_nobody_is_asked(world: World) -> None:
    for credentials in (HostCredentials(), HostCredentials(cookie=a_log_in().cookie)):
        with pytest.raises(NotLoggedIn):
            await world.members.member(HOST, credentials)
    assert world.site.asked == []


# --- whose wallet -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["identityToken", "accessToken"])
async def test_the_own_token_links_the_own_wallet(world: World, kind: str) -> None:
    member = await world.log_in()
    tokens = await world.token("ann@site.example")

    linked = await world.members.link(member, tokens[kind])

    assert (linked.wallet, linked.subject) == (member.wallet, tokens["subject"])
    assert await world.log_in() == linked


@pytest.mark.parametrize("kind", ["identityToken", "accessToken"])
async def test_anothers_token_links_his_wallet(world: World, kind: str) -> None:
    member = await world.log_in()
    tokens = await world.token("ben@site.example")

    linked = await world.members.link(member, tokens[kind])

    assert (linked.wallet, linked.subject) == (
        address_of(tokens["walletAddress"]),
        tokens["subject"],
    )
    assert linked.user_id == member.user_id
    assert await world.log_in() == linked
    own = await world.token("ann@site.example")
    back = await world.members.link(linked, own["identityToken"])
    assert (back.wallet, back.subject) == (member.wallet, own["subject"])


async def test_a_linked_member_is_linked_to_no_third_wallet(world: World) -> None:
    """Else he would check in, and claim what is free, once with each of many."""
    member = await world.log_in()
    ben = await world.token("ben@site.example")
    linked = await world.members.link(member, ben["identityToken"])
    with pytest.raises(LinkRefused, match="another wallet already"):
        await world.members.link(linked, (await world.token("cid@site.example"))["identityToken"])
    assert await world.log_in() == linked
    assert await world.members.link(linked, ben["identityToken"]) == linked


async def test_a_token_that_lists_the_members_address_leads_it_to_the_linked_wallet(
    world: World,
) -> None:
    member = await world.log_in()
    tokens = await world.token("ben@site.example", links=[{"email": "ann@site.example"}])

    linked = await world.members.link(member, tokens["identityToken"])

    home = address_of(tokens["walletAddress"])
    assert linked.wallet == home != member.wallet
    assert await value(world.pool, "SELECT wallet FROM users") == home


async def test_a_link_ends_with_the_e_mail_address_that_it_was_made_under(world: World) -> None:
    member = await world.log_in()
    await world.members.link(member, (await world.token("ann@site.example"))["identityToken"])

    other = await world.log_in(email="ben@site.example")
    again = await world.log_in(email="ann@site.example")

    assert (other.subject, again.subject, again.wallet) == (None, None, member.wallet)


async def test_a_bad_token_links_nothing(world: World) -> None:
    member = await world.log_in()
    expired = await world.token("ann@site.example", expiresIn=-1)
    foreign = await world.token("ann@site.example", claims={"aud": "another"})
    for token in ("", "rubbish", "a.b.c", expired["identityToken"], foreign["accessToken"]):
        with pytest.raises(LinkRefused, match="not valid"):
            await world.members.link(member, token)
    assert await world.log_in() == member


async def test_a_user_without_a_wallet_links_nothing(world: World) -> None:
    member = await world.log_in()
    nobody = await world.token("ann@site.example", claims={"sub": "did:privy:nobody"})
    with pytest.raises(LinkRefused, match="no wallet"):
        await world.members.link(member, nobody["accessToken"])
    assert await world.log_in() == member


async def test_a_link_fails_once_the_member_has_another_address(world: World) -> None:
    member = await world.log_in()
    other = await world.log_in(email="ben@site.example")
    token = (await world.token("ann@site.example"))["identityToken"]
    with pytest.raises(LinkRefused, match="try again"):
        await world.members.link(member, token)
    assert await world.log_in() == other


async def test_a_balance_is_what_the_index_says(world: World) -> None:
    member = await world.log_in()
    assert await world.members.balance_of(member.wallet) == 0
    await value(
        world.pool, "INSERT INTO balances (wallet, amount) VALUES ($1, 10^27)", member.wallet
    )
    assert await world.members.balance_of(member.wallet) == 10**27
    assert await world.members.balance_of(Address(bytes(20))) == 0


async def test_no_log_holds_an_address_a_cookie_or_a_token(world: World) -> None:
    with capture_logs() as logs:
        log_in = a_log_in()
        found: LoggedIn = await world.members.member(HOST, log_in)
        tokens = await world.token("ann@site.example")
        await world.members.link(found.member, tokens["identityToken"])
        with pytest.raises(LinkRefused):
            await world.members.link(found.member, tokens["identityToken"] + "x")
    events = [entry["event"] for entry in logs]
    assert (events.count("member.met"), events.count("member.linked")) == (1, 1)
    said = str(logs).lower()
    for secret in ("ann@", str(log_in.cookie).lower(), tokens["identityToken"].lower()):
        assert secret not in said
