"""Every kind of relay on running instances: each is executed once on the chain."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from eth_account import Account

from tests.support.instances.chain import HOUR
from tests.support.instances.instance import Instance
from tests.support.instances.relayer import (
    A_WELCOME,
    FREE,
    HOURLY,
    ITEM,
    LTZ,
    PRICED,
    Answer,
    Relays,
    User,
    relays_of,
)
from tests.support.relays.calls import call, selector, several
from tests.support.relays.signing import (
    a_word,
    buy_with_sig,
    claim_with_sig,
    settle_with_sig,
    transfer,
)
from tests.support.waiting import Stopwatch, until

ITEM_PRICE = 15 * LTZ
DEAL = 30 * LTZ
MULTICALL = "0x" + selector("multicall(bytes[])").hex()
NOBODY = "0x" + "12" * 20


@pytest_asyncio.fixture
async def relays(instance: Instance) -> AsyncIterator[Relays]:
    """Relays on each kind of chain."""
    async with relays_of(instance) as relays:
        yield relays


@pytest_asyncio.fixture
async def one_relays(one_instance: Instance) -> AsyncIterator[Relays]:
    """Relays on the tester chain, for tests that do not depend on the kind of chain."""
    async with relays_of(one_instance) as relays:
        yield relays


async def relayed(
    relays: Relays, user: User, to: str, data: bytes, **fields: Any
) -> dict[str, Any]:
    """Checks that a successful relay is one transaction of this wallet; returns it."""
    async with relays.chain.published_exactly(1):
        answer = await relays.relay(user, to, data, **fields)
    answer.assert_relayed()
    receipt = await relays.instance.rpc.receipt(answer.hash)
    assert receipt["status"] == "0x1"
    figures = {name: answer.body[name] for name in ("gasUsed", "effectiveGasPrice", "blockNumber")}
    assert figures == {
        "gasUsed": str(int(receipt["gasUsed"], 16)),
        "effectiveGasPrice": str(int(receipt["effectiveGasPrice"], 16)),
        "blockNumber": int(receipt["blockNumber"], 16),
    }
    parties = (answer.body["from"].lower(), answer.body["to"].lower())
    assert parties == (receipt["from"].lower(), receipt["to"].lower())
    assert parties[0] in relays.chain.operators
    assert parties[1] == relays.chain.contracts[to]
    transaction: dict[str, Any] = await relays.instance.rpc("eth_getTransactionByHash", answer.hash)
    assert int(transaction["value"], 16) == 0
    return transaction


async def owned(relays: Relays, user: User, collection: int) -> int:
    """The number of the collection's tokens that the user holds."""
    minted = (await relays.chain.view("PerkNFT", "collection", collection))[1]
    owners = Counter(
        [
            await relays.chain.view("PerkNFT", "ownerOf", collection << 32 | serial)
            for serial in range(max(1, minted - 20), minted + 1)
        ]
    )
    return owners[user.wallet.lower()]


# Claims


async def test_a_free_perk_is_claimed_for_the_requesting_user(relays: Relays) -> None:
    user = await relays.user()

    await relayed(relays, user, "PerkNFT", relays.claim(user))

    assert await relays.chain.claims(user.wallet, FREE) == 1
    assert await owned(relays, user, FREE) == 1


async def test_a_permit_and_the_claim_it_pays_for_are_one_transaction(
    relays: Relays,
) -> None:
    user, price = await relays.welcomed(), relays.price
    before = await relays.chain.balance(relays.brand)
    permit = await relays.permit(user, "PerkNFT", price)

    perk = relays.instance.dev_json["collections"][PRICED - 1]["perkId"]
    metadata = {"action": "claim", "perkId": perk, "permit": permit.json}
    data = relays.claim(user, PRICED, price)
    sent = await relayed(relays, user, "PerkNFT", data, metadata=metadata)

    assert sent["input"].startswith(MULTICALL)
    assert await owned(relays, user, PRICED) == 1
    assert await relays.chain.balance(user.wallet) == A_WELCOME - price
    assert await relays.chain.balance(relays.brand) == before + price


