"""The LTZ that a site session may spend, on real rows and contracts: its own, and only once."""

import asyncio
from collections.abc import Awaitable
from typing import NoReturn

import pytest
from msgspec.structs import replace

from ltzd.actions.site_plugin.redemptions import RedeemedPerk
from ltzd.errors import DatabaseUnavailable, RedemptionRefused, Unavailable
from ltzd.rules.brands.configuration import Perk
from ltzd.store.database import Pool, session
from ltzd.store.site_plugin import check_ins
from ltzd.store.site_plugin import links as site_links
from ltzd.store.site_plugin import members as site_members
from ltzd.store.site_plugin import spending as site_spending
from ltzd.store.site_plugin.members import Member
from ltzd.values import LTZ
from tests.support.rows.core import BRAND, value
from tests.support.sites.members import (
    checked_in,
    expire,
    insert_earnings,
    insert_member,
    linked,
    mint,
)
from tests.support.sites.redemptions import CODE, Sites, code_of, refusal_of
from tests.support.waiting import until


async def refused_for(sites: Sites, member: Member, perk: Perk) -> str:
    sentence = await refusal_of(sites.redeem(member, perk))
    assert "ink your wallet" in sentence
    return sentence


async def as_address_of(sites: Sites, thief: Member, victim: Member) -> Member:
    """The thief's session after he entered the victim's e-mail address at the site."""
    email = await value(sites.pool, "SELECT email_key FROM users WHERE id = $1", victim.user_id)
    met = replace(thief, user_id=victim.user_id, wallet=victim.wallet)
    async with session(sites.pool) as connection:
        return await site_members.save(connection, met, email)


async def test_a_member_who_enters_a_strangers_email_address_cannot_spend_the_strangers_ltz(
    sites: Sites,
) -> None:
    """WordPress changes a user's e-mail address at once and without confirmation."""
    sites.verified_emails = False
    perk, victim, thief = (
        await sites.collection(10),
        await sites.member(100),
        await sites.member(50),
    )
    await checked_in(sites.pool, thief, 50)
    assert await sites.spendable(thief) == 50

    session = await as_address_of(sites, thief, victim)

    assert session.wallet == victim.wallet
    assert await sites.spendable(session) == 0
    assert "only 0 LTZ" in await refused_for(sites, session, perk)
    # A verified site that reports this address as unconfirmed allows no spending either.
    sites.verified_emails = True
    session = replace(session, email_confirmed=False)
    assert await sites.spendable(session) == 0
    assert "only 0 LTZ" in await refused_for(sites, session, perk)
    assert await sites.states() == []


async def test_ltz_that_a_member_earned_can_be_spent_only_from_the_wallet_that_earned_them(
    sites: Sites,
) -> None:
    """They do not follow him to another wallet, and are spendable again when he returns."""
    sites.verified_emails = False
    perk, victim, thief = (
        await sites.collection(10),
        await sites.member(100),
        await sites.member(50),
    )
    await checked_in(sites.pool, thief, 50)
    away = await as_address_of(sites, thief, victim)
    await checked_in(sites.pool, away, 8)
    assert await sites.spendable(away) == 8
    assert "only 8 LTZ" in await refused_for(sites, away, perk)
    back = await as_address_of(sites, away, thief)
    assert await sites.spendable(back) == 50


async def test_a_strangers_streak_and_milestones_are_not_a_members_own(sites: Sites) -> None:
    sites.verified_emails = False
    victim, thief = await sites.member(100), await sites.member()
    for _ in range(6):
        await checked_in(sites.pool, victim, 10)
    session_of_thief = await as_address_of(sites, thief, victim)
    # The seventh day's multiplier and the milestone rest on the victim's streak.
    await checked_in(sites.pool, session_of_thief, 20, own_ltz=10)
    async with session(sites.pool) as connection:
        assert await check_ins.own_best(connection, session_of_thief) == 1
        assert await check_ins.own_best(connection, victim) == 6
    assert await sites.spendable(session_of_thief) == 10


