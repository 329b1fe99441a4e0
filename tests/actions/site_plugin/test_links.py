"""Links by code: one use, one member, an expiry and an allowance, under races and failures."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace
from structlog.testing import capture_logs

from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.site_plugin import links as links_action
from ltzd.actions.site_plugin.check_ins import CheckInResult, CheckIns
from ltzd.actions.site_plugin.links import SiteLinks
from ltzd.dev.sandbox import Sandbox
from ltzd.errors import (
    CheckInRefused,
    DatabaseUnavailable,
    LinkRefused,
    NotFound,
    RateLimited,
    TooManyAttempts,
    ValidationFailed,
)
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.site_plugin.links import CODE_LENGTH, MOST_OPEN_CODES, MOST_WRONG_CODES
from ltzd.store.database import Connection, Pool, open_pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.site_plugin import links as site_links
from ltzd.store.site_plugin import spending as site_spending
from ltzd.store.site_plugin.members import Member
from ltzd.store.wakeups import WakeupHub
from ltzd.values import LTZ, Address, address_of
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.rows.core import BRAND, value
from tests.support.sites.log_ins import HOST, SITE, World, a_world
from tests.support.sites.members import checked_in, expire
from tests.support.surfaces.event_action import SEALER
from tests.support.waiting import until

ANN, BEN, CID = "ann@site.example", "ben@site.example", "cid@site.example"
WRONG = "00000000"


@pytest_asyncio.fixture
async def world(pool: Pool, sandbox: Sandbox) -> AsyncIterator[World]:
    async with a_world(pool, sandbox) as world:
        await world.brand(site=SITE | {"checkin_reward": 10})
        yield world


@asynccontextmanager
async def another_process(world: World, url: str) -> AsyncIterator[SiteLinks]:
    pool = await open_pool(url)
    yield SiteLinks(pool, world.members, world.users, SEALER)
    pool.terminate()


async def allowance(world: World, member: Member) -> int | None:
    """Returns the allowance in whole LTZ, or None without a link."""
    async with session(world.pool) as connection:
        account = await site_spending.read_account(connection, member)
    assert account is not None
    return None if account.link is None else account.link.allowance.per_day // LTZ


async def outcomes(*asks: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*asks, return_exceptions=True)


async def wallet_of(world: World, email: str) -> Address:
    return address_of((await world.token(email))["walletAddress"])


# --- whose wallet -----------------------------------------------------------------------------


async def test_a_code_of_the_member_himself_links_his_own_wallet_with_an_allowance(
    world: World,
) -> None:
    member = await world.log_in()
    code = await world.code(ANN, 40)
    assert (code.host, code.daily_allowance, len(code.code)) == (HOST, 40, CODE_LENGTH)
    left = code.expires_at - datetime.now(UTC)
    assert timedelta(minutes=9) < left < timedelta(minutes=11)

    linked = await world.links.link(member, f" {code.code[:4].lower()}-{code.code[4:]} ")

    assert (linked.wallet, linked.daily_allowance) == (member.wallet, 40)
    again = await world.log_in()
    assert (again.wallet, again.subject) == (member.wallet, (await world.token(ANN))["subject"])
    assert await allowance(world, again) == 40
    lasts = await value(world.pool, "SELECT expires_at - linked_at FROM site_links")
    assert abs(lasts - timedelta(days=180)) < timedelta(minutes=1)


async def test_a_code_of_another_owner_links_that_owners_wallet(world: World) -> None:
    member = await world.log_in()
    code = await world.code(BEN)

    linked = await world.links.link(member, code.code)

    assert linked.wallet == await wallet_of(world, BEN) != member.wallet
    after = await world.log_in()
    assert (after.wallet, after.user_id) == (linked.wallet, member.user_id)


async def test_a_member_who_was_linked_to_one_foreign_wallet_cannot_be_linked_to_another(
    world: World,
) -> None:
    """Otherwise he could check in and claim free perks once with each of many wallets."""
    member = await world.log_in()
    await world.links.link(member, (await world.code(BEN)).code)
    third = await world.code(CID)
    for end in (False, True):
        if end:
            await world.links.end(member)
        with pytest.raises(LinkRefused, match=r"was linked.*that wallet's owner"):
            await world.links.link(await world.log_in(), third.code)

    await world.links.link(await world.log_in(), (await world.code(BEN)).code)
    own = await world.links.link(await world.log_in(), (await world.code(ANN)).code)
    assert own.wallet == member.wallet, "a member can always link his own wallet"
    assert len(await world.links.links_of(await owner(world, ANN))) == 1
    assert await world.links.links_of(await owner(world, BEN)) == []


async def owner(world: World, email: str) -> TokenUser:
    return await world.links.owner_of((await world.token(email))["accessToken"])


async def test_a_token_that_lists_the_members_address_migrates_his_user_to_the_linked_wallet(
    world: World,
) -> None:
    member = await world.log_in()
    code = await world.code(BEN, links=[{"email": ANN}])
    linked = await world.links.link(await world.log_in(), code.code)
    assert linked.wallet == await wallet_of(world, BEN) != member.wallet
    assert await value(world.pool, "SELECT wallet FROM users") == linked.wallet


async def test_an_owner_without_a_wallet_or_with_an_unknown_host_gets_no_code(
    world: World,
) -> None:
    with pytest.raises(ValidationFailed, match="no wallet"):
        await world.code(ANN, claims={"sub": "did:privy:nobody"})
    with pytest.raises(NotFound, match="No brand has a site"):
        await world.code(ANN, host="nobody.example")
    assert await value(world.pool, "SELECT count(*) FROM site_link_codes") == 0


# --- codes ------------------------------------------------------------------------------------


async def test_a_code_works_once_even_if_many_members_enter_it_concurrently(
    world: World, database_url: str
) -> None:
    members = [await world.log_in(id=n, email=f"m{n}@site.example") for n in range(1, 11)]
    code = await world.code(BEN)
    async with another_process(world, database_url) as other:
        processes = (world.links, other)
        results = await outcomes(
            *(processes[n % 2].link(member, code.code) for n, member in enumerate(members))
        )
    assert len([result for result in results if not isinstance(result, Exception)]) == 1
    assert {type(result) for result in results if isinstance(result, Exception)} == {LinkRefused}
    assert await value(world.pool, "SELECT count(*) FROM active_site_links") == 1


async def test_a_code_works_only_at_its_own_site_and_within_ten_minutes(world: World) -> None:
    elsewhere = await world.log_in("other.example")
    code = await world.code(ANN)
    with pytest.raises(LinkRefused, match="wrong, or has expired, or was used"):
        await world.links.link(elsewhere, code.code)

    member = await world.log_in()
    await value(
        world.pool, "UPDATE site_link_codes SET expires_at = now() - interval '1 millisecond'"
    )
    with pytest.raises(LinkRefused, match="expired"):
        await world.links.link(member, code.code)
    assert (await world.log_in()).subject is None


async def test_a_code_does_not_work_after_its_brand_lost_the_site(world: World) -> None:
    code = await world.code(ANN)
    await world.brand(site={"hosts": ("third.example",)})
    other = Address(bytes(19) + b"\x07")
    await world.brand(id="0x" + other.hex(), domains=("other-shop.example",))
    member = await world.log_in()
    assert member.brand_id == other
    with pytest.raises(LinkRefused):
        await world.links.link(member, code.code)


async def test_concurrent_requests_do_not_exceed_an_owners_limit_of_open_codes(
    world: World,
) -> None:
    tokens = await world.token(ANN)
    ann = await world.links.owner_of(tokens["accessToken"])
    results = await outcomes(*(world.links.new_code(ann, HOST, 1) for _ in range(20)))
    codes = [result.code for result in results if not isinstance(result, BaseException)]
    refusals = [result for result in results if isinstance(result, RateLimited)]
    assert len(set(codes)) == MOST_OPEN_CODES == 20 - len(refusals)
    assert {result.details["retryAfterSeconds"] for result in refusals} <= set(range(590, 602))
    with pytest.raises(RateLimited) as refusal:
        await world.links.new_code(ann, HOST, 1)
    left = "extract(epoch FROM min(expires_at) - clock_timestamp())::float8"
    left_seconds = await value(world.pool, f"SELECT {left} FROM site_link_codes")
    assert refusal.value.details["retryAfterSeconds"] >= left_seconds, "a repetition then succeeds"

    await value(world.pool, "UPDATE site_link_codes SET expires_at = now() - interval '1 second'")
    await world.links.new_code(ann, HOST, 1)
    assert await value(world.pool, "SELECT count(*) FROM site_link_codes") == 1, (
        "expired codes are deleted"
    )


async def test_a_member_who_is_gone_is_refused_and_the_code_is_left(world: World) -> None:
    member, code = await world.log_in(), await world.code(ANN)
    with pytest.raises(LinkRefused):
        await world.links.link(replace(member, site_user_id=member.site_user_id + 1), code.code)
    linked = await world.links.link(member, code.code)
    assert linked.daily_allowance == code.daily_allowance


async def test_the_database_holds_only_keyed_hashes_of_codes(world: World) -> None:
    code = (await world.code(ANN)).code
    kept = await value(world.pool, "SELECT code_hash FROM site_link_codes")
    dump = await value(world.pool, "SELECT string_agg(c::text, ' ') FROM site_link_codes AS c")
    assert code not in dump
    for plain in (code, code.lower(), HOST + code, BRAND.hex() + HOST + code):
        assert hashlib.sha256(plain.encode()).digest() != kept
    place = b"ltzd site_link_codes " + BRAND + HOST.encode() + b"\0" + code.encode()
    assert Sealer([b"\x99" * 32]).keyed_hash(place) != kept


async def test_a_code_works_after_a_rotation_of_the_master_key(world: World) -> None:
    member, code = await world.log_in(), await world.code(ANN)
    (old,) = SEALER._raw.values()
    for sealer, works in ((Sealer([b"\x77" * 32]), False), (Sealer([b"\x77" * 32, old]), True)):
        links = SiteLinks(world.pool, world.members, world.users, sealer)
        if works:
            await links.link(member, code.code)
        else:
            with pytest.raises(LinkRefused):
                await links.link(member, code.code)


async def test_a_failure_while_linking_does_not_use_up_the_code(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, code = await world.log_in(), await world.code(ANN)

    async def fail(*_arguments: object) -> None:
        raise ConnectionResetError

    for step in ("lock_member", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(site_links, step, fail)
            with pytest.raises(DatabaseUnavailable):
                await world.links.link(member, code.code)
        assert await allowance(world, member) is None
    await world.links.link(member, code.code)
    assert await allowance(world, member) == 500


async def test_a_link_whose_commit_is_unknown_is_told_to_the_next_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, code = await world.log_in(), await world.code(BEN, 40)

    @asynccontextmanager
    async def lost_at_commit(pool: Pool) -> AsyncIterator[Connection]:
        async with transaction(pool) as connection:
            yield connection
        raise DatabaseUnavailable("The database was lost")

    with monkeypatch.context() as patch:
        patch.setattr(links_action, "transaction", lost_at_commit)
        with pytest.raises(DatabaseUnavailable):
            await world.links.link(member, code.code)
    member = await world.log_in()

    with pytest.raises(LinkRefused):
        await world.links.link(await world.log_in(id=43, email=CID), code.code)
    member = await world.log_in(id=42, email=ANN)
    linked = await world.links.link(member, code.code)

    assert (linked.wallet, linked.daily_allowance) == (await wallet_of(world, BEN), 40)
    assert await value(world.pool, "SELECT count(*) FROM site_links") == 1
    tries = "SELECT failed_code_count FROM site_members WHERE site_user_id = 42"
    assert await value(world.pool, tries) == 0
    with pytest.raises(LinkRefused):
        await world.links.link(member, code.code)


@pytest.mark.parametrize("how", ["by the member", "by its date"])
async def test_a_code_that_stayed_after_its_link_was_made_makes_no_second_one(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    member, code = await world.log_in(), await world.code(BEN)

    async def fail(*_arguments: object) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as patch:
        patch.setattr(site_links, "delete_code", fail)
        await world.links.link(member, code.code)
    assert await value(world.pool, "SELECT count(*) FROM site_link_codes") == 1
    await end(world, await world.log_in(), how)

    with pytest.raises(LinkRefused):
        await world.links.link(await world.log_in(), code.code)

    assert (await world.log_in()).subject is None


# --- guessing ---------------------------------------------------------------------------------


async def test_of_fifty_concurrent_wrong_codes_in_two_processes_five_are_checked(
    world: World, database_url: str
) -> None:
    member = await world.log_in()
    code = await world.code(ANN)
    async with another_process(world, database_url) as other:
        results = await outcomes(
            *((world.links, other)[n % 2].link(member, f"{n:08d}") for n in range(50))
        )
    kinds = [type(result) for result in results]
    assert kinds.count(LinkRefused) == MOST_WRONG_CODES
    assert kinds.count(TooManyAttempts) == 50 - MOST_WRONG_CODES

    with pytest.raises(TooManyAttempts) as refused:
        await world.links.link(member, code.code)
    assert 1 <= refused.value.details["retryAfterSeconds"] <= 600  # type: ignore[operator]
    other_member = await world.log_in(id=43, email=BEN)
    with pytest.raises(LinkRefused):
        await world.links.link(other_member, WRONG)

    await value(
        world.pool,
        "UPDATE site_members SET failed_codes_since = failed_codes_since - interval '10 minutes'",
    )
    await world.links.link(member, code.code)


async def test_a_new_email_address_does_not_reset_the_wrong_code_limit(world: World) -> None:
    member = await world.log_in()
    for _ in range(MOST_WRONG_CODES):
        with pytest.raises(LinkRefused):
            await world.links.link(member, WRONG)
    changed = await world.log_in(email=BEN)
    with pytest.raises(TooManyAttempts):
        await world.links.link(changed, WRONG)


async def test_a_code_does_not_link_a_member_whose_address_has_changed_since_the_log_in(
    world: World,
) -> None:
    code = (await world.code(CID)).code
    before = await world.log_in()
    after = await world.log_in(email=BEN)
    with pytest.raises(LinkRefused, match="has just changed"):
        await world.links.link(before, code)
    assert await allowance(world, after) is None
    await world.links.link(after, code)


@pytest.mark.parametrize("text", ["", "x", "\x00", "\ud800", "0" * 10_000, "' OR 1 = 1"])
async def test_a_malformed_code_is_refused_as_wrong(world: World, text: str) -> None:
    member = await world.log_in()
    with pytest.raises(LinkRefused, match="wrong"):
        await world.links.link(member, text)


# --- how a link ends --------------------------------------------------------------------------

ENDS = ("by the member", "by the owner", "by its date", "by another address")


async def end(world: World, member: Member, how: str) -> None:
    match how:
        case "by the member":
            await world.links.end(member)
        case "by the owner":
            await world.links.end_at(await owner(world, BEN), HOST)
        case "by its date":
            await expire(world.pool)
        case _:
            await world.log_in(email=CID)


@pytest.mark.parametrize("how", ENDS)
async def test_an_ended_link_gives_no_wallet_and_no_allowance_at_once(
    world: World, how: str
) -> None:
    member = await world.log_in()
    await world.links.link(member, (await world.code(BEN)).code)
    linked = await world.log_in()
    assert await allowance(world, linked) == 500

    await end(world, linked, how)

    assert await allowance(world, linked) is None
    assert await world.links.links_of(await owner(world, BEN)) == []
    after = await world.log_in()
    own = await wallet_of(world, CID if how == "by another address" else ANN)
    assert (after.wallet, after.subject) == (own, None)


async def test_the_same_owner_can_link_again_after_a_link_has_ended(world: World) -> None:
    for _ in range(3):
        member = await world.log_in()
        await world.links.link(member, (await world.code(BEN)).code)
        await expire(world.pool)
    with pytest.raises(NotFound):
        await world.links.end_at(await owner(world, CID), HOST)
    await world.links.end(await world.log_in())
    await world.links.end(await world.log_in())


async def test_an_owner_who_ends_his_links_also_ends_his_codes_and_no_other_owners(
    world: World,
) -> None:
    ann = await world.log_in()
    other = await world.log_in(id=43, email=CID)
    await world.links.link(ann, (await world.code(BEN)).code)
    await world.links.link(other, (await world.code(CID)).code)
    unused = await world.code(BEN)
    elsewhere = await world.code(BEN, host="other.example")

    await world.links.end_at(await owner(world, BEN), HOST)

    assert await allowance(world, ann) is None
    assert await allowance(world, other) == 500
    with pytest.raises(LinkRefused):
        await world.links.link(await world.log_in(id=42, email=ANN), unused.code)
    with pytest.raises(NotFound):
        await world.links.end_at(await owner(world, BEN), HOST)
    there = await world.log_in("other.example", id=7, email=ANN)
    await world.links.link(there, elsewhere.code)


async def test_an_owner_who_ends_his_links_while_a_code_is_entered_has_no_link_afterwards(
    world: World, database_url: str
) -> None:
    for number in range(8):
        member = await world.log_in(id=100 + number, email=f"m{number}@site.example")
        code = await world.code(BEN)
        async with another_process(world, database_url) as other:
            ben = await owner(world, BEN)
            await outcomes(world.links.link(member, code.code), other.end_at(ben, HOST))
        assert await world.links.links_of(ben) == []


async def test_an_owner_sees_the_member_wallet_and_allowance_of_each_link(world: World) -> None:
    member = await world.log_in()
    await world.links.link(member, (await world.code(BEN, 40)).code)
    (link,) = await world.links.links_of(await owner(world, BEN))
    assert (link.host, link.username, link.daily_allowance) == (HOST, "ann", 40)
    assert link.wallet == await wallet_of(world, BEN)


# --- check-ins of a member with two wallets ---------------------------------------------------


async def rewards(world: World) -> int:
    return int(await value(world.pool, "SELECT count(*) FROM rewards WHERE kind = 3"))


def check_ins(world: World, url: str) -> CheckIns:
    capacity = MintCapacity(world.pool, FakeNode().node, CHAIN_ID, LTZ_AT)
    return CheckIns(world.pool, WakeupHub(url), world.brand_cache, capacity)


async def test_a_check_in_concurrent_with_a_link_is_one_check_in_a_day(
    world: World, database_url: str
) -> None:
    """The check-ins use the wallet before the link and, concurrently, the wallet after it."""
    doing = check_ins(world, database_url)
    before = await world.log_in()
    await checked_in(world.pool, before, 10)
    code = await world.code(BEN)

    async def links_and_checks_in() -> CheckInResult:
        linked = await world.links.link(before, code.code)
        return await doing.check_in(replace(before, wallet=linked.wallet, subject="x"))

    async with session(world.pool) as holder:
        holding = holder.transaction()
        await holding.start()
        # The locked streak of the wallet before the link blocks both transactions.
        await holder.execute("SELECT FROM streaks WHERE wallet = $1 FOR UPDATE", before.wallet)
        first = asyncio.create_task(doing.check_in(before))
        await until(lambda: is_over_or_waits(world, [first], 1))
        second = asyncio.create_task(links_and_checks_in())
        await until(lambda: is_over_or_waits(world, [second], 2))
        await holding.rollback()
    results = await asyncio.gather(first, second)

    assert [result.already_claimed for result in results] == [False, True]
    assert await rewards(world) == 2, "the one before, and one of today"


async def is_over_or_waits(world: World, tasks: list[Any], waiting: int) -> bool:
    if all(task.done() for task in tasks):
        return True
    blocked = await value(
        world.pool,
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )
    return int(blocked) >= waiting


async def test_concurrent_check_ins_around_a_link_are_one_a_day(
    world: World, database_url: str
) -> None:
    doing = check_ins(world, database_url)
    for number in range(6):
        before = await world.log_in(id=200 + number, email=f"m{number}@site.example")
        code = await world.code(f"owner{number}@site.example")
        owners = await wallet_of(world, f"owner{number}@site.example")
        after = replace(before, wallet=owners, subject="x")
        results = await outcomes(
            *(doing.check_in(before) for _ in range(3)),
            world.links.link(before, code.code),
            *(doing.check_in(after) for _ in range(3)),
        )
        answers = [result for result in results if isinstance(result, CheckInResult)]
        refusals = [result for result in results if isinstance(result, BaseException)]
        assert {type(result) for result in refusals} <= {CheckInRefused}
        assert [result.already_claimed for result in answers].count(False) <= 1
        assert await rewards(world) <= number + 1


async def test_repeated_linking_and_unlinking_allows_one_check_in_a_day(
    world: World, database_url: str
) -> None:
    doing = check_ins(world, database_url)
    for _ in range(3):
        await doing.check_in(await world.log_in())
        await world.links.link(await world.log_in(), (await world.code(BEN)).code)
        await doing.check_in(await world.log_in())
        await world.links.end(await world.log_in())
    assert await rewards(world) == 1


async def test_members_linked_to_one_wallet_share_one_check_in_a_day(
    world: World, database_url: str
) -> None:
    doing = check_ins(world, database_url)
    members = []
    for host, id_, email in ((HOST, 1, ANN), (HOST, 2, CID), ("other.example", 1, BEN)):
        member = await world.log_in(host, id=id_, email=email)
        await world.links.link(member, (await world.code(BEN, host=host)).code)
        members.append(await world.log_in(host))
    assert len({member.wallet for member in members}) == 1
    results = await outcomes(*(doing.check_in(member) for member in members))
    assert [result.already_claimed for result in results].count(False) == 1
    assert await rewards(world) == 1


async def test_a_member_at_two_hosts_earns_at_most_one_check_in_reward_a_day_for_each_host(
    world: World, database_url: str
) -> None:
    """He earns one reward while both sessions have the wallet of his address."""
    doing = check_ins(world, database_url)
    here, there = await world.log_in(), await world.log_in("other.example")
    assert here.wallet == there.wallet
    await doing.check_in(here)
    await doing.check_in(there)
    assert await rewards(world) == 1
    for _ in range(2):
        await world.links.link(
            await world.log_in("other.example"), (await world.code(BEN, host="other.example")).code
        )
        for host in (HOST, "other.example"):
            await doing.check_in(await world.log_in(host))
        await world.links.end(await world.log_in("other.example"))
    assert await rewards(world) == 2


async def test_no_log_holds_a_code_a_token_or_an_address(world: World) -> None:
    with capture_logs() as logs:
        member = await world.log_in()
        tokens = await world.token(ANN)
        ann = await world.links.owner_of(tokens["accessToken"])
        code = await world.links.new_code(ann, HOST, 5)
        with pytest.raises(LinkRefused):
            await world.links.link(member, WRONG)
        await world.links.link(member, code.code)
        await world.links.end_at(ann, HOST)
    events = [entry["event"] for entry in logs]
    assert {"site_link.made", "site_link.ended_by_owner"} <= set(events)
    logged = str(logs).lower()
    for secret in (code.code.lower(), WRONG, "ann@", tokens["accessToken"].lower()):
        assert secret not in logged