async def test_a_callers_own_multicall_of_permit_and_claim_is_relayed(relays: Relays) -> None:
    user = await relays.welcomed()
    permit = await relays.permit(user, "PerkNFT", relays.price)
    data = several("PerkNFT", permit.call_on("PerkNFT"), relays.claim(user, PRICED, relays.price))

    sent = await relayed(relays, user, "PerkNFT", data)

    assert sent["input"] == "0x" + data.hex()
    assert await owned(relays, user, PRICED) == 1


async def test_a_claim_that_the_user_signed_himself_is_relayed(one_relays: Relays) -> None:
    user = await one_relays.user()
    strict = await one_relays.collection("--requires-sig")

    unsigned = await one_relays.relay(user, "PerkNFT", one_relays.claim(user, strict))
    unsigned.assert_reverted("SignatureRequired")
    data = await claim_with_sig(one_relays.chain, user.account, user.wallet, strict)
    await relayed(one_relays, user, "PerkNFT", data)

    assert await owned(one_relays, user, strict) == 1


async def test_a_permit_that_another_account_published_first_does_not_break_a_claim(
    relays: Relays,
) -> None:
    user = await relays.welcomed()
    permit = await relays.permit(user, "PerkNFT", relays.price)
    await relays.chain.send(Account.create(), "LTZ", permit.call)

    data = relays.claim(user, PRICED, relays.price)
    await relayed(relays, user, "PerkNFT", data, metadata={"permit": permit.json})

    assert await owned(relays, user, PRICED) == 1
    assert await relays.chain.balance(user.wallet) == A_WELCOME - relays.price


async def test_addresses_are_the_same_in_any_case_of_their_letters(one_relays: Relays) -> None:
    user = await one_relays.user()
    body = one_relays.body(user, "PerkNFT", one_relays.claim(user), userAddress=user.wallet.lower())
    body["to"] = one_relays.instance.dev_json["contracts"]["PerkNFT"]
    (await one_relays.post(body, user.access_token)).assert_relayed()


# Purchases and deals


async def test_items_are_bought_with_a_permit_or_with_a_signature(one_relays: Relays) -> None:
    user = await one_relays.welcomed()

    permit = await one_relays.permit(user, "PointsSale", 2 * ITEM_PRICE)
    data = one_relays.buy(user, 2, 2 * ITEM_PRICE)
    await relayed(one_relays, user, "PointsSale", data, metadata={"permit": permit.json})
    permit = await one_relays.permit(user, "PointsSale", ITEM_PRICE)
    data = await buy_with_sig(one_relays.chain, user.account, user.wallet, ITEM, 1, ITEM_PRICE)
    await relayed(one_relays, user, "PointsSale", data, metadata={"permit": permit.json})

    assert await one_relays.chain.balance(user.wallet) == A_WELCOME - 3 * ITEM_PRICE


async def a_deal(relays: Relays, user: User, business: str) -> bytes:
    """Locks a deal for two hours, by a relay with a permit."""
    deal = a_word()
    permit = await relays.permit(user, "BusinessEscrow", DEAL)
    data = relays.lock(user, business, DEAL, await relays.chain.now() + 2 * HOUR, deal)
    await relayed(relays, user, "BusinessEscrow", data, metadata={"permit": permit.json})
    return deal


async def test_a_deal_is_locked_and_released_by_the_users_signature(one_relays: Relays) -> None:
    user, business = (
        await one_relays.welcomed(),
        one_relays.instance.dev_json["businesses"][0],
    )
    before = await one_relays.chain.balance(business)

    deal = await a_deal(one_relays, user, business)
    data = await settle_with_sig(one_relays.chain, user.account, "Release", deal)
    await relayed(one_relays, user, "BusinessEscrow", data)

    assert await one_relays.chain.balance(business) == before + DEAL
    assert await one_relays.chain.balance(user.wallet) == A_WELCOME - DEAL


