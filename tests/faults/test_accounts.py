"""OAuth accounts on a running instance: each gets a wallet, and its owner may claim perks."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.support.commands import ltzd
from tests.support.instances.perks import Perks, perks_of
from tests.support.instances.shared import Instances
from tests.support.waiting import until

GUILD, ROLE = "41771983423143937", "41771983423143936"
_DISCORD_EPOCH_MS = 1_420_070_400_000


def a_discord_id() -> str:
    """A Discord id of an account that is some days old."""
    opened = int(time.time() * 1000) - _DISCORD_EPOCH_MS - random.randrange(10**8, 10**10)
    return str(opened << 22 | random.randrange(1 << 22))


@dataclass
class Community:
    """A brand whose perks are for members of a guild."""

    perks: Perks
    brand: str
    for_role: int
    for_level: int

    async def pregenerated(self, id_: str, **changes: object) -> tuple[int, dict[str, Any]]:
        body = {"brand_id": self.brand, "oauth_provider": "discord", "oauth_user_id": id_}
        url = f"{self.perks.instance.base_url}/service-api/pregenerate-user"
        async with self.perks.instance.http.post(url, json=body | changes) as reply:
            return reply.status, await reply.json()

    async def control(self, **body: object) -> None:
        url = self.perks.instance.dev_json["sandbox"]["accountsUrl"]
        body = {"provider": "discord", "known": True, **body}
        async with self.perks.instance.http.post(url, json=body) as reply:
            assert reply.status == 200, await reply.text()


@pytest_asyncio.fixture(scope="module")
async def opened(
    instances: Instances, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Community]:
    instance = await instances.of("anvil")
    async with perks_of(instance) as perks:
        brand = f"0x{uuid4().hex}{'0' * 8}"
        role, level = [await perks.relays.collection("--brand", brand) for _ in range(2)]
        file = tmp_path_factory.mktemp("brand") / "brand.toml"
        file.write_text(
            f"""
[brand]
id = "{brand}"
name = "Community"
domains = ["community.example"]

[[constraints]]
collection_id = {role}
kind = "chat_role"
guild_id = "{GUILD}"
role_id = "{ROLE}"
ttl_seconds = 1

[[constraints]]
collection_id = {level}
kind = "chat_level"
guild_id = "{GUILD}"
min = 5
ttl_seconds = 1
"""
        )
        applied = await ltzd("brand", "apply", file, "--data-dir", instance.data_dir)
        assert applied.json["brandId"] == brand
        await perks.head_is_indexed()
        community = Community(perks, brand, role, level)

        async def is_in_force() -> bool:
            url = f"{instance.base_url}/service-api/event-config?brandId={brand}"
            async with instance.http.get(url) as reply:
                return reply.status == 200

        await until(is_in_force)
        yield community


@pytest_asyncio.fixture
async def community(opened: Community, instances: Instances) -> Community:
    await instances.of("anvil")
    return opened


async def test_a_login_with_an_account_gets_its_pregenerated_wallet(community: Community) -> None:
    id_ = a_discord_id()
    answers = await asyncio.gather(*(community.pregenerated(id_) for _ in range(20)))
    assert {status for status, _ in answers} == {200}, answers
    assert sum(body["created_new"] for _, body in answers) == 1
    (wallet,) = {body["wallet_address"] for _, body in answers}

    other = community.perks.instance.dev_json["otherBrand"]["brandId"]
    _, again = await community.pregenerated(id_, brand_id=other)
    assert (again["wallet_address"], again["created_new"]) == (wallet, False)

    user = await community.perks.relays.user_of_account("discord", id_)
    assert user.account.address == wallet
    stranger = await community.perks.relays.user_of_account("discord", a_discord_id())
    assert stranger.account.address != wallet


async def test_an_address_an_account_and_a_login_of_one_person_share_one_wallet(
    community: Community,
) -> None:
    relays, instance = community.perks.relays, community.perks.instance
    id_, email = a_discord_id(), f"{uuid4().hex}@shop.example"
    _, pregenerated = await community.pregenerated(id_)
    wallet = pregenerated["wallet_address"]
    before = await instance.post_event(email)
    assert before.body["walletAddress"] != wallet

    user = await relays.user_of_account("discord", id_, links=[{"email": email}])
    assert user.wallet == wallet
    claim = relays.claim(user, community.for_role)
    details = (await relays.relay(user, "PerkNFT", claim)).assert_refused(403, "VALIDATION_FAILED")
    assert details["constraint"] == "chat_role", "the wallet is that of the token"

    after = await instance.post_event(email, eventType="review_submission")
    assert after.body["walletAddress"] == wallet
    await instance.minted(after.event_id)
    _, again = await community.pregenerated(id_)
    assert (again["wallet_address"], again["created_new"]) == (wallet, False)


async def test_accounts_and_their_wallets_survive_a_kill(community: Community) -> None:
    id_ = a_discord_id()
    status, before = await community.pregenerated(id_)
    assert status == 200
    asking = [asyncio.create_task(community.pregenerated(a_discord_id())) for _ in range(5)]
    await community.perks.instance.kill9()
    await asyncio.gather(*asking, return_exceptions=True)
    await community.perks.instance.start_again()
    status, after = await community.pregenerated(id_)
    assert (status, after["created_new"]) == (200, False)
    assert after["wallet_address"] == before["wallet_address"]


@pytest.mark.parametrize("kind", ["chat_role", "chat_level"])
async def test_a_members_perk_can_be_claimed_once_the_platform_confirms_membership(
    community: Community, kind: str
) -> None:
    collection = {"chat_role": community.for_role, "chat_level": community.for_level}[kind]
    relays, id_ = community.perks.relays, a_discord_id()
    user = await relays.user_of_account("discord", id_)

    async def claim() -> Any:
        return await relays.relay(user, "PerkNFT", relays.claim(user, collection))

    refused = (await claim()).assert_refused(403, "VALIDATION_FAILED")
    assert (refused["constraint"], refused["collectionId"]) == (kind, collection)
    await community.control(id=id_, guildId=GUILD, roles=[ROLE], level=7)

    async def is_claimed() -> bool:
        return bool((await claim()).status == 200)

    await until(is_claimed)


async def test_a_claim_without_a_linked_account_is_refused_with_that_reason(
    community: Community,
) -> None:
    relays = community.perks.relays
    user = await relays.user()
    answer = await relays.relay(user, "PerkNFT", relays.claim(user, community.for_role))
    details = answer.assert_refused(403, "VALIDATION_FAILED")
    assert (details["constraint"], details["reason"]) == ("chat_role", "account_not_linked")
