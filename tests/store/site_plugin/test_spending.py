"""The sums that a site session's spending is decided on: whose rows they count, and whose not."""

from uuid import UUID, uuid4

import pytest_asyncio
from msgspec.structs import replace

from ltzd.rules.site_plugin.spending import Allowance, PotAmounts, SpendingRecord
from ltzd.store.database import Pool, session, transaction
from ltzd.store.site_plugin import redemptions, spending
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.redemptions import NewSiteRedemption
from ltzd.store.site_plugin.spending import SpendingAccount
from ltzd.values import LTZ
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.sites.members import checked_in, insert_earnings, insert_member, linked, mint

WALLET, OTHER_WALLET, OTHER_BRAND = a_wallet(0xA1), a_wallet(0xA2), a_wallet(0xC)
ANN = Member(BRAND, "site.example", 1, "ann", uuid4(), WALLET, None)
OTHERS = (
    replace(ANN, site_user_id=2, user_id=uuid4()),
    replace(ANN, host="other.example", user_id=uuid4()),
    replace(ANN, brand_id=OTHER_BRAND, user_id=uuid4()),
    replace(ANN, site_user_id=3, wallet=OTHER_WALLET, user_id=uuid4()),
)
BOB, AT_OTHER_SITE, AT_OTHER_BRAND, WITH_OTHER_WALLET = OTHERS


@pytest_asyncio.fixture(autouse=True)
async def members(pool: Pool) -> None:
    for member in (ANN, *OTHERS):
        await insert_member(pool, member)


async def account(pool: Pool, member: Member = ANN) -> SpendingAccount:
    async with session(pool) as connection:
        read = await spending.read_account(connection, member)
    assert read is not None
    return read


def a_redemption(member: Member, price: int) -> NewSiteRedemption:
    return NewSiteRedemption(
        id=uuid4(),
        brand=member.brand_id,
        wallet=member.wallet,
        perk_id=uuid4(),
        name="Free coffee",
        category="drinks",
        collection_id=7,
        item_id=None,
        price=price,
        confirmation_code=uuid4().hex,
    )


async def spend(pool: Pool, member: Member, earned: int, given: int = 0, by_link: int = 0) -> UUID:
    """Inserts a redemption that the pots pay with so many LTZ."""
    payment = PotAmounts(earned * LTZ, given * LTZ, by_link * LTZ)
    new, link = a_redemption(member, payment.total), (await account(pool, member)).link
    async with transaction(pool) as connection:
        await redemptions.insert(connection, new)
        await spending.write_charge(connection, new.id, member, payment, link)
    return new.id


async def charge(pool: Pool, redemption: UUID) -> tuple[PotAmounts, UUID | None]:
    async with session(pool) as connection:
        return await spending.read_charge(connection, redemption)


async def claim_milestone(
    pool: Pool, member: Member, own_ltz: int, *, days: int = 7, mined: bool = True
) -> None:
    reward = uuid4()
    await value(
        pool,
        "WITH owed AS (INSERT INTO rewards (id, kind, brand_id, wallet, ltz, earned_on) "
        "VALUES ($1, 4, $2, $3, 100, '2026-01-01')) "
        "INSERT INTO milestone_claims "
        "(brand_id, wallet, days, ltz, reward_id, host, site_user_id, own_ltz) "
        "VALUES ($2, $3, $7, 100, $1, $4, $5, $6)",
        reward,
        member.brand_id,
        member.wallet,
        member.host,
        member.site_user_id,
        own_ltz,
        days,
    )
    if mined:
        await mint(pool, reward)


async def test_earned_is_what_was_minted_for_this_member_in_this_wallet(pool: Pool) -> None:
    await checked_in(pool, ANN, 10, own_ltz=8)
    await checked_in(pool, ANN, 1_000, mined=False)
    await claim_milestone(pool, ANN, 30)
    await claim_milestone(pool, BOB, 100, days=14, mined=False)
    await claim_milestone(pool, BOB, 100, days=28)
    await claim_milestone(pool, AT_OTHER_SITE, 100, days=56)
    await claim_milestone(pool, AT_OTHER_BRAND, 100)
    for other, ltz in zip(OTHERS, (100, 200, 400, 800), strict=True):
        await checked_in(pool, other, ltz)

    ledger = (await account(pool)).ledger
    assert ledger == SpendingRecord(earned=38 * LTZ, given_in_all=310 * LTZ)
    assert (await account(pool, BOB)).ledger.earned == 200 * LTZ

    await value(
        pool,
        "UPDATE site_members SET wallet = $1 WHERE (brand_id, host, site_user_id) = ($2, $3, $4)",
        OTHER_WALLET,
        ANN.brand_id,
        ANN.host,
        ANN.site_user_id,
    )
    assert (await account(pool)).ledger.earned == 0