async def test_a_deal_is_refunded_by_the_business_only(one_relays: Relays) -> None:
    user, business = await one_relays.welcomed(), await one_relays.user()
    await one_relays.approve_business(business.wallet)
    deal = await a_deal(one_relays, user, business.wallet)

    by_the_business = await settle_with_sig(one_relays.chain, business.account, "Refund", deal)
    by_the_user = await settle_with_sig(one_relays.chain, user.account, "Refund", deal)
    async with one_relays.chain.nothing_published():
        for data in (by_the_business, by_the_user):
            answer = await one_relays.relay(user, "BusinessEscrow", data)
            answer.assert_refused(403, "VALIDATION_FAILED")
        answer = await one_relays.relay(business, "BusinessEscrow", by_the_user)
        answer.assert_refused(403, "VALIDATION_FAILED")
    await relayed(one_relays, business, "BusinessEscrow", by_the_business)

    assert await one_relays.chain.balance(user.wallet) == A_WELCOME


async def test_a_deal_cannot_be_reclaimed_before_its_time(one_relays: Relays) -> None:
    user = await one_relays.welcomed()
    deal = await a_deal(one_relays, user, one_relays.instance.dev_json["businesses"][0])

    async with one_relays.chain.nothing_published():
        answer = await one_relays.relay(
            user, "BusinessEscrow", call("BusinessEscrow", "reclaim", deal)
        )

    answer.assert_reverted("TooEarly")
    assert await one_relays.chain.balance(user.wallet) == A_WELCOME - DEAL


# LTZ


async def test_ltz_is_sent_with_an_authorization(one_relays: Relays) -> None:
    user = await one_relays.welcomed()
    friend = Account.create().address

    data = await transfer(one_relays.chain, user.account, user.wallet, friend, 7 * LTZ)
    await relayed(one_relays, user, "LTZ", data)

    assert await one_relays.chain.balance(friend) == 7 * LTZ
    (await one_relays.relay(user, "LTZ", data)).assert_reverted("ERC3009UsedAuthorization")


async def test_a_permit_alone_is_relayed_to_a_contract_of_the_platform(relays: Relays) -> None:
    user = await relays.user()

    permit = await relays.permit(user, "PerkNFT", 5 * LTZ)
    await relayed(relays, user, "LTZ", permit.call)
    permit = await relays.permit(user, "PointsSale", 6 * LTZ)
    await relayed(relays, user, "PointsSale", permit.call_on("PointsSale"))

    for contract, value in (("PerkNFT", 5), ("PointsSale", 6)):
        spender = relays.chain.contracts[contract]
        assert await relays.chain.view("LTZ", "allowance", user.wallet, spender) == value * LTZ


async def test_a_permit_alone_that_would_do_nothing_is_not_sent(relays: Relays) -> None:
    """permitLTZ never reverts, so a simulation would not notice a wrong permit inside."""
    user = await relays.user()
    used = await relays.permit(user, "PointsSale", 6 * LTZ)
    await relayed(relays, user, "PointsSale", used.call_on("PointsSale"))
    expired = await relays.permit(user, "PerkNFT", LTZ, seconds=-24 * HOUR)
    good = (await relays.permit(user, "PerkNFT", LTZ)).call_on("PerkNFT")

    async with relays.chain.nothing_published():
        for again in (
            used.call_on("PointsSale"),
            several("PointsSale", used.call_on("PointsSale")),
        ):
            refused = await relays.relay(user, "PointsSale", again)
            refused.assert_refused(403, "VALIDATION_FAILED")
        reverted = await relays.relay(user, "PerkNFT", expired.call_on("PerkNFT"))
        reverted.assert_reverted("ERC2612ExpiredSignature")
        for gas in (40_000, 60_000):
            poor = await relays.relay(user, "PerkNFT", good, gasLimit=gas)
            poor.assert_refused(403, "VALIDATION_FAILED")
    await relayed(relays, user, "PerkNFT", several("PerkNFT", good))
    spender = relays.chain.contracts["PerkNFT"]
    assert await relays.chain.view("LTZ", "allowance", user.wallet, spender) == LTZ


