"""A brand's site on a running instance: its visitors' actions with kill -9, and spending rights.

The seed of the moments is printed; LTZD_TEST_SEED repeats a run.
"""

import asyncio
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from tests.support.commands import ltzd
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.instance import Instance
from tests.support.instances.shared import Instances
from tests.support.waiting import until

ROUNDS = 2
VISITORS = 4
PATIENCE_SECONDS = 40.0
_PURCHASES = "SELECT count(*) FROM purchases WHERE buyer = decode($1, 'hex')"
_CLAIMS = "SELECT count(*) FROM perk_claims WHERE user_address = decode($1, 'hex')"


@dataclass
class Visitor:
    """A visitor who is logged in at the demo brand's site, with a browser's headers."""

    instance: Instance
    email: str
    wallet: str
    headers: Mapping[str, str]

    async def ask(
        self, path: str, body: object = None, host: str | None = None, method: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        site = self.instance.dev_json["site"]
        url = f"{self.instance.base_url}/{site['restPrefix']}/{site['namespace']}/v1/{path}"
        headers = {**self.headers, "Host": host or site["host"]}
        method = method or ("GET" if body is None else "POST")
        async with self.instance.http.request(method, url, json=body, headers=headers) as reply:
            return reply.status, await reply.json()

    async def request_until_success(self, path: str, body: object) -> dict[str, Any]:
        """Repeats the request until it succeeds, as a visitor does after an error page."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                status, answer = await self.ask(path, body)
            except (aiohttp.ClientError, OSError):
                await _up(self.instance)
                continue
            if status == 200:
                return answer
            assert status in {202, 400}, answer
            if status == 400:
                assert answer["code"].endswith("_failed"), answer
        raise AssertionError(f"{path} was never done")

    async def facts(self, question: str) -> int:
        async with self.instance.database() as connection:
            count: int = await connection.fetchval(question, self.wallet[2:].lower())
        return count


async def _up(instance: Instance) -> None:
    async def answers() -> bool:
        try:
            async with instance.http.get(f"{instance.base_url}/service-api/health") as reply:
                return reply.status == 200
        except (aiohttp.ClientError, OSError):
            return False

    await until(answers, PATIENCE_SECONDS)


async def a_visitor(instance: Instance, username: str | None = None) -> Visitor:
    url = instance.dev_json["sandbox"]["siteSessionUrl"]
    async with instance.http.post(url, json={"username": username or uuid4().hex[:12]}) as reply:
        body = await reply.json()
    headers = {"Cookie": body["cookie"], "X-WP-Nonce": body["nonce"]}
    return Visitor(instance, body["email"], body["walletAddress"], headers)


async def earned(instance: Instance, email: str, brand: str, event_type: str) -> None:
    """Posts an event of the brand and waits until its mint is indexed."""
    body = {
        "brandId": instance.dev_json[brand]["brandId"],
        "domain": instance.dev_json[brand]["domain"],
        "eventType": event_type,
        "userEmail": email,
    }
    url = f"{instance.base_url}/service-api/manual-event"
    async with instance.http.post(url, json=body) as reply:
        assert reply.status in {200, 202}, await reply.text()
    await all_minted(instance)


async def token_of(instance: Instance, email: str, kind: str) -> str:
    url = instance.dev_json["sandbox"]["identityTokenUrl"]
    async with instance.http.post(url, json={"email": email}) as reply:
        token: str = (await reply.json())[kind]
        return token


async def as_owner(
    instance: Instance,
    email: str,
    method: str,
    path: str = "",
    body: object = None,
    kind: str = "accessToken",
) -> tuple[int, dict[str, Any]]:
    """The answer of /site-links to a user who has proved this address."""
    headers = {"Authorization": f"Bearer {await token_of(instance, email, kind)}"}
    url = f"{instance.base_url}/site-links{path}"
    async with instance.http.request(method, url, json=body, headers=headers) as reply:
        return reply.status, await reply.json() if await reply.read() else {}


async def link_code(
    instance: Instance, email: str, allowance: int = 500, kind: str = "accessToken"
) -> str:
    body = {"host": instance.dev_json["site"]["host"], "dailyAllowance": allowance}
    status, answer = await as_owner(instance, email, "POST", body=body, kind=kind)
    assert status == 201, answer
    code: str = answer["code"]
    return code


def perk(instance: Instance, kind: str, place: int = 0) -> dict[str, str]:
    return {"perkId": instance.dev_json[kind][place]["perkId"]}


@pytest.mark.parametrize(("chain", "rounds"), [("tester", ROUNDS), ("anvil", 1)])
async def test_visitors_actions_happen_once_through_kills(
    instances: Instances, chain: str, rounds: int
) -> None:
    """Check-in, milestone, a claim and a purchase, killed between permit, claim and answer."""
    seed = int(os.environ.get("LTZD_TEST_SEED", random.randrange(10**6)))
    print("LTZD_TEST_SEED =", seed)
    moments, instance = random.Random(seed), await instances.of(chain)
    for _ in range(rounds):
        visitors = [await a_visitor(instance) for _ in range(VISITORS)]
        for visitor in visitors:
            await earned(instance, visitor.email, "brand", "account_creation")
        doing = [asyncio.create_task(_everything(visitor)) for visitor in visitors]
        await asyncio.sleep(moments.uniform(0.0, 0.35))
        await instance.kill9()
        await instance.start_again()
        codes = [code for done in await asyncio.gather(*doing) for code in done]
        assert len(set(codes)) == 2 * VISITORS
        for visitor in visitors:
            await _has_one_of_each(visitor)
    await all_minted(instance)
    await assert_books_agree(instance)
    books = await ltzd("books", "--json", "--data-dir", instance.data_dir)
    assert books.json["agree"], books.json["disagreements"]


async def _everything(visitor: Visitor) -> tuple[str, str]:
    """Does every action and returns the two confirmation codes."""

    async def milestone() -> None:
        await visitor.request_until_success("checkin", {})
        status, answer = 0, dict[str, Any]()
        while status != 200:
            try:
                status, answer = await visitor.ask("claim-milestone", {"milestoneDays": 1})
            except (aiohttp.ClientError, OSError):
                await _up(visitor.instance)
            # The answer to a claim that was written may have been lost with the process.
            if status == 400 and "already" in answer["message"]:
                return

    free, mug, _ = await asyncio.gather(
        visitor.request_until_success("redeem", perk(visitor.instance, "collections")),
        visitor.request_until_success("redeem", perk(visitor.instance, "items")),
        milestone(),
    )
    return free["confirmationCode"], mug["confirmationCode"]


async def _has_one_of_each(visitor: Visitor) -> None:
    async def is_indexed() -> bool:
        return await visitor.facts(_PURCHASES) > 0 and await visitor.facts(_CLAIMS) > 0

    await until(is_indexed)
    assert (await visitor.facts(_PURCHASES), await visitor.facts(_CLAIMS)) == (1, 1)
    _, me = await visitor.ask("me")
    assert me["streak"]["unclaimedMilestones"] == []
    assert me["streak"]["currentStreak"] == 1


async def test_a_sites_administrator_cannot_spend_what_another_brand_gave(
    one_instance: Instance,
) -> None:
    """The attacker enters the victim's address for a user of the attacker's site."""
    victim = f"{uuid4().hex[:12]}@mail.example"
    await earned(one_instance, victim, "otherBrand", "complete_survey")
    session = await a_visitor(one_instance, victim)
    assert session.email == victim

    status, answer = await session.ask("redeem", perk(one_instance, "items"))
    assert (status, answer["code"]) == (400, "redeem_failed")
    _, me = await session.ask("me")
    assert (me["walletAddress"], me["balance"]) == (session.wallet, 75)

    # The visitor may spend the rewards of this brand only.
    await earned(one_instance, victim, "brand", "custom_community_hour")
    assert (await session.ask("redeem", perk(one_instance, "items")))[0] == 200
    status, _ = await session.ask("redeem", perk(one_instance, "collections", 1))
    assert status == 400

    # After the victim's consent the site may spend up to the allowance.
    await session.request_until_success("link", {"code": await link_code(one_instance, victim, 1)})
    status, answer = await session.ask("redeem", perk(one_instance, "collections", 1))
    assert (status, answer["code"]) == (400, "redeem_failed")
    await session.request_until_success("link", {"code": await link_code(one_instance, victim)})
    status, answer = await session.ask("redeem", perk(one_instance, "collections", 1))
    assert (status, answer["success"]) == (200, True), answer


async def test_after_proof_of_an_address_a_site_session_spends_what_its_member_earned_there(
    one_instance: Instance,
) -> None:
    """The site's claim, also with `verified_emails`, does not apply to addresses from others."""
    visitor = await a_visitor(one_instance)
    await earned(one_instance, visitor.email, "brand", "account_creation")
    await visitor.request_until_success("checkin", {})
    await all_minted(one_instance)

    async def spendable() -> int:
        amount: int = (await visitor.ask("me"))[1]["spendable"]
        return amount

    assert await spendable() == 110
    assert (await as_owner(one_instance, visitor.email, "GET"))[0] == 200
    assert await spendable() == 110, "the owner's wallets were not requested"
    code = await link_code(one_instance, visitor.email, 40)
    assert await spendable() == 10
    await visitor.request_until_success("link", {"code": code})
    assert await spendable() == 50
    host = one_instance.dev_json["site"]["host"]
    assert (await as_owner(one_instance, visitor.email, "DELETE", f"/{host}"))[0] == 204
    assert await spendable() == 10


@pytest.mark.parametrize("kind", ["identityToken", "accessToken"])
async def test_a_proof_before_the_addresss_first_event_counts_as_one_after_it(
    one_instance: Instance, kind: str
) -> None:
    visitor = await a_visitor(one_instance)
    await link_code(one_instance, visitor.email, kind=kind)
    await earned(one_instance, visitor.email, "brand", "account_creation")
    await visitor.request_until_success("checkin", {})
    await all_minted(one_instance)

    assert (await visitor.ask("me"))[1]["spendable"] == 10, "what the member earned there"


async def test_a_link_and_its_removal_survive_a_kill(one_instance: Instance) -> None:
    visitor = await a_visitor(one_instance)
    code = await link_code(one_instance, visitor.email, 40)
    await visitor.request_until_success("link", {"code": code})
    await one_instance.kill9()
    await one_instance.start_again()
    assert (await visitor.ask("me"))[1]["link"]["dailyAllowance"] == 40
    assert (await visitor.ask("link", {"code": code}))[1]["code"] == "link_failed"
    assert (await visitor.ask("link", method="DELETE"))[0] == 200
    await one_instance.kill9()
    await one_instance.start_again()
    assert (await visitor.ask("me"))[1]["linked"] is False


async def test_a_link_code_gives_access_to_its_owners_wallet_only(one_instance: Instance) -> None:
    victim, thief = await a_visitor(one_instance), await a_visitor(one_instance)
    code = await link_code(one_instance, thief.email)
    status, answer = await victim.ask("link", {"code": code})
    # The site's user now has the thief's wallet; the thief has not got the victim's.
    assert (status, answer["walletAddress"]) == (200, thief.wallet)
    status, answer = await thief.ask("link", {"code": code})
    assert (status, answer["code"]) == (400, "link_failed")


async def test_one_brands_site_shows_no_data_of_another_brand(one_instance: Instance) -> None:
    visitor, other = await a_visitor(one_instance), "other-site.example"
    before = [await _ranked(visitor), await _ranked(visitor, other)]
    await visitor.request_until_success("checkin", {})
    await all_minted(one_instance)
    assert await _ranked(visitor) == before[0] + 1
    assert await _ranked(visitor, other) == before[1]
    status, answer = await visitor.ask("redeem", perk(one_instance, "collections"), host=other)
    assert (status, answer["code"]) == (400, "redeem_failed")


async def _ranked(visitor: Visitor, host: str | None = None) -> int:
    _, board = await visitor.ask("leaderboard?metric=ltz_earned&period=all", host=host)
    total: int = board["total"]
    return total
