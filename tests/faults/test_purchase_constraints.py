"""Purchase constraints on a running instance: permission to claim, and the lifetime of results."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from aiohttp import web

from tests.support.commands import ltzd
from tests.support.instances.books import all_minted
from tests.support.instances.perks import Perks, perks_of
from tests.support.instances.relayer import Answer, User
from tests.support.instances.shared import Instances
from tests.support.services import brand_api
from tests.support.services.brand_api import BrandApi, a_brand_api
from tests.support.waiting import until

KEYLESS = "/invalidate-external-api"
KEYED = f"/constraint-updater{KEYLESS}"
CROWD = 20


@dataclass
class Shop:
    """A brand with a constraint on each of its collections."""

    perks: Perks
    api: BrandApi
    id: str
    api_key: str
    asking: int
    """The collection whose constraint calls the API; the next one caches results for a second."""
    brief: int
    holding: int
    balance: int

    async def user(self) -> User:
        return await self.perks.relays.user()

    async def claim(self, user: User, collection: int | None = None) -> Answer:
        data = self.perks.relays.claim(user, collection or self.asking)
        return await self.perks.relays.relay(user, "PerkNFT", data)

    async def refused(self, user: User, collection: int | None = None) -> None:
        collection = collection or self.asking
        kind = {self.holding: "nft_holding", self.balance: "ltz_balance"}
        details = (await self.claim(user, collection)).assert_refused(403, "VALIDATION_FAILED")
        assert details == {
            "constraint": kind.get(collection, "external_api"),
            "position": 0,
            "collectionId": collection,
        }

    async def claimed(self, user: User, collection: int | None = None) -> None:
        (await self.claim(user, collection)).assert_relayed()

    async def forget(self, path: str = KEYED, key: str | None = None, **fields: Any) -> int:
        """The number of valid results, by default from the keyed form's answer."""
        headers = (
            {}
            if path == KEYLESS and key is None
            else {"Authorization": f"Bearer {key or self.api_key}"}
        )
        body = {"api_url": self.api.url} | fields
        url = self.perks.instance.base_url + path
        async with self.perks.instance.http.post(url, json=body, headers=headers) as reply:
            answer: dict[str, Any] = await reply.json()
            assert (reply.status, answer["success"]) == (200, True), answer
            return int(answer["invalidated_count"])


@pytest_asyncio.fixture(scope="module")
async def opened(
    instances: Instances, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Shop]:
    instance = await instances.of("anvil")
    async with perks_of(instance) as perks, a_brand_api() as api:
        brand = f"0x{uuid4().hex}{'0' * 8}"
        collections = [await perks.relays.collection("--brand", brand) for _ in range(4)]
        file = tmp_path_factory.mktemp("brand") / "brand.toml"
        file.write_text(_brand_file(brand, api, *collections))
        applied = await ltzd("brand", "apply", file, "--data-dir", instance.data_dir)
        shop = Shop(perks, api, brand, applied.json["apiKey"], *collections)
        await perks.head_is_indexed()
        await until(lambda: _is_in_force(shop))
        yield shop


@pytest_asyncio.fixture
async def shop(opened: Shop, instances: Instances) -> Shop:
    await instances.of("anvil")
    opened.api.recover()
    return opened


def _brand_file(
    brand: str, api: BrandApi, asking: int, brief: int, holding: int, balance: int
) -> str:
    asks = f"""
kind = "external_api"
url = "{api.url}"
json_path = "$.allowed"
operator = "eq"
value = true
"""
    return f"""
[brand]
id = "{brand}"
name = "Gated"
domains = ["gated.example"]

[[constraints]]
collection_id = {asking}{asks}
[[constraints]]
collection_id = {brief}
ttl_seconds = 1{asks}
[[constraints]]
collection_id = {holding}
kind = "nft_holding"
holding_collection_id = 1

[[constraints]]
collection_id = {balance}
kind = "ltz_balance"
min = 100
"""