async def test_the_same_call_at_once_is_sent_once(relays: Relays) -> None:
    user = await relays.user()
    permit = await relays.permit(user, "PerkNFT", LTZ)

    async with relays.chain.published_exactly(1):
        answers = await asyncio.gather(*(relays.relay(user, "LTZ", permit.call) for _ in range(5)))

    assert sum(answer.status == 200 for answer in answers) == 1
    for answer in answers:
        if answer.status != 200:
            assert answer.status in {403, 500}
            assert "transactionHash" not in answer.body["details"]


@pytest.mark.parametrize("published_before", [False, True])
@pytest.mark.parametrize("beside", [True, False])
async def test_ltz_is_sent_by_a_permit_that_names_the_operator(
    relays: Relays, published_before: bool, beside: bool
) -> None:
    """The permit is beside the call or in the caller's multicall; both may be front-run."""
    user, friend = await relays.welcomed(), Account.create().address
    spender = relays.chain.operators[-1]
    permit = await relays.permit(user, spender, 9 * LTZ)
    if published_before:
        await relays.chain.send(Account.create(), "LTZ", permit.call)

    data = call("LTZ", "transferFrom", user.wallet, friend, 9 * LTZ)
    if beside:
        sent = await relayed(relays, user, "LTZ", data, metadata={"permit": permit.json})
    else:
        sent = await relayed(relays, user, "LTZ", several("LTZ", permit.call, data))

    assert sent["from"].lower() == spender
    assert await relays.chain.balance(friend) == 9 * LTZ
    assert await relays.chain.balance(user.wallet) == A_WELCOME - 9 * LTZ
    assert await relays.chain.view("LTZ", "allowance", user.wallet, spender) == 0


async def test_a_transfer_whose_permit_is_mined_before_it_passes_when_it_is_sent_again(
    one_relays: Relays,
) -> None:
    chain, friend = one_relays.chain, Account.create().address
    user, spender = await one_relays.welcomed(), chain.operators[-1]
    permit = await one_relays.permit(user, spender, 9 * LTZ)
    data = call("LTZ", "transferFrom", user.wallet, friend, 9 * LTZ)
    metadata = {"permit": permit.json}

    published = await chain.published() + 1
    async with chain.mining_on_request():
        await chain.publish(Account.create(), "LTZ", permit.call)
        first = asyncio.create_task(one_relays.relay(user, "LTZ", data, metadata=metadata))
        await until(lambda: is_published(one_relays, published))
        await chain.rpc("evm_mine")
        (await first).assert_reverted("ERC2612InvalidSigner")
    assert await chain.view("LTZ", "allowance", user.wallet, spender) == 9 * LTZ
    await relayed(one_relays, user, "LTZ", data, metadata=metadata)

    assert await chain.balance(friend) == 9 * LTZ
    assert await chain.view("LTZ", "allowance", user.wallet, spender) == 0


# Refusals and reverts


REVERTS: dict[str, Callable[[Relays, User], tuple[str, bytes]]] = {
    "UnknownCollection": lambda relays, user: ("PerkNFT", relays.claim(user, 1_000_000)),
    "ClaimCountMismatch": lambda relays, user: ("PerkNFT", relays.claim(user, claims=1)),
    "PriceAboveMax": lambda relays, user: ("PerkNFT", relays.claim(user, PRICED, 1)),
    "InsufficientAllowance": lambda relays, user: (
        "PerkNFT",
        relays.claim(user, PRICED, relays.price),
    ),
    "TotalAboveMax": lambda relays, user: ("PointsSale", relays.buy(user, 2, ITEM_PRICE)),
    "BadQuantity": lambda relays, user: ("PointsSale", relays.buy(user, 6, A_WELCOME)),
    "BusinessNotApproved": lambda relays, user: (
        "BusinessEscrow",
        relays.lock(user, NOBODY, DEAL, int(time.time()) + 2 * HOUR, a_word()),
    ),
    "BadDeadline": lambda relays, user: (
        "BusinessEscrow",
        relays.lock(user, relays.instance.dev_json["businesses"][0], DEAL, 1, a_word()),
    ),
}


