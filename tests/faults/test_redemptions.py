"""Redemptions on running instances: charges agree with the chain under concurrency.

The seed of random moments is printed; LTZD_TEST_SEED repeats a run.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from ltzd.values import address_of, checksummed
from tests.support.instances.books import all_minted
from tests.support.instances.instance import Instance
from tests.support.instances.perks import (
    HOLDERS,
    REDEEM,
    Brand,
    Perks,
    assert_refused,
    perks_of,
    sent,
    signed,
)
from tests.support.instances.relayer import Answer
from tests.support.instances.shared import Instances
from tests.support.rows import perk_facts as perk_ledger
from tests.support.rows.core import a_wallet
from tests.support.rows.perk_facts import PerkLedger, token_of
from tests.support.surfaces.event_surface import an_event_surface
from tests.support.waiting import until

CHARGES = 3
MANY_CHARGES = 10
TOKENS = 1_000
OUTCOME_SECONDS = 30.0
TOO_OLD_SECONDS = 301
REDEEMED = {
    "success", "redemptionId", "collectionId", "tokenId", "holder", "chargesRedeemed",
    "chargesRemaining", "maxCharges", "transactionHash", "redeemedAt",
}  # fmt: skip


@pytest_asyncio.fixture
async def perks(instance: Instance) -> AsyncIterator[Perks]:
    """Perks on each kind of chain."""
    async with perks_of(instance) as perks:
        yield perks


@pytest_asyncio.fixture
async def tester_perks(instances: Instances) -> AsyncIterator[Perks]:
    """Perks on the tester chain, which mines the higher tip first; dev mode's anvil does not."""
    async with perks_of(await instances.of("tester")) as perks:
        yield perks


async def a_token(perks: Perks) -> int:
    return await perks.token(await perks.relays.user())


# Concurrency


async def test_twenty_redemptions_of_a_token_with_three_charges_succeed_three_times(
    perks: Perks,
) -> None:
    token = await a_token(perks)

    answers = await asyncio.gather(*(perks.redeem(token) for _ in range(20)))

    done = [answer for answer in answers if answer.status == 200]
    assert sorted(answer.body["chargesRemaining"] for answer in done) == [0, 1, 2]
    assert all(answer.body.keys() == REDEEMED for answer in done)
    assert len({answer.body["redemptionId"] for answer in done}) == CHARGES
    for answer in answers:
        if answer not in done:
            details = assert_refused(answer, 409, "NO_CHARGES_REMAINING")
            assert details["chargesRemaining"] >= 0
    assert await perks.charges(token) == 0
    shown = await perks.shown(token, chargesRemaining=0)
    assert (shown["chargesUsed"], shown["status"]) == (CHARGES, "exhausted")


async def test_two_clients_with_mixed_amounts_never_redeem_more_than_the_charges(
    perks: Perks,
) -> None:
    token = await perks.priced_token()
    amounts = [3, 1, 2, 4, 2, 1, 3, 5, 1, 1]

    async def client(mine: list[int]) -> list[Answer]:
        async with aiohttp.ClientSession() as http:
            requests = (perks.redemption(token, amount=amount) for amount in mine)
            url = perks.instance.base_url
            return await asyncio.gather(*(sent(http, url, each) for each in requests))

    first, second = await asyncio.gather(client(amounts[:5]), client(amounts[5:]))

    done = [answer.body["chargesRedeemed"] for answer in first + second if answer.status == 200]
    left = MANY_CHARGES - sum(done)
    assert await perks.charges(token) == left >= 0
    for answer in first + second:
        if answer.status != 200:
            details = assert_refused(answer, 409, "NO_CHARGES_REMAINING")
            assert left <= details["chargesRemaining"] < details["requested"]
    await perks.shown(token, chargesRemaining=left, chargesUsed=sum(done))


# Idempotency keys


def assert_processed(answers: Sequence[Answer], was_new: int) -> None:
    """Checks that all answers are of one redemption, and that `new` of them report it as new."""
    assert {answer.status for answer in answers} == {200}
    redemptions = [{**answer.body, "alreadyProcessed": True} for answer in answers]
    assert all(each == redemptions[0] for each in redemptions)
    assert sum("alreadyProcessed" not in answer.body for answer in answers) == was_new


async def test_a_key_redeems_once_in_sequential_and_in_concurrent_requests(
    tester_perks: Perks,
) -> None:
    token = await a_token(tester_perks)

    first = await tester_perks.redeem(token, idempotencyKey="till-1-0001")
    again = await tester_perks.redeem(token, idempotencyKey="till-1-0001", amount=1)
    crowd = await asyncio.gather(
        *(tester_perks.redeem(token, idempotencyKey="till-1-0002") for _ in range(10))
    )

    assert_processed([first, again], was_new=1)
    assert_processed(crowd, was_new=1)
    assert crowd[0].body["redemptionId"] != first.body["redemptionId"]
    assert await tester_perks.charges(token) == CHARGES - 2