async def _is_in_force(shop: Shop) -> bool:
    url = f"{shop.perks.instance.base_url}/service-api/event-config?brandId={shop.id}"
    async with shop.perks.instance.http.get(url) as reply:
        return reply.status == 200


# Each kind


async def test_a_claim_is_refused_until_the_api_allows_it(shop: Shop) -> None:
    user = await shop.user()
    async with shop.perks.relays.chain.nothing_published():
        await shop.refused(user)
    shop.api.allow(user.wallet)
    await shop.forget(user_address=user.wallet)
    await shop.claimed(user)


async def test_a_claim_is_refused_until_the_token_is_held(shop: Shop) -> None:
    user = await shop.user()
    await shop.refused(user, shop.holding)
    await shop.perks.token(user)
    await shop.claimed(user, shop.holding)


async def test_a_claim_is_refused_until_the_ltz_are_there(shop: Shop) -> None:
    user = await shop.user()
    await shop.refused(user, shop.balance)
    posted = await shop.perks.instance.post_event(user.email)
    await shop.perks.instance.minted(posted.event_id)
    await shop.claimed(user, shop.balance)


# How long a result is kept


async def test_the_api_is_asked_once_while_its_result_holds_and_again_afterwards(
    shop: Shop,
) -> None:
    lasting, brief = await shop.user(), await shop.user()
    for _ in range(3):
        await shop.refused(lasting)
    assert shop.api.count(lasting.wallet) == 1

    async def is_asked_again() -> bool:
        await shop.refused(brief, shop.brief)
        return shop.api.count(brief.wallet) == 2

    await until(is_asked_again)


@pytest.mark.parametrize("path", [KEYED, KEYLESS])
@pytest.mark.parametrize("narrow", ["", "user", "collection", "both"])
async def test_an_invalidated_result_is_asked_for_again(shop: Shop, path: str, narrow: str) -> None:
    user, other = await shop.user(), await shop.user()
    await shop.forget()
    await shop.refused(user)
    await shop.refused(other)
    fields: dict[str, Any] = {}
    if narrow in {"user", "both"}:
        fields["user_address"] = user.wallet
    if narrow in {"collection", "both"}:
        fields["collection_id"] = shop.asking

    assert await shop.forget(path, **fields) == (1 if "user_address" in fields else 2)
    assert await shop.forget(path, **fields) == 0

    await shop.refused(user)
    await shop.refused(other)
    assert shop.api.count(user.wallet) == 2
    assert shop.api.count(other.wallet) == (1 if "user_address" in fields else 2)


async def test_a_request_that_names_another_collection_or_user_invalidates_nothing(
    shop: Shop,
) -> None:
    user = await shop.user()
    await shop.refused(user)

    assert await shop.forget(key=shop.perks.brand.api_key) == 0
    assert await shop.forget(KEYLESS, key=shop.perks.brand.api_key) == 0
    assert await shop.forget(api_url=shop.api.url + "&x=1") == 0
    assert await shop.forget(user_address="0x" + "12" * 20) == 0
    assert await shop.forget(collection_id=shop.brief) == 0

    await shop.refused(user)
    assert shop.api.count(user.wallet) == 1


async def test_a_token_transfer_invalidates_in_the_transaction_that_indexes_its_block(
    shop: Shop,
) -> None:
    sender, recipient, other = [await shop.user() for _ in range(3)]
    token = await shop.perks.token(sender)
    for each in (sender, recipient, other):
        await shop.refused(each)

    await shop.perks.give(sender.account, recipient.wallet, token)
    await shop.perks.head_is_indexed()

    for each in (sender, recipient, other):
        await shop.refused(each)
    assert [shop.api.count(each.wallet) for each in (sender, recipient, other)] == [2, 2, 1]