async def test_a_call_that_would_revert_is_refused_with_its_reason_and_costs_no_gas(
    one_relays: Relays,
) -> None:
    user = await one_relays.user()
    async with one_relays.chain.nothing_published():
        for reason, call_of in REVERTS.items():
            answer = await one_relays.relay(user, *call_of(one_relays, user))
            answer.assert_reverted(reason)
            assert answer.limits[:2] == (HOURLY, HOURLY)


async def test_a_claim_of_a_sold_out_collection_is_not_published(one_relays: Relays) -> None:
    first, second = await one_relays.users(2)
    rare = await one_relays.collection("--max-supply", "1")
    (await one_relays.relay(first, "PerkNFT", one_relays.claim(first, rare))).assert_relayed()

    async with one_relays.chain.nothing_published():
        answer = await one_relays.relay(second, "PerkNFT", one_relays.claim(second, rare))

    answer.assert_reverted("SoldOut")


@pytest.mark.parametrize(
    "fields",
    [
        {"gasLimit": 1_000_001},
        {"gasLimit": 30_000},
        {"value": "1"},
        {"value": "1000000000000000000"},
    ],
    ids=str,
)
async def test_a_gas_limit_out_of_bounds_or_any_value_is_refused(
    one_relays: Relays, fields: dict[str, Any]
) -> None:
    user = await one_relays.user()
    async with one_relays.chain.nothing_published():
        answer = await one_relays.relay(user, "PerkNFT", one_relays.claim(user), **fields)

    answer.assert_refused(403, "VALIDATION_FAILED")


async def test_the_greatest_allowed_gas_limit_is_accepted(one_relays: Relays) -> None:
    user = await one_relays.user()
    data = one_relays.claim(user)
    sent = await relayed(one_relays, user, "PerkNFT", data, gasLimit=1_000_000, value="0")
    assert int(sent["gas"], 16) <= 1_000_000


@pytest.mark.parametrize("missing", ["to", "data", "userAddress"])
async def test_a_missing_field_is_named(one_relays: Relays, missing: str) -> None:
    user = await one_relays.user()
    body = one_relays.body(user, "PerkNFT", one_relays.claim(user))
    del body[missing]

    answer = await one_relays.post(body, user.access_token)

    answer.assert_refused(400, "MISSING_FIELDS")
    assert missing in str(answer.body)


MALFORMED: list[tuple[str, Any]] = [
    ("to", "0x1234"),
    ("to", 7),
    ("data", "0xnothex"),
    ("data", "0x123"),
    ("userAddress", "nobody"),
    ("value", "-1"),
    ("value", "one"),
    ("gasLimit", "many"),
    ("gasLimit", -1),
    ("gasLimit", 1.5),
    ("gasLimit", True),
    ("metadata", "text"),
    ("metadata", {"permit": "text"}),
    ("metadata", {"permit": {"owner": "0x12"}}),
    ("metadata", {"idempotencyKey": "k" * 256}),
    ("metadata", {"idempotencyKey": 7}),
]


async def test_a_malformed_field_is_named(one_relays: Relays) -> None:
    user = await one_relays.user()
    async with one_relays.chain.nothing_published():
        for field, value in MALFORMED:
            body = one_relays.body(user, "PerkNFT", one_relays.claim(user)) | {field: value}
            answer = await one_relays.post(body, user.access_token)
            details = answer.assert_refused(400, "INVALID_FIELDS")
            assert field in details["errors"][0], (field, value, details)


