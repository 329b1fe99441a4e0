"""Perks redeemed at a site, on real rows and contracts: exactly once, under crashes and races."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import uuid4

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.actions.site_plugin import redemptions as module
from ltzd.actions.site_plugin.redemptions import PerkOffer, RedeemedPerk
from ltzd.chain.contracts import contract_abi
from ltzd.concurrency import work_slots
from ltzd.errors import RedemptionRefused, Unavailable, ValidationFailed
from ltzd.rules.brands.configuration import Perk
from ltzd.store.site_plugin import redemption_payments
from ltzd.store.site_plugin.members import Member
from ltzd.values import LTZ, hex_of
from tests.support.chain.contracts import Contracts as Deployed
from tests.support.chain.mint_world import true
from tests.support.relays.lanes import a_plan, a_relay, row_states, write
from tests.support.rows.core import a_wallet, value
from tests.support.sites.members import linked
from tests.support.sites.redemptions import CODE, Process, Sites, code_of, refusal_of
from tests.support.waiting import until


@pytest_asyncio.fixture
async def by_hand(deployed: Deployed) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """The chain mines only on request."""
    await deployed.rpc.call("evm_setAutomine", False)
    yield lambda: deployed.rpc.call("evm_mine")
    await deployed.rpc.call("evm_setAutomine", True)
    await deployed.rpc.call("evm_mine")


# --- outcomes ---------------------------------------------------------------------------------


async def test_free_perks_priced_perks_and_items_are_owned_by_the_wallet_once_answered(
    sites: Sites,
) -> None:
    perks = [await sites.collection(), await sites.collection(30), await sites.item(50)]
    ann = await sites.member(100)
    async with sites.relaying():
        answers = [await sites.redeem(ann, perk) for perk in perks]
    assert len({code_of(answer) for answer in answers}) == 3
    assert [answer.redemption.price // LTZ for answer in answers] == [0, 30, 50]
    assert {(answer.redemption.name, answer.redemption.category) for answer in answers} == {
        ("Free coffee", "drinks")
    }
    assert [await sites.has(ann, perk) for perk in perks] == [1, 1, 1]
    assert await sites.balance(ann) == 20
    assert await sites.states() == ["done"] * 3


async def test_ten_concurrent_requests_are_one_redemption_and_a_minute_later_another(
    sites: Sites,
) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    async with sites.relaying():
        answers = await asyncio.gather(*(sites.redeem(ann, perk) for _ in range(10)))
        (code,) = {code_of(answer) for answer in answers}
        assert (await sites.has(ann, perk), await sites.balance(ann)) == (1, 70)
        await sites.minutes_pass(1)
        assert code_of(await sites.redeem(ann, perk)) != code
    assert (await sites.has(ann, perk), await sites.balance(ann)) == (2, 40)


async def test_two_perks_requested_concurrently_are_redeemed_one_after_the_other(
    sites: Sites,
) -> None:
    perks = [await sites.collection(30), await sites.item(50)]
    ann = await sites.member(100)
    async with sites.relaying():
        answers = await asyncio.gather(*(sites.redeem(ann, perk) for perk in perks))
    assert len({code_of(answer) for answer in answers}) == 2
    assert await sites.balance(ann) == 20
    assert await sites.states() == ["done", "done"], "no permit was signed in vain"


class Slot:
    is_free = False

    def release(self) -> None:
        self.is_free = True


async def test_a_request_that_waits_for_another_of_its_wallet_has_given_its_slot_back(
    sites: Sites,
) -> None:
    """Otherwise one member who repeats a request holds the slots of all members of the site."""
    perk, ann, slot = await sites.collection(), await sites.member(), Slot()

    async def request() -> RedeemedPerk:
        work_slots.hold(slot)
        return await sites.redeem(ann, perk)

    async with sites.relaying():
        async with sites.first.context.waiters.user_lock(ann.wallet):
            waiting = asyncio.create_task(request())
            await until(lambda: true(slot.is_free))
        code_of(await waiting)


async def test_two_processes_that_sign_the_same_permit_nonce_both_redeem(sites: Sites) -> None:
    perks = [await sites.collection(30), await sites.collection(50)]
    ann, other = await sites.member(100), await sites.process()
    sites.wallets.together = asyncio.Barrier(2)
    async with sites.relaying():
        answers = await asyncio.gather(
            sites.redeem(ann, perks[0]), sites.redeem(ann, perks[1], other)
        )
    assert [await sites.has(ann, perk) for perk in perks] == [1, 1]
    assert await sites.balance(ann) == 20
    codes = {code_of(answer) for answer in answers}
    assert {code for state, code in await sites.rows() if state == "done"} == codes


async def test_of_two_processes_one_redeems_and_both_return_the_code(sites: Sites) -> None:
    perk, ann, other = await sites.collection(30), await sites.member(100), await sites.process()
    sites.wallets.together = asyncio.Barrier(2)
    async with sites.relaying():
        first, same = await asyncio.gather(sites.redeem(ann, perk), sites.redeem(ann, perk, other))
    assert code_of(first) == code_of(same)
    assert (await sites.has(ann, perk), await sites.balance(ann)) == (1, 70)


async def test_a_redemption_that_is_not_mined_in_time_is_pending_and_gives_its_code_later(
    sites: Sites, by_hand: Callable[[], Awaitable[object]]
) -> None:
    await by_hand()
    async with sites.relaying():
        made = asyncio.create_task(sites.collection())
        await until(lambda: is_done(made, by_hand))
        perk, ann = await made, await sites.member()
        hurried = await sites.process(wait_seconds=0.4)
        pending = await until(lambda: three_pending(sites, ann, perk, hurried))
        assert await sites.states() == ["open"]
        await by_hand()
        answer = await sites.redeem(ann, perk)
    assert code_of(answer) == pending[0].redemption.confirmation_code
    assert await sites.has(ann, perk) == 1


async def test_a_pending_redemption_is_joined_by_its_member_with_another_wallet(
    sites: Sites, by_hand: Callable[[], Awaitable[object]]
) -> None:
    """A link or a proof has given the member another wallet since; nothing is paid twice."""

    async def perk_and_members() -> tuple[Perk, Member, Member]:
        return await sites.collection(30), await sites.member(100), await sites.member(100)

    await by_hand()
    async with sites.relaying():
        made = asyncio.create_task(perk_and_members())
        await until(lambda: is_done(made, by_hand))
        perk, ann, other = await made
        hurried = await sites.process(wait_seconds=0.4)
        pending = await until(lambda: three_pending(sites, ann, perk, hurried))
        moved = await given_wallet_of(sites, ann, other)
        joined = await sites.redeem(moved, perk, hurried)
        await by_hand()
        answer = await sites.redeem(moved, perk)
    assert joined.is_pending
    assert code_of(answer) == pending[0].redemption.confirmation_code
    assert await sites.states() == ["done"]
    assert (await sites.balance(ann), await sites.balance(other)) == (70, 100)


async def test_an_unsent_redemption_of_the_members_former_wallet_gives_way_to_one_of_the_new_wallet(
    sites: Sites,
) -> None:
    perk, ann, other = (
        await sites.collection(30),
        await sites.member(100),
        await sites.member(100, given=100),
    )
    with pytest.raises(Unavailable, match="No process serves a relay wallet"):
        await sites.redeem(ann, perk)
    moved = await given_wallet_of(sites, ann, other)
    async with sites.relaying():
        code_of(await sites.redeem(moved, perk))
    assert await sites.states() == ["failed", "done"]
    assert (await sites.balance(ann), await sites.balance(other)) == (100, 70)


async def given_wallet_of(sites: Sites, member: Member, other: Member) -> Member:
    """The member, who stands for the other member's user from now on."""
    await value(
        sites.pool,
        "UPDATE site_members SET user_id = $1, wallet = $2 "
        "WHERE brand_id = $3 AND host = $4 AND site_user_id = $5",
        *(other.user_id, other.wallet, member.brand_id, member.host, member.site_user_id),
    )
    return replace(member, user_id=other.user_id, wallet=other.wallet)