async def test_a_reorg_that_undoes_a_transfer_invalidates_again(shop: Shop) -> None:
    chain = shop.perks.relays.chain
    await all_minted(shop.perks.instance)
    sender, recipient = await shop.user(), await shop.user()
    token = await shop.perks.token(sender)
    async with chain.mining_on_request():
        sale = shop.perks.moving(sender.account, recipient.wallet, token)
        await chain.publish(sender.account, "PerkNFT", sale)
        await chain.rpc("evm_mine")
        await shop.perks.head_is_indexed()
        for each in (sender, recipient):
            await shop.refused(each)
            await shop.refused(each)
        assert [shop.api.count(each.wallet) for each in (sender, recipient)] == [1, 1]
        await chain.rpc("anvil_reorg", 1, [])
        await shop.perks.head_is_indexed()
        for each in (sender, recipient):
            await shop.refused(each)
        assert [shop.api.count(each.wallet) for each in (sender, recipient)] == [2, 2]


async def test_an_invalidation_during_an_evaluation_overrules_its_late_result(shop: Shop) -> None:
    """The API is called before the user loses the permission to claim, and answers after it."""
    user, gate = await shop.user(), asyncio.Event()
    shop.api.allow(user.wallet)

    async def answer_late(_request: web.Request) -> web.StreamResponse:
        answer = shop.api.answer(user.wallet)
        await gate.wait()
        return answer

    async def is_asked() -> bool:
        return shop.api.count(user.wallet) == 1

    shop.api.behave(user.wallet, answer_late)
    asking = asyncio.create_task(shop.refused(user))
    await until(is_asked)
    shop.api.forbid(user.wallet)
    await shop.forget(user_address=user.wallet)
    gate.set()

    await asking
    assert shop.api.count(user.wallet) == 2
    await shop.refused(user)
    assert shop.api.count(user.wallet) == 2, "the late answer was stored"


# Failures


async def test_a_failing_api_allows_no_claim_and_its_failure_is_not_cached(shop: Shop) -> None:
    troubles = (
        *(brand_api.never_answer, brand_api.fail, brand_api.redirect),
        *(brand_api.answer_too_much, brand_api.answer_html),
    )
    users = [await shop.user() for _ in troubles]
    for user, trouble in zip(users, troubles, strict=True):
        shop.api.allow(user.wallet)
        shop.api.behave(user.wallet, trouble)

    await asyncio.gather(*(shop.refused(user) for user in users))
    assert shop.api.followed_redirects == 0
    shop.api.recover()
    await asyncio.gather(*(shop.claimed(user) for user in users))

    assert [shop.api.count(user.wallet) for user in users] == [2] * len(users)


async def test_twenty_claims_at_once_ask_the_api_once(shop: Shop) -> None:
    refused, allowed = await shop.user(), await shop.user()
    shop.api.allow(allowed.wallet)

    await asyncio.gather(*(shop.refused(refused) for _ in range(CROWD)))
    # The block of the claim makes its user's results invalid: the others are answered before it.
    async with shop.perks.relays.chain.mining_on_request():
        claims = [asyncio.create_task(shop.claim(allowed)) for _ in range(CROWD)]
        for answer in islice(asyncio.as_completed(claims), CROWD - 1):
            await answer
    answers = await asyncio.gather(*claims)

    assert [shop.api.count(user.wallet) for user in (refused, allowed)] == [1, 1]
    assert sorted(answer.status for answer in answers) == [200] + [409] * (CROWD - 1)


async def test_the_constraints_of_a_disabled_brand_still_refuse_claims(shop: Shop) -> None:
    user, where = await shop.user(), ("--data-dir", shop.perks.instance.data_dir)
    disabled = await ltzd("brand", "disable", shop.id, *where)
    assert disabled.code == 0, disabled.err

    async def is_disabled() -> bool:
        return not await _is_in_force(shop)

    await until(is_disabled)
    await shop.refused(user, shop.holding)
    await shop.refused(user)
    assert shop.api.count(user.wallet) == 1
    enabled = await ltzd("brand", "enable", shop.id, *where)
    assert enabled.code == 0, enabled.err
    await until(lambda: _is_in_force(shop))