# Claim limits


ONCE = {"collectionId": FREE, "currentClaims": 1, "maxPerUser": 1}


async def test_a_second_claim_is_refused_with_the_numbers(relays: Relays) -> None:
    user = await relays.user()
    (await relays.relay(user, "PerkNFT", relays.claim(user))).assert_relayed()

    async with relays.chain.nothing_published():
        for claims in (0, 1):
            answer = await relays.relay(user, "PerkNFT", relays.claim(user, claims=claims))
            assert answer.assert_refused(409, "CLAIM_LIMIT_REACHED") == ONCE


@pytest.mark.parametrize("times", [2, 8])
async def test_concurrent_claims_succeed_once(relays: Relays, times: int) -> None:
    user = await relays.user()
    async with relays.chain.published_exactly(1):
        answers = await asyncio.gather(
            *(relays.relay(user, "PerkNFT", relays.claim(user)) for _ in range(times))
        )

    assert Counter(answer.status for answer in answers) == {200: 1, 409: times - 1}
    for answer in answers:
        if answer.status == 409:
            assert answer.assert_refused(409, "CLAIM_LIMIT_REACHED") == ONCE
    assert await relays.chain.claims(user.wallet, FREE) == 1


async def test_claims_of_two_collections_at_once_are_counted_apart(one_relays: Relays) -> None:
    user, other = await one_relays.user(), await one_relays.collection()
    async with one_relays.chain.published_exactly(2):
        answers = await asyncio.gather(
            *(
                one_relays.relay(user, "PerkNFT", one_relays.claim(user, collection))
                for collection in (FREE, other, FREE, other)
            )
        )

    assert Counter(answer.status for answer in answers) == {200: 2, 409: 2}
    refused = [
        answer.assert_refused(409, "CLAIM_LIMIT_REACHED")["collectionId"]
        for answer in answers
        if answer.status == 409
    ]
    assert sorted(refused) == sorted([FREE, other])
    for collection in (FREE, other):
        assert await one_relays.chain.claims(user.wallet, collection) == 1


async def test_two_claims_of_one_user_follow_each_other(relays: Relays) -> None:
    """The second call is simulated after the first is mined, so it may depend on it."""
    user = await relays.user()
    twice = await relays.collection("--max-per-user", "2")
    first = asyncio.create_task(relays.relay(user, "PerkNFT", relays.claim(user, twice)))
    await asyncio.sleep(0)
    second = asyncio.create_task(relays.relay(user, "PerkNFT", relays.claim(user, twice, claims=1)))

    (await first).assert_relayed()
    late = await second
    if late.status != 200:
        # The second request reached the surface before the first.
        late.assert_reverted("ClaimCountMismatch")
        late = await relays.relay(user, "PerkNFT", relays.claim(user, twice, claims=1))
    late.assert_relayed()

    assert await relays.chain.claims(user.wallet, twice) == 2


# The hourly limit


async def test_forty_concurrent_relays_publish_thirty_five(relays: Relays) -> None:
    user, friend = await relays.welcomed(), Account.create().address
    before, began = await relays.chain.published(), time.time()
    transfers = [
        await transfer(relays.chain, user.account, user.wallet, friend, 1)
        for _ in range(HOURLY + 6)
    ]
    answers = await asyncio.gather(*(relays.relay(user, "LTZ", data) for data in transfers[:-1]))
    last = await relays.relay(user, "LTZ", transfers[-1])

    assert Counter(answer.status for answer in answers) == {200: HOURLY, 429: 5}
    for answer in [*(answer for answer in answers if answer.status == 429), last]:
        answer.assert_refused(429, "RATE_LIMIT_EXCEEDED")
        limit, remaining, reset = answer.limits
        assert (limit, remaining) == (HOURLY, 0)
        assert began + HOUR - 5 <= reset <= time.time() + HOUR + 1
        assert 0 < int(answer.headers["Retry-After"]) <= HOUR + 1
    left = {answer.limits[1] for answer in answers if answer.status == 200}
    assert left <= set(range(HOURLY))
    assert await relays.chain.published() == before + HOURLY
    assert await relays.chain.balance(friend) == HOURLY
    await assert_only_this_user_has_to_wait(relays, user)