async def three_pending(
    sites: Sites, member: Member, perk: Perk, hurried: Process
) -> list[RedeemedPerk]:
    """Concurrent requests; empty if the lane has not signed within the process's wait."""
    answers = await asyncio.gather(
        *(sites.redeem(member, perk, hurried) for _ in range(3)), return_exceptions=True
    )
    redeemed = [answer for answer in answers if isinstance(answer, RedeemedPerk)]
    assert all(isinstance(answer, RedeemedPerk | Unavailable) for answer in answers), answers
    assert all(answer.is_pending for answer in redeemed)
    return redeemed if len(redeemed) == 3 else []


async def is_done(task: "asyncio.Future[Any]", mine: Callable[[], Awaitable[object]]) -> bool:
    await mine()
    return task.done()


async def test_a_code_that_is_taken_is_drawn_again(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    perk, members = await sites.collection(), [await sites.member() for _ in range(2)]
    drawn = [b"\x01" * 16, b"\x01" * 16, b"\x02" * 16]
    monkeypatch.setattr(module, "token_bytes", lambda _count: drawn.pop(0))
    for member in members:
        with pytest.raises(Unavailable, match="No process serves a relay wallet"):
            await sites.redeem(member, perk)
    assert len({code for _, code in await sites.rows()}) == 2
    assert not drawn


# --- crashes ----------------------------------------------------------------------------------

STAGES: dict[str, Callable[[Process], tuple[object, str]]] = {
    "the row is written": lambda process: (process.context.waiters, "user_idle"),
    "the permit is signed": lambda process: (process.relayer, "send"),
    "the relay is written": lambda process: (process.context.waiters, "settled"),
    "it is mined": lambda _process: (redemption_payments, "finish"),
}


@pytest.mark.parametrize("stage", STAGES)
async def test_a_repeated_request_finishes_the_redemption_of_a_crashed_process(
    sites: Sites, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    perk = await (sites.item(30) if "permit" in stage else sites.collection(30))
    ann, reached = await sites.member(100), asyncio.Event()

    async def never(*_arguments: object) -> NoReturn:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with sites.relaying():
        with monkeypatch.context() as patch:
            target, name = STAGES[stage](sites.first)
            patch.setattr(target, name, never)
            dying = asyncio.create_task(sites.redeem(ann, perk))
            await reached.wait()
            dying.cancel()
            await asyncio.wait({dying})
        ((state, code),) = await sites.rows()
        answer = await sites.redeem(ann, perk, await sites.process())
    assert (state, code_of(answer)) == ("open", code)
    assert (await sites.has(ann, perk), await sites.balance(ann)) == (1, 70)
    assert await sites.states() == ["done"]


async def test_a_redemption_paid_on_chain_is_done_even_if_its_relay_was_deleted(
    sites: Sites,
) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    with pytest.raises(Unavailable, match="No process serves a relay wallet"):
        await sites.redeem(ann, perk)
    ((_, code),) = await sites.rows()
    await value(
        sites.pool,
        "INSERT INTO perk_claims SELECT '', 0, 1, '', wallet, collection_id, 1, price, 1, "
        "decode(replace(id::text, '-', '') || repeat('00', 16), 'hex') FROM site_redemptions",
    )
    assert code_of(await sites.redeem(ann, perk)) == code
    assert await sites.states() == ["done"]


async def test_a_sent_redemption_is_joined_after_its_idempotency_key_was_cleared(
    sites: Sites, by_hand: Callable[[], Awaitable[object]]
) -> None:
    async with sites.relaying():
        made = asyncio.create_task(sites.collection())
        await until(lambda: is_done(made, by_hand))
        perk, ann = await made, await sites.member()
        dying = asyncio.create_task(sites.redeem(ann, perk))

        async def is_sent() -> bool:
            return await row_states(sites.pool) == ["sent"]

        await until(is_sent)
        dying.cancel()
        await asyncio.wait({dying})
        await value(sites.pool, "UPDATE relays SET idempotency_key = NULL")
        joined = asyncio.create_task(sites.redeem(ann, perk, await sites.process()))
        await asyncio.sleep(0)
        await until(lambda: is_settled(joined, by_hand))
    code_of(await joined)
    assert (await sites.has(ann, perk), await row_states(sites.pool)) == (1, ["mined"])


async def is_settled(
    task: "asyncio.Task[RedeemedPerk]", mine: Callable[[], Awaitable[object]]
) -> bool:
    await mine()
    return task.done()


async def test_a_redemption_interrupted_by_an_outage_is_finished_by_the_next_request(
    sites: Sites,
) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    with pytest.raises(Unavailable, match="No process serves a relay wallet"):
        await sites.redeem(ann, perk)
    async with sites.relaying():
        sites.wallets.is_away = True
        with pytest.raises(Unavailable, match="away"):
            await sites.redeem(ann, perk)
        sites.wallets.is_away = False
        ((state, code),) = await sites.rows()
        assert (state, code_of(await sites.redeem(ann, perk))) == ("open", code)
    assert await sites.balance(ann) == 70


async def test_a_redemption_abandoned_for_ten_minutes_fails_and_frees_the_budget(
    sites: Sites,
) -> None:
    lost, wanted = await sites.collection(60), await sites.collection(50)
    ann = await sites.member(100)
    with pytest.raises(Unavailable):
        await sites.redeem(ann, lost)
    async with sites.relaying():
        assert "only 40 LTZ" in await refusal_of(sites.redeem(ann, wanted))
        await sites.minutes_pass(11)
        code_of(await sites.redeem(ann, wanted))
    assert await sites.states() == ["failed", "done"]
    assert (await sites.has(ann, lost), await sites.balance(ann)) == (0, 50)


# --- refusals ---------------------------------------------------------------------------------


async def test_an_unavailable_perk_is_refused_before_anything_is_written(sites: Sites) -> None:
    ann = await sites.member(10)
    gone = await sites.item(1, stock=1)
    async with sites.relaying():
        code_of(await sites.redeem(await sites.member(1), gone))
        before = await sites.sent()
        for perk, words in (
            (await sites.collection(11), "costs 11 LTZ, but your wallet holds 10 LTZ"),
            (gone, "sold out"),
            (await sites.collection(is_active=False), "no longer offered"),
            (await sites.collection(signs=True), "your own wallet"),
            (await sites.collection(brand=a_wallet(9)), "no longer offered"),
            (sites.nothing(), "no longer offered"),
            (Perk(id=str(uuid4()), name="Unlisted", category="none", item_id=1), "no such perk"),
        ):
            assert words in await refusal_of(sites.redeem(ann, perk))
        assert await sites.sent() == before
    assert await sites.states() == ["done"]


async def test_a_wallet_cannot_redeem_a_perk_more_often_than_max_per_user(sites: Sites) -> None:
    perk, ann = await sites.collection(each=1), await sites.member()
    async with sites.relaying():
        code_of(await sites.redeem(ann, perk))
        await sites.minutes_pass(1)
        assert "as often as it allows" in await refusal_of(sites.redeem(ann, perk))
    assert await sites.has(ann, perk) == 1


async def test_a_session_spends_the_brands_ltz_and_a_linked_owner_all_ltz(
    sites: Sites,
) -> None:
    cheap, dear = await sites.collection(30), await sites.collection(50)
    ann = await sites.member(100, given=60)
    async with sites.relaying():
        code_of(await sites.redeem(ann, cheap))
        assert "only 30 LTZ" in await refusal_of(sites.redeem(ann, dear))
        assert await sites.balance(ann) == 70
        await linked(sites.pool, ann)
        code_of(await sites.redeem(replace(ann, subject="did:ann"), dear))
    assert (await sites.has(ann, dear), await sites.balance(ann)) == (1, 20)
    subjects = [speaker and speaker.subject for speaker in sites.conditions.speakers]
    assert list(dict.fromkeys(subjects)) == [
        None,
        "did:ann",
    ]


async def test_a_redemption_refused_after_it_began_frees_the_budget_and_can_begin_again(
    sites: Sites,
) -> None:
    perk, ann = await sites.collection(60), await sites.member(60)
    async with sites.relaying():
        before = await sites.sent()
        sites.wallets.keeps_no_key = True
        assert "its own key" in await refusal_of(sites.redeem(ann, perk))
        sites.wallets.keeps_no_key = False
        sites.conditions.refusal = ValidationFailed("x", constraint="ltz_balance")
        assert "conditions" in await refusal_of(sites.redeem(ann, perk))
        assert await sites.sent() == before, "no nonce of the operator's was used"
        sites.conditions.refusal = None
        code_of(await sites.redeem(ann, perk))
    assert await sites.states() == ["failed", "done"]


async def test_of_two_concurrent_redemptions_that_exceed_the_balance_one_is_refused(
    sites: Sites,
) -> None:
    perk, other = await sites.collection(40), await sites.collection(40)
    ann = await sites.member(60, given=100)
    async with sites.relaying():
        answers = await asyncio.gather(
            *(refused_or_code(sites, ann, text) for text in (perk, other))
        )
    (sentence,) = [text for text in answers if not CODE.fullmatch(text)]
    assert sentence == "This perk costs 40 LTZ, but your wallet holds 20 LTZ."
    assert (sorted(await sites.states()), await sites.balance(ann)) == (["done", "failed"], 20)


async def test_every_waiting_request_gets_the_reason_of_a_refused_redemption(sites: Sites) -> None:
    perk, ann = await sites.collection(60), await sites.member(60)
    sites.wallets.keeps_no_key = True
    user_lock = sites.first.context.waiters.user_lock(ann.wallet)
    async with sites.relaying():
        async with user_lock:
            requests = [asyncio.create_task(refusal_of(sites.redeem(ann, perk))) for _ in range(5)]
            # Nothing else tells that all five have found the redemption before it is refused.
            await until(lambda: true(len(user_lock._waiters or ()) == 5))
        refusals = await asyncio.gather(*requests)
    assert len(set(refusals)) == 1
    assert await sites.states() == ["failed"]


async def test_a_price_that_rises_after_the_redemption_began_is_not_paid(sites: Sites) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    with pytest.raises(Unavailable):
        await sites.redeem(ann, perk)  # no wallet sends it
    update = (perk.collection_id, 20 * LTZ, 0, 0, True)
    await sites.deployed.send(sites.deployed.registrar, "PerkNFT", "updateCollection", *update)
    async with sites.relaying():
        assert "price" in await refusal_of(sites.redeem(ann, perk))
        assert (await sites.redeem(ann, perk)).redemption.price == 20 * LTZ
    assert await sites.balance(ann) == 80


@pytest.mark.parametrize("change", ["it has left", "it is another collection now"])
async def test_a_redemption_of_a_perk_that_has_left_the_brands_file_is_not_sent(
    sites: Sites, change: str
) -> None:
    perk, ann = await sites.collection(30), await sites.member(100)
    with pytest.raises(Unavailable):
        await sites.redeem(ann, perk)  # no wallet sends it
    other = await sites.collection(20)
    sites.perks.clear()
    if change == "it has left":
        async with sites.relaying():
            assert "no such perk" in await refusal_of(sites.redeem(ann, perk))
        assert (await sites.states(), await sites.balance(ann)) == (["failed"], 100)
        return
    sites.perks.append(perk.model_copy(update={"collection_id": other.collection_id}))
    async with sites.relaying():
        code_of(await sites.redeem(ann, perk))
    assert (await sites.has(ann, perk), await sites.has(ann, other)) == (0, 1)
    assert (await sites.states(), await sites.balance(ann)) == (["failed", "done"], 80)


async def test_a_redemption_above_the_hourly_relay_limit_is_refused_with_the_minutes_to_wait(
    sites: Sites,
) -> None:
    perk, ann = await sites.collection(), await sites.member()
    start = datetime.now(UTC)
    plans = [a_plan(bytes((number,)), ann.wallet) for number in range(35)]
    await write(sites.pool, *(a_relay(plan, window_start=start) for plan in plans))
    assert "try again in 60 minutes" in await refusal_of(sites.redeem(ann, perk))
    assert await sites.states() == [], "refused attempts leave no rows"


ByHand = Callable[[], Awaitable[object]]


@dataclass
class LostRace:
    """Of two members who redeem the last one in the same block, `late` is refused."""

    perk: Perk
    late: Member
    more: bytes
    """A signed transaction that raises the supply, for another branch."""


async def mined(by_hand: ByHand, waiting: Awaitable[Any]) -> Any:
    """Mines blocks until the answer is there."""
    task = asyncio.ensure_future(waiting)
    await until(lambda: is_done(task, by_hand))
    return await task


async def lose_a_race(sites: Sites, deployed: Deployed, by_hand: ByHand, ltz: int) -> LostRace:
    perk = await mined(by_hand, sites.collection(ltz, most=1))
    members = [await mined(by_hand, sites.member(100)) for _ in range(2)]
    update = (perk.collection_id, ltz * LTZ, 0, 0, True)
    call = contract_abi.encode_call("PerkNFT", "updateCollection", *update)
    more = await deployed.sign(deployed.registrar, deployed.at["PerkNFT"], call)
    requests = [asyncio.create_task(refused_or_code(sites, member, perk)) for member in members]

    async def both_are_sent() -> bool:
        return await row_states(sites.pool) == ["sent", "sent"]

    await until(both_are_sent)
    answers = await mined(by_hand, asyncio.gather(*requests))
    (late,) = [answer for answer in answers if not CODE.fullmatch(answer)]
    assert late == "This perk is sold out."
    return LostRace(perk, members[answers.index(late)], more)


async def test_a_redemption_that_fails_on_chain_is_reported_and_fails_once_that_is_final(
    sites: Sites, deployed: Deployed, by_hand: ByHand
) -> None:
    async with sites.relaying():
        race = await lose_a_race(sites, deployed, by_hand, 30)
        assert sorted(await sites.states()) == ["done", "open"]
        again = await refusal_of(sites.redeem(race.late, race.perk))
        assert again == "This perk is sold out."
        assert sorted(await sites.states()) == ["done", "open"]
        assert await sites.sent() == await deployed.node.nonce(deployed.relay.address)

        async def is_final() -> bool:
            await deployed.rpc.call("anvil_mine", hex(70))
            states = await value(sites.pool, "SELECT array_agg(state) FROM transactions")
            return sorted(states) == ["confirmed", "reverted"]

        await until(is_final)
        await refusal_of(sites.redeem(race.late, race.perk))
    assert sorted(await sites.states()) == ["done", "failed"]
    assert (await sites.balance(race.late), await sites.spendable(race.late)) == (100, 100)


async def test_a_reverted_redemption_that_a_reorg_lets_succeed_is_paid_once_and_gives_its_code(
    sites: Sites, deployed: Deployed, by_hand: ByHand
) -> None:
    """In the new branch the brand raises the supply before the two claims."""
    async with sites.relaying():
        race = await lose_a_race(sites, deployed, by_hand, 30)
        await refusal_of(sites.redeem(race.late, race.perk))
        head = (await deployed.node.head_and_final())[0].number
        first = await value(sites.pool, "SELECT min(block_number) FROM transactions")
        await deployed.rpc.call("anvil_reorg", head - first + 1, [[hex_of(race.more), 0]])

        async def gives_its_code() -> bool:
            answer = await mined(by_hand, refused_or_code(sites, race.late, race.perk))
            return CODE.fullmatch(answer) is not None

        await until(gives_its_code)
        assert await sites.has(race.late, race.perk) == 1
        assert await sites.balance(race.late) == 70
    assert await sites.states() == ["done", "done"]


async def refused_or_code(sites: Sites, member: Member, perk: Perk) -> str:
    try:
        redeemed = await sites.redeem(member, perk)
    except RedemptionRefused as refusal:
        return refusal.message
    return "pending" if redeemed.is_pending else code_of(redeemed)


# --- lists ------------------------------------------------------------------------------------


async def test_listed_perks_are_the_brands_own_indexed_perks(sites: Sites) -> None:
    shown = [await sites.collection(), await sites.item(7)]
    shut = [await sites.collection(3, is_active=False), await sites.collection(signs=True)]
    await sites.collection(brand=a_wallet(9))
    sites.nothing()
    sold_out = await sites.item(2, stock=0)

    async def listed() -> list[PerkOffer]:
        perks = await sites.first.redemptions.perks(sites.brand)
        return perks if len(perks) == 5 else []

    assert await until(listed) == [
        PerkOffer(shown[0], 0, is_available=True),
        PerkOffer(shown[1], 7 * LTZ, is_available=True),
        PerkOffer(shut[0], 3 * LTZ, is_available=False),
        PerkOffer(shut[1], 0, is_available=False),
        PerkOffer(sold_out, 2 * LTZ, is_available=False),
    ]