@pytest.mark.parametrize(
    ("verified", "confirmed", "proven", "spendable"),
    [
        (True, None, False, 60),
        (True, False, False, 0),
        (False, None, False, 0),
        (False, True, False, 60),
        (True, True, True, 0),
        (False, True, True, 0),
    ],
)
async def test_the_brands_ltz_are_spendable_only_with_a_confirmed_and_unproven_email_address(
    sites: Sites, verified: bool, confirmed: bool | None, proven: bool, spendable: int
) -> None:
    ann = replace(await sites.member(100, given=60), email_confirmed=confirmed)
    sites.verified_emails = verified
    if proven:
        await value(sites.pool, "UPDATE users SET proven_by = 'x' WHERE id = $1", ann.user_id)
    assert await sites.spendable(ann) == spendable
    perk = await sites.collection(60)
    if not spendable:
        assert "only 0 LTZ" in await refused_for(sites, ann, perk)
        return
    async with sites.relaying():
        code_of(await sites.redeem(ann, perk))


async def test_an_address_that_a_token_proved_before_its_first_event_needs_a_link(
    sites: Sites,
) -> None:
    ann = await sites.member(100, given=60)
    sites.verified_emails = True
    assert await sites.spendable(ann) == 60
    await value(
        sites.pool,
        "INSERT INTO address_proofs (email_key, person) SELECT email_key, 'x' FROM users "
        "WHERE id = $1",
        ann.user_id,
    )

    assert await sites.spendable(ann) == 0
    assert "only 0 LTZ" in await refused_for(sites, ann, await sites.collection(60))


async def test_a_linked_member_cannot_spend_more_than_the_links_daily_allowance(
    sites: Sites,
) -> None:
    dear, cheap = await sites.collection(40), await sites.collection(20)
    ann = await sites.member(100, given=0)
    await linked(sites.pool, ann, 50)
    async with sites.relaying():
        assert await sites.spendable(ann) == 50
        code_of(await sites.redeem(ann, dear))
        assert await sites.spendable(ann) == 10
        sentence = await refused_for(sites, ann, cheap)
        assert "only 10 LTZ now" in sentence
        await value(sites.pool, "UPDATE site_redemptions SET link_day = link_day - 1")
        code_of(await sites.redeem(ann, cheap))
    assert await sites.balance(ann) == 40
    charged = await rows(sites.pool, "SELECT from_earned, from_given, from_linked / 10^18")
    assert charged == [(0, 0, 40), (0, 0, 20)]


async def rows(pool: Pool, select: str) -> list[tuple[int, ...]]:
    async with session(pool) as connection:
        rows = await connection.fetch(f"{select} FROM site_redemptions ORDER BY created_at")
    return [tuple(int(number or 0) for number in row) for row in rows]


@pytest.mark.parametrize("how", ["expired", "ended", "another address"])
async def test_a_link_that_ended_after_the_log_in_pays_for_nothing(sites: Sites, how: str) -> None:
    perk = await sites.collection(40)
    ann = await sites.member(100, given=0)
    await linked(sites.pool, ann)
    stale = replace(ann, subject="did:owner")
    match how:
        case "expired":
            await expire(sites.pool)
        case "ended":
            async with session(sites.pool) as connection:
                await site_links.end_member_link(connection, ann)
        case _:
            await as_address_of(sites, ann, await sites.member())
    async with sites.relaying():
        sentence = await refusal_of(sites.redeem(stale, perk))
    assert "only 0 LTZ" in sentence or "has just changed" in sentence
    assert await sites.balance(ann) == 100


async def test_after_a_link_to_another_wallet_has_ended_no_redemption_begins_in_that_wallet(
    sites: Sites,
) -> None:
    perk, ann, owner = await sites.collection(40), await sites.member(), await sites.member(100)
    await linked(sites.pool, ann, wallet=owner.wallet)
    stale = replace(ann, wallet=owner.wallet, subject="did:owner")
    assert await sites.spendable(stale) == 100
    async with session(sites.pool) as connection:
        await site_links.end_member_link(connection, ann)
    assert await sites.spendable(stale) == 0
    assert "has just changed" in await refusal_of(sites.redeem(stale, perk))