async def test_calls_that_spend_the_same_ltz_at_once_revert_on_chain_and_count(
    one_relays: Relays,
) -> None:
    """Each passes its simulation: only the block shows that another one was first."""
    chain, friend = one_relays.chain, Account.create().address
    user = await one_relays.welcomed()
    transfers = [
        await transfer(chain, user.account, user.wallet, friend, A_WELCOME) for _ in range(3)
    ]
    published = await chain.published() + len(transfers)
    async with chain.mining_on_request():
        relays = [
            asyncio.create_task(one_relays.relay(user, "LTZ", data, gasLimit=150_000))
            for data in transfers
        ]
        await until(lambda: is_published(one_relays, published))
        await chain.rpc("evm_mine")
        answers = await asyncio.gather(*relays)

    assert Counter(answer.status for answer in answers) == {200: 1, 500: 2}
    for answer in answers:
        if answer.status == 500:
            details = answer.assert_refused(500, "TRANSACTION_FAILED")
            assert "ERC20InsufficientBalance" in details["reason"]
            assert details["transactionHash"]
    assert await chain.balance(friend) == A_WELCOME
    last = await one_relays.relay(user, "LTZ", transfers[0])
    assert last.limits[1] == HOURLY - len(transfers)


async def is_published(relays: Relays, count: int) -> bool:
    return await relays.chain.published() == count


async def assert_only_this_user_has_to_wait(relays: Relays, user: User) -> None:
    """Requests that are refused anyway keep their reason; other users are served."""
    answer = await relays.relay(user, "PerkNFT", call("PerkNFT", "claim", FREE, 0, a_word()))
    answer.assert_refused(403, "VALIDATION_FAILED")
    other = await relays.user()
    (await relays.relay(other, "PerkNFT", relays.claim(other))).assert_relayed()


async def test_the_headers_count_published_relays_and_nothing_else(one_relays: Relays) -> None:
    user = await one_relays.user()

    refused = await one_relays.relay(user, "PerkNFT", one_relays.claim(user), value="1")
    reverted = await one_relays.relay(user, "PerkNFT", one_relays.claim(user, claims=1))
    first = await one_relays.relay(user, "PerkNFT", one_relays.claim(user), key="first")
    again = await one_relays.relay(user, "PerkNFT", one_relays.claim(user, claims=1))
    permit = await one_relays.permit(user, "PerkNFT", 1)
    second = await one_relays.relay(user, "LTZ", permit.call)

    remaining = [answer.limits[1] for answer in (refused, reverted, first, again, second)]
    assert remaining == [35, 35, 34, 34, 33]
    assert {answer.limits[0] for answer in (refused, reverted, first, again, second)} == {HOURLY}


async def test_the_101st_request_of_an_address_is_refused_with_the_addresss_limit(
    one_relays: Relays,
) -> None:
    one_relays.flush_after = None
    answers = await asyncio.gather(*(one_relays.get("0x" + "00" * 32, None) for _ in range(101)))

    assert Counter(answer.status for answer in answers) == {401: 100, 429: 1}
    (refused,) = [answer for answer in answers if answer.status == 429]
    refused.assert_refused(429, "RATE_LIMIT_EXCEEDED")
    assert refused.limits[:2] == (100, 0)
    assert 0 < int(refused.headers["Retry-After"]) <= 61


# Idempotency keys


async def replays(relays: Relays, user: User, key: str, body: dict[str, object]) -> Answer:
    return await relays.post(body, user.access_token, **{"Idempotency-Key": key})