async def test_given_is_what_the_brand_gave_or_sold_to_the_wallet(pool: Pool) -> None:
    await insert_earnings(pool, BRAND, WALLET, 5, bought=20)
    await insert_earnings(pool, OTHER_BRAND, WALLET, 100)
    await insert_earnings(pool, BRAND, OTHER_WALLET, 200)
    assert (await account(pool)).ledger == SpendingRecord(given_in_all=25 * LTZ)


async def test_spent_is_what_sessions_of_the_brands_sites_have_spent_of_the_wallet(
    pool: Pool,
) -> None:
    await spend(pool, ANN, 1, 2)
    for other, ltz in zip(OTHERS, (10, 20, 100, 200), strict=True):
        await spend(pool, other, ltz, ltz)
    assert (await account(pool)).ledger == SpendingRecord(
        spent_of_earned=1 * LTZ, spent_in_all=63 * LTZ
    )


async def test_the_brands_ltz_have_paid_a_redemption_without_pots(pool: Pool) -> None:
    old = a_redemption(ANN, 7 * LTZ)
    async with session(pool) as connection:
        await redemptions.insert(connection, old)
    assert (await account(pool)).ledger == SpendingRecord(spent_in_all=7 * LTZ)
    assert await charge(pool, old.id) == (PotAmounts(), None)


async def test_a_charge_names_the_link_that_pays_a_part_of_it(pool: Pool) -> None:
    await linked(pool, ANN, 50)
    link = (await account(pool)).link
    assert link is not None
    paid = PotAmounts(1 * LTZ, 2 * LTZ, 4 * LTZ)
    assert await charge(pool, await spend(pool, ANN, 1, 2, 4)) == (paid, link.id)
    assert await charge(pool, await spend(pool, ANN, 3)) == (PotAmounts(3 * LTZ), None)


async def test_an_account_is_of_a_member_with_its_user_and_wallet(pool: Pool) -> None:
    own = await account(pool)
    assert own.is_of(ANN)
    assert not own.is_of(replace(ANN, wallet=OTHER_WALLET))
    assert not own.is_of(replace(ANN, user_id=BOB.user_id))


async def test_what_did_not_end_in_a_perk_is_not_spent(pool: Pool) -> None:
    await linked(pool, ANN, 50)
    failed, lost = await spend(pool, ANN, 1, 2, 4), await spend(pool, ANN, 1, 2, 4)
    await spend(pool, ANN, 10, 20, 40)
    assert (await account(pool)).ledger == SpendingRecord(
        spent_of_earned=12 * LTZ,
        spent_in_all=36 * LTZ,
        allowance=Allowance(50 * LTZ, 48 * LTZ),
    )
    for redemption, end in (
        (failed, "state = 'failed', failure = 'Sold out.'"),
        (lost, "state = 'reversed', completed_at = now(), reversed_at = now()"),
    ):
        await value(pool, f"UPDATE site_redemptions SET {end} WHERE id = $1", redemption)
    assert (await account(pool)).ledger == SpendingRecord(
        spent_of_earned=10 * LTZ,
        spent_in_all=30 * LTZ,
        allowance=Allowance(50 * LTZ, 40 * LTZ),
    )


async def test_an_allowance_is_charged_by_its_own_link_and_day(pool: Pool) -> None:
    await linked(pool, ANN, 50)
    await linked(pool, BOB, 60)
    yesterday = await spend(pool, ANN, 0, 0, 7)
    await value(
        pool, "UPDATE site_redemptions SET link_day = link_day - 1 WHERE id = $1", yesterday
    )
    await spend(pool, ANN, 0, 0, 5)
    await spend(pool, ANN, 3)
    await spend(pool, BOB, 0, 0, 9)
    assert (await account(pool)).ledger.allowance == Allowance(50 * LTZ, 5 * LTZ)
    assert (await account(pool, BOB)).ledger.allowance == Allowance(60 * LTZ, 9 * LTZ)


async def test_an_address_is_proven_by_its_user_or_by_a_token_that_showed_it(pool: Pool) -> None:
    assert not (await account(pool)).address.is_proven
    await value(pool, "INSERT INTO address_proofs VALUES ($1, 'x')", f"{BOB.user_id}@mail.example")
    await value(pool, "UPDATE users SET proven_by = 'x' WHERE id = $1", AT_OTHER_SITE.user_id)
    proven = [(await account(pool, each)).address.is_proven for each in (ANN, *OTHERS)]
    assert proven == [False, True, True, False, False]