async def test_a_redemption_concurrent_with_the_end_of_its_link_waits_and_is_refused(
    sites: Sites,
) -> None:
    """The redemption reads the link only after the transaction that ends it."""
    perk, ann = await sites.collection(40), await sites.member(100, given=0)
    await linked(sites.pool, ann)
    async with session(sites.pool) as holder:
        holding = holder.transaction()
        await holding.start()
        await site_links.end_member_link(holder, ann)
        redeeming = asyncio.create_task(refusal_of(sites.redeem(ann, perk)))
        await until(lambda: waits_for_a_lock(sites.pool))
        await holding.commit()
    assert "only 0 LTZ" in await redeeming
    assert await sites.states() == []


async def waits_for_a_lock(pool: Pool) -> bool:
    blocked = await value(
        pool,
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )
    return int(blocked) > 0


async def test_concurrent_members_of_one_wallet_spend_no_ltz_twice(sites: Sites) -> None:
    """Each member alone may spend the amount, which the wallet holds only once."""
    perks = [await sites.collection(30) for _ in range(4)]
    ann = await sites.member(100, given=50)
    same = await insert_member(
        sites.pool, replace(ann, site_user_id=999, user_id=ann.user_id, host="other.example")
    )
    other = await sites.process()
    async with sites.relaying():
        answers = await asyncio.gather(
            *(
                outcome_of(sites.redeem(member, perk, process))
                for perk, member, process in zip(
                    perks,
                    (ann, same, ann, same),
                    (sites.first, other, other, sites.first),
                    strict=True,
                )
            )
        )
    assert len([answer for answer in answers if CODE.fullmatch(answer)]) == 1
    assert await sites.balance(ann) == 70


async def outcome_of(redeeming: Awaitable[RedeemedPerk]) -> str:
    try:
        return code_of(await redeeming)
    except RedemptionRefused as refusal:
        return refusal.message


async def test_another_session_with_the_same_wallet_does_not_get_the_members_code(
    sites: Sites,
) -> None:
    perk, ann, thief = await sites.collection(30), await sites.member(100), await sites.member()
    async with sites.relaying():
        code = code_of(await sites.redeem(ann, perk))
        session_of_thief = await as_address_of(sites, thief, ann)
        session_of_thief = replace(session_of_thief, email_confirmed=False)
        assert "only 0 LTZ" in await refused_for(sites, session_of_thief, perk)
        assert code_of(await sites.redeem(ann, perk)) == code


async def test_a_reward_that_is_not_mined_or_was_undone_cannot_be_spent(sites: Sites) -> None:
    sites.verified_emails = False
    ann = await sites.member(100, given=0)
    await checked_in(sites.pool, ann, 30, mined=False)
    assert await sites.spendable(ann) == 0
    reward = await value(sites.pool, "SELECT id FROM rewards")
    await mint(sites.pool, reward)
    await insert_earnings(sites.pool, BRAND, ann.wallet, 30)
    assert await sites.spendable(ann) == 30
    await value(
        sites.pool,
        "UPDATE rewards SET mint_block_number = NULL, mint_block_hash = NULL, "
        "mint_transaction_hash = NULL",
    )
    await value(sites.pool, "UPDATE earnings SET ltz = ltz - 30")
    assert await sites.spendable(ann) == 0


async def test_a_failed_redemption_releases_the_amount_of_each_source(sites: Sites) -> None:
    perk, ann = await sites.collection(80), await sites.member(100, given=20)
    await checked_in(sites.pool, ann, 30)
    await linked(sites.pool, ann, 40)
    before = await sites.spendable(ann)
    assert before == 30 + 20 + 40
    async with sites.relaying():
        sites.wallets.keeps_no_key = True
        await refusal_of(sites.redeem(ann, perk))
        assert await sites.spendable(ann) == before
        sites.wallets.keeps_no_key = False
        code_of(await sites.redeem(ann, perk))
    assert (
        await rows(
            sites.pool, "SELECT from_earned / 10^18, from_given / 10^18, from_linked / 10^18"
        )
    )[1] == (30, 20, 30)
    assert await sites.spendable(ann) == 10