async def test_the_same_key_and_body_is_the_same_relay(relays: Relays) -> None:
    user, key = await relays.user(), a_word().hex()
    permit = await relays.permit(user, "PerkNFT", LTZ)
    body = relays.body(user, "LTZ", permit.call)

    async with relays.chain.published_exactly(1):
        at_once = await asyncio.gather(*(replays(relays, user, key, body) for _ in range(10)))
        later = await replays(relays, user, key, body)

    for answer in [*at_once, later]:
        assert (answer.status, answer.hash) == (200, at_once[0].hash)
    later.assert_relayed()
    assert later.body == at_once[0].body
    assert later.limits[1] == HOURLY - 1


async def test_a_replay_is_answered_without_waiting(one_relays: Relays) -> None:
    """The outcome is known; polling once a second would take five seconds for five."""
    user = await one_relays.user()
    data = one_relays.claim(user)
    (await one_relays.relay(user, "PerkNFT", data, key="k")).assert_relayed()
    watch = Stopwatch()
    for _ in range(5):
        (await one_relays.relay(user, "PerkNFT", data, key="k")).assert_relayed()

    assert watch.seconds() < 3


async def test_another_body_under_the_same_key_is_refused(one_relays: Relays) -> None:
    user, key = await one_relays.user(), "k" * 255
    (await one_relays.relay(user, "PerkNFT", one_relays.claim(user), key=key)).assert_relayed()

    async with one_relays.chain.nothing_published():
        answer = await one_relays.relay(user, "PerkNFT", one_relays.claim(user), key=key)

    answer.assert_refused(409, "IDEMPOTENCY_KEY_REUSED")


async def test_a_browser_sends_its_key_in_the_metadata(one_relays: Relays) -> None:
    user, metadata = await one_relays.user(), {"idempotencyKey": "a browser's"}
    data = one_relays.claim(user)
    first = await one_relays.relay(user, "PerkNFT", data, metadata=metadata)
    first.assert_relayed()

    async with one_relays.chain.nothing_published():
        again = await one_relays.relay(user, "PerkNFT", data, metadata=metadata)
        other = await one_relays.relay(user, "PerkNFT", one_relays.claim(user), metadata=metadata)

    assert (again.status, again.hash) == (200, first.hash)
    other.assert_refused(409, "IDEMPOTENCY_KEY_REUSED")


async def test_keys_belong_to_a_user_and_a_refusal_does_not_use_one(one_relays: Relays) -> None:
    first, second = await one_relays.users(2)
    refused = await one_relays.relay(
        first, "PerkNFT", one_relays.claim(first), key="mine", value="1"
    )
    refused.assert_refused(403, "VALIDATION_FAILED")

    async with one_relays.chain.published_exactly(2):
        for user in (first, second):
            answer = await one_relays.relay(user, "PerkNFT", one_relays.claim(user), key="mine")
            answer.assert_relayed()


async def test_a_key_of_256_characters_is_too_long(one_relays: Relays) -> None:
    user = await one_relays.user()
    async with one_relays.chain.nothing_published():
        answer = await one_relays.relay(user, "PerkNFT", one_relays.claim(user), key="k" * 256)

    answer.assert_refused(400, "INVALID_FIELDS")


# Reading a relay


async def test_a_relay_is_shown_to_its_user_alone(one_relays: Relays) -> None:
    user, stranger = await one_relays.users(2)
    answer = await one_relays.relay(user, "PerkNFT", one_relays.claim(user))

    own = await one_relays.get(answer.hash, user)
    own.assert_relayed(own.body["status"])
    assert own.body["status"] in {"confirmed", "final"}
    assert {**own.body, "status": "confirmed"} == answer.body
    refused = [
        await one_relays.get(answer.hash, stranger),
        await one_relays.get("0x" + "ab" * 32, user),
        await one_relays.get("garbage", user),
        await one_relays.get("0x12", user),
    ]
    for each in refused:
        each.assert_refused(404, "NOT_FOUND")
    (await one_relays.get(answer.hash, None)).assert_refused(401, "UNAUTHORIZED")