async def test_a_key_with_another_body_is_refused_and_redeems_nothing(tester_perks: Perks) -> None:
    token, other = await a_token(tester_perks), await a_token(tester_perks)
    await tester_perks.redeem(token, idempotencyKey="till-2-0001")

    for which, changes in ((token, {"amount": 2}), (token, {"reference": "x"}), (other, {})):
        answer = await tester_perks.redeem(which, idempotencyKey="till-2-0001", **changes)
        assert_refused(answer, 409, "IDEMPOTENCY_KEY_REUSED")

    assert (await tester_perks.charges(token), await tester_perks.charges(other)) == (
        CHARGES - 1,
        CHARGES,
    )


async def test_equal_keys_of_two_brands_are_independent(tester_perks: Perks) -> None:
    token = await a_token(tester_perks)
    collection = await tester_perks.relays.collection(
        "--brand", tester_perks.other.id, "--charges", "2"
    )
    theirs = await tester_perks.token(await tester_perks.relays.user(), collection)

    ours = await tester_perks.redeem(token, idempotencyKey="till-3-0001")
    answer = await tester_perks.redeem(theirs, tester_perks.other, idempotencyKey="till-3-0001")

    assert (ours.status, answer.status) == (200, 200)
    assert "alreadyProcessed" not in answer.body
    assert (await tester_perks.charges(token), await tester_perks.charges(theirs)) == (
        CHARGES - 1,
        1,
    )


# Signatures


async def test_a_replayed_request_redeems_once_with_redis_and_without(tester_perks: Perks) -> None:
    token = await a_token(tester_perks)
    request = tester_perks.redemption(token)

    first = await tester_perks.send(request)
    again = await tester_perks.send(request)
    await tester_perks.relays.forget_addresses()
    flushed = await tester_perks.send(request)

    assert first.status == 200
    assert [assert_refused(each, 401, "UNAUTHORIZED") for each in (again, flushed)] == [None] * 2
    assert await tester_perks.charges(token) == CHARGES - 1


async def test_a_refused_request_cannot_be_sent_again(tester_perks: Perks) -> None:
    """Redeems at the moment at which the charges are indexed."""
    user = await tester_perks.relays.user()
    token, stranger = await tester_perks.token(user), await tester_perks.relays.user()
    request = tester_perks.redemption(token, userAddress=stranger.wallet)
    assert_refused(await tester_perks.send(request), 409, "HOLDER_CHANGED")
    await tester_perks.give(user.account, stranger.wallet, token)
    await tester_perks.shown(token, holder=stranger.wallet)
    await tester_perks.relays.forget_addresses()

    assert_refused(await tester_perks.send(request), 401, "UNAUTHORIZED")
    assert await tester_perks.charges(token) == CHARGES


async def test_concurrent_requests_of_the_same_bytes_redeem_once(tester_perks: Perks) -> None:
    token = await a_token(tester_perks)
    request = tester_perks.redemption(token)

    answers = await asyncio.gather(*(tester_perks.send(request) for _ in range(5)))

    assert sorted(answer.status for answer in answers) == [200, 401, 401, 401, 401]
    assert await tester_perks.charges(token) == CHARGES - 1


async def test_a_request_with_an_invalid_signature_redeems_nothing(
    tester_perks: Perks,
) -> None:
    token = await a_token(tester_perks)
    good = tester_perks.redemption(token)
    stale, future = (
        signed(tester_perks.brand, "POST", REDEEM, good.body, age_seconds=age)
        for age in (TOO_OLD_SECONDS, -TOO_OLD_SECONDS - 5)
    )
    tampered = replace(good, body=good.body.replace(b"{", b'{"amount": 3, ', 1))
    with_query = replace(good, target=f"{REDEEM}?amount=3")
    other_key = signed(tester_perks.brand, "POST", REDEEM, good.body, key=tester_perks.other.key)
    other_name = replace(good, headers={**good.headers, "X-LTZ-Brand-Id": tester_perks.other.id})
    nobody = Brand("0x" + "12" * 20, tester_perks.brand.key)

    for bad in (
        *(stale, future, tampered, with_query, other_key, other_name),
        signed(nobody, "POST", REDEEM, good.body),
        replace(good, headers={}),
    ):
        assert_refused(await tester_perks.send(bad), 401, "UNAUTHORIZED")
    assert_refused(
        await tester_perks.send(signed(tester_perks.other, "POST", REDEEM, good.body)),
        403,
        "VALIDATION_FAILED",
    )

    assert await tester_perks.charges(token) == CHARGES
    assert (await tester_perks.send(good)).status == 200, "an invalid request used the nonce"