async def test_a_redemption_whose_charge_was_not_written_does_not_exist(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)

    async def fail(*_arguments: object) -> NoReturn:
        raise ConnectionResetError

    with monkeypatch.context() as patch:
        patch.setattr(site_spending, "write_charge", fail)
        with pytest.raises(DatabaseUnavailable):
            await sites.redeem(ann, perk)
    assert await sites.states() == []


async def test_a_price_above_max_cost_is_refused_before_anything_is_written(
    sites: Sites,
) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    async with sites.relaying():
        sentence = await refusal_of(sites.redeem(ann, perk, max_cost=29 * LTZ))
        assert sentence == "The price is now 30 LTZ."
        assert await sites.states() == []
        code = code_of(await sites.redeem(ann, perk, max_cost=30 * LTZ))
        # A redemption that was just paid is joined regardless of `max_cost`.
        assert code_of(await sites.redeem(ann, perk, max_cost=0)) == code


@pytest.mark.parametrize("how", ["expired", "ended", "linked anew", "proven"])
async def test_an_unsent_redemption_fails_once_the_member_may_no_longer_spend(
    sites: Sites, how: str
) -> None:
    """The session begins a redemption that is not sent, and repeats the request later."""
    perk, ann = await sites.collection(40), await sites.member(100, given=how == "proven" and 100)
    if how != "proven":
        await linked(sites.pool, ann)
    with pytest.raises(Unavailable, match="No process serves a relay wallet"):
        await sites.redeem(ann, perk)
    assert await sites.states() == ["open"]
    match how:
        case "expired":
            await expire(sites.pool)
        case "ended":
            async with session(sites.pool) as connection:
                await site_links.end_member_link(connection, ann)
        case "linked anew":
            await linked(sites.pool, ann, 10)
        case _:
            await value(sites.pool, "UPDATE users SET proven_by = 'x' WHERE id = $1", ann.user_id)
    async with sites.relaying():
        await refusal_of(sites.redeem(ann, perk))
    assert (await sites.balance(ann), await sites.states()) == (100, ["failed"])


async def test_an_open_redemption_is_not_sent_for_a_max_cost_below_its_price(
    sites: Sites,
) -> None:
    perk, ann = await sites.collection(40), await sites.member(100)
    with pytest.raises(Unavailable, match="No process serves a relay wallet"):
        await sites.redeem(ann, perk)
    async with sites.relaying():
        sentence = await refusal_of(sites.redeem(ann, perk, max_cost=39 * LTZ))
        assert sentence == "The price is now 40 LTZ."
        assert (await sites.balance(ann), await sites.states()) == (100, ["open"])
        code_of(await sites.redeem(ann, perk, max_cost=40 * LTZ))
    assert (await sites.balance(ann), await sites.states()) == (60, ["done"])


async def test_an_open_redemption_at_a_former_price_makes_way_for_one_at_the_lower_price(
    sites: Sites,
) -> None:
    perk, ann = await sites.collection(40), await sites.member(100)
    with pytest.raises(Unavailable, match="No process serves a relay wallet"):
        await sites.redeem(ann, perk)
    update = (perk.collection_id, 30 * LTZ, 0, 0, True)
    await sites.deployed.send(sites.deployed.registrar, "PerkNFT", "updateCollection", *update)
    await until(
        lambda: value(
            sites.pool,
            "SELECT price = 30 * 10::numeric ^ 18 FROM collections WHERE collection_id = $1",
            perk.collection_id,
        )
    )
    async with sites.relaying():
        sentence = await refusal_of(sites.redeem(ann, perk, max_cost=30 * LTZ))
        assert sentence.startswith("The price of this perk has just changed.")
        code_of(await sites.redeem(ann, perk, max_cost=30 * LTZ))
    assert (await sites.balance(ann), await sites.states()) == (70, ["failed", "done"])