async def test_a_signed_read_is_valid_once_and_only_for_its_own_query(
    tester_perks: Perks,
) -> None:
    token, other = await a_token(tester_perks), await a_token(tester_perks)
    request = tester_perks.token_request(token)
    elsewhere = replace(request, target=request.target.replace(str(token), str(other)))

    assert_refused(await tester_perks.send(elsewhere), 401, "UNAUTHORIZED")
    assert (await tester_perks.send(request)).status == 200
    assert_refused(await tester_perks.send(request), 401, "UNAUTHORIZED")
    assert_refused(
        await tester_perks.send(tester_perks.token_request(token, tester_perks.other)),
        403,
        "VALIDATION_FAILED",
    )


# Tokens that are sold


async def test_a_token_that_was_sold_is_redeemed_for_its_new_holder_only(perks: Perks) -> None:
    seller, buyer = await perks.relays.user(), await perks.relays.user()
    token = await perks.token(seller)
    assert (await perks.status(token))["holder"] == seller.wallet
    await perks.give(seller.account, buyer.wallet, token)

    late = await perks.redeem(token, userAddress=seller.wallet)
    await perks.shown(token, holder=buyer.wallet, chargesRemaining=CHARGES)
    later = await perks.redeem(token, userAddress=seller.wallet)
    right = await perks.redeem(token, userAddress=buyer.wallet)

    assert_refused(late, 409, "HOLDER_CHANGED")
    assert_refused(later, 409, "HOLDER_CHANGED")
    assert (right.status, right.body["holder"]) == (200, buyer.wallet)
    assert await perks.charges(token) == CHARGES - 1


@pytest.mark.parametrize("first", ["the sale", "a redemption"])
async def test_a_token_sold_during_redemptions_loses_only_the_charges_that_were_redeemed(
    tester_perks: Perks, first: str
) -> None:
    await all_minted(tester_perks.instance)
    seller, buyer = await tester_perks.relays.user(), await tester_perks.relays.user()
    token = await tester_perks.token(seller)
    chain, rpc = tester_perks.relays.chain, tester_perks.instance.rpc
    before = await chain.published()

    async def are_published(count: int) -> bool:
        return await chain.published() == before + count

    async def ask(count: int) -> asyncio.Task[Answer]:
        asking = asyncio.create_task(tester_perks.redeem(token, userAddress=seller.wallet))
        await until(lambda: are_published(count))
        return asking

    async with chain.mining_on_request():
        requests = [await ask(1)]
        if first == "a redemption":
            await rpc("evm_mine")
        requests.append(await ask(2))
        await chain.publish(
            seller.account, "PerkNFT", tester_perks.moving(seller.account, buyer.wallet, token)
        )
        await rpc("evm_mine")
        answers = await asyncio.gather(*requests)

    done = [answer for answer in answers if answer.status == 200]
    assert len(done) == (1 if first == "a redemption" else 0)
    for answer in answers:
        if answer not in done:
            assert_refused(answer, 409, "HOLDER_CHANGED")
    assert await tester_perks.charges(token) == CHARGES - len(done)
    shown = await tester_perks.shown(
        token, holder=buyer.wallet, chargesRemaining=CHARGES - len(done)
    )
    assert shown["finality"] == "seen"
    assert (await tester_perks.redeem(token, userAddress=buyer.wallet)).status == 200


# Lists


async def test_pages_list_each_token_once_while_tokens_are_moved_and_claimed(
    database_url: str, tmp_path: Path
) -> None:
    async with an_event_surface(database_url, tmp_path) as surface:
        keys = (await surface.brand()).keys
        brand, ledger = (
            Brand(keys.brand_id, keys.security_key),
            PerkLedger(surface.daemon.pools.http),
        )
        tokens = [token_of(7, serial) for serial in range(1, TOKENS + 1)]
        await ledger.block(
            perk_ledger.made(7, address_of(brand.id)),
            *(perk_ledger.claimed(token, a_wallet(token % 50 + 1)) for token in tokens),
        )
        pages: list[Any] = []
        chance = random.Random(7)
        more: str | None = ""
        while more is not None:
            limit = chance.choice((7, 100, 23, 64, 11))
            target = f"{HOLDERS}?collectionId=7&limit={limit}{more and f'&cursor={more}'}"
            answer = await sent(surface.http, surface.url, signed(brand, "GET", target))
            assert answer.status == 200, answer.body
            pages.append(answer.body)
            assert answer.body["count"] == len(answer.body["holders"]) <= limit
            assert answer.body["total"] == len(tokens)
            more = answer.body["nextCursor"]
            tokens.append(token_of(7, len(tokens) + 1))
            moving = chance.choices(tokens[:-1], k=20)
            await ledger.block(
                perk_ledger.claimed(tokens[-1], a_wallet(99)),
                *(perk_ledger.moved(token, a_wallet(1), a_wallet(98)) for token in moving),
            )

    listed = [int(holder["tokenId"]) for page in pages for holder in page["holders"]]
    assert listed == tokens[:-1]
    assert {holder["walletAddress"] for holder in pages[-1]["holders"]} >= {
        checksummed(a_wallet(98)),
        checksummed(a_wallet(99)),
    }


# Reorgs and kills


async def test_a_redemption_that_a_reorg_undoes_comes_back_once(tester_perks: Perks) -> None:
    await all_minted(tester_perks.instance)
    token = await a_token(tester_perks)
    rpc, before = tester_perks.instance.rpc, await tester_perks.relays.chain.published()

    async def is_published() -> bool:
        return await tester_perks.relays.chain.published() > before

    async with tester_perks.relays.chain.mining_on_request():
        asking = asyncio.create_task(tester_perks.redeem(token, idempotencyKey="reorged-1"))
        await until(is_published)
        await rpc("evm_mine")
        answer = await asking
        assert answer.status == 200
        seen = await tester_perks.shown(token, chargesUsed=1)
        assert seen["finality"] == "seen"
        assert seen["lastRedeemedAt"] is not None

        await rpc("anvil_reorg", 1, [])
        gone = await tester_perks.shown(token, chargesUsed=0)
        assert gone["lastRedeemedAt"] is None
        async with tester_perks.relays.chain.ticking():
            back = await tester_perks.shown(token, seconds=20.0, chargesUsed=1)

    assert await tester_perks.charges(token) == CHARGES - 1
    assert back["finality"] == "seen"
    await rpc("anvil_mine", hex(31))
    await tester_perks.shown(token, finality="safe", chargesUsed=1)
    await rpc("anvil_mine", hex(64))
    await tester_perks.shown(token, finality="final", chargesUsed=1)
    again = await tester_perks.redeem(token, idempotencyKey="reorged-1")
    assert again.body["redemptionId"] == answer.body["redemptionId"]
    assert again.body["alreadyProcessed"] is True
    assert await tester_perks.charges(token) == CHARGES - 1


@dataclass
class Ask:
    """A redemption that is repeated under its key with a new signature until it has an outcome."""

    token: int
    key: str
    answers: list[Answer] = field(default_factory=list)

    async def ask(self, perks: Perks) -> Answer | None:
        """Returns None if the connection broke or the instance was down."""
        try:
            answer = await perks.redeem(self.token, idempotencyKey=self.key)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
        self.answers.append(answer)
        return answer

    async def outcome(self, perks: Perks) -> None:
        async def answered() -> bool:
            answer = await self.ask(perks)
            assert answer is None or answer.status in {200, 202, 503}, answer.body
            return answer is not None and answer.status == 200

        await until(answered, OUTCOME_SECONDS)

    def redemption(self) -> tuple[str, str]:
        """The redemption, which all successful answers share."""
        (perks,) = {
            (str(answer.body["redemptionId"]), answer.hash)
            for answer in self.answers
            if answer.status == 200
        }
        return perks


@pytest.mark.parametrize(("kind", "kills"), [("tester", 2), ("anvil", 1)])
async def test_every_redemption_has_one_outcome_through_kills(
    instances: Instances, kind: str, kills: int
) -> None:
    seed = int(os.environ.get("LTZD_TEST_SEED") or time.time_ns())
    print(f"seed {seed}")
    moments = random.Random(seed)
    async with perks_of(await instances.of(kind)) as perks:
        tokens = [await a_token(perks) for _ in range(4)]
        asks = [Ask(token, f"kill-{token}-{n}") for token in tokens for n in range(CHARGES)]
        block = await perks.instance.rpc.number()
        async with perks.relays.chain.mining_every_second():
            for _ in range(kills):
                asking = [asyncio.create_task(ask.ask(perks)) for ask in asks]
                await asyncio.sleep(moments.uniform(0, 1.2))
                await perks.instance.kill9()
                await asyncio.gather(*asking)
                await perks.instance.start_again()
            await asyncio.gather(*(ask.outcome(perks) for ask in asks))

        redemptions = [ask.redemption() for ask in asks]
        sent_ = await perks.relays.chain.sent_since(block)
        assert len(set(redemptions)) == len(asks)
        assert sorted(each["hash"] for each in sent_) == sorted(hash_ for _, hash_ in redemptions)
        assert {each["status"] for each in sent_} == {"0x1"}
        assert [await perks.charges(token) for token in tokens] == [0] * len(tokens)
        for token in tokens:
            assert_refused(await perks.redeem(token), 409, "NO_CHARGES_REMAINING")
