"""Changes that commands make are in force in a running instance within a second."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from ltzd.rules.request_signatures import signature
from tests.support.commands import Outcome, ltzd
from tests.support.instances.instance import Answer, Instance
from tests.support.waiting import until

IN_FORCE_SECONDS = 1.0
PATH = "/service-api/manual-event"


class Shop:
    """A brand of the instance that only this test uses."""

    def __init__(self, instance: Instance, file: Path) -> None:
        self.instance = instance
        self.id = f"0x{uuid4().hex}00000000"
        self.domain = f"{uuid4().hex}.example"
        self.keys: dict[str, str] = {}
        self._file = file

    async def apply(self, reward: int = 5) -> Outcome:
        self._file.write_text(
            f"""
            [brand]
            id = "{self.id}"
            name = "{self.domain}"
            domains = ["{self.domain}"]
            signed_bypass = true
            [[events]]
            type = "form_submit"
            reward = {reward}
            """
        )
        return await self._ltzd("brand", "apply", self._file)

    async def brand(self, verb: str, *options: str) -> Outcome:
        done = await self._ltzd("brand", verb, self.domain, *options)
        assert done.code == 0, done.err
        return done

    async def event(self, verb: str, *arguments: str) -> Outcome:
        return await self._ltzd("event", verb, *arguments)

    async def _ltzd(self, *arguments: object) -> Outcome:
        return await ltzd(*arguments, "--data-dir", self.instance.data_dir)

    async def post(self, email: str | None = None) -> Answer:
        return await self.instance.post_event(
            email or f"{uuid4().hex}@mail.example",
            brandId=self.id,
            domain=self.domain,
            eventType="form_submit",
        )

    async def status_of_signed(self, key: str) -> int:
        """Post a signed event and return the answer's status."""
        body = {
            "brandId": self.id,
            "domain": self.domain,
            "eventType": "form_submit",
            "userEmail": f"{uuid4().hex}@mail.example",
            "metadata": {"source": "voice_claim"},
        }
        raw, now, nonce = json.dumps(body).encode(), str(int(time.time())), uuid4().hex
        headers = {
            "Content-Type": "application/json",
            "X-LTZ-Brand-Id": self.id,
            "X-LTZ-Timestamp": now,
            "X-LTZ-Nonce": nonce,
            "X-LTZ-Signature": signature(key, now, nonce, "POST", PATH.encode(), raw),
        }
        url = f"{self.instance.base_url}{PATH}"
        async with self.instance.http.post(url, data=raw, headers=headers) as reply:
            return reply.status

    async def rewards(self) -> dict[str, Any] | None:
        """The rewards by event type, or None while the brand is unknown."""
        url = f"{self.instance.base_url}/service-api/event-config"
        async with self.instance.http.get(url, params={"brandId": self.id}) as reply:
            if reply.status == 404:
                return None
            body = await reply.json()
        return {event["eventType"]: event["rewardAmount"] for event in body["events"]}

    async def is_known(self) -> bool:
        return await self.rewards() is not None

    async def is_unknown(self) -> bool:
        return not await self.is_known()


@pytest.fixture
def shop_file(tmp_path: Path) -> Path:
    return tmp_path / "shop.toml"


@pytest_asyncio.fixture
async def shop(one_instance: Instance, shop_file: Path) -> Shop:
    shop = Shop(one_instance, shop_file)
    shop.keys = (await shop.apply()).json
    await until(shop.is_known, IN_FORCE_SECONDS)
    return shop


async def test_a_disabled_brand_is_unknown_within_a_second_until_it_is_enabled(
    shop: Shop,
) -> None:
    assert (await shop.post()).status == 200

    await shop.brand("disable")
    await until(shop.is_unknown, IN_FORCE_SECONDS)
    refused = await shop.post()
    assert (refused.status, refused.body["success"]) == (403, False)
    await shop.apply(reward=6)
    assert await shop.is_unknown()

    await shop.brand("enable")
    await until(shop.is_known, IN_FORCE_SECONDS)
    assert (await shop.post()).body["rewardAmount"] == 6


async def test_a_paused_brands_events_wait_and_are_minted_when_it_goes_on(shop: Shop) -> None:
    await shop.brand("pause")

    async def waits() -> Answer | None:
        answer = await shop.post()
        return answer if answer.status == 202 else None

    queued = await until(waits, IN_FORCE_SECONDS)
    assert queued is not None
    assert queued.body["status"] == "queued"
    assert queued.hash is None
    other = await shop.instance.post_event(f"{uuid4().hex}@shop.example")
    await shop.instance.minted(other.event_id)
    assert (await shop.instance.event(queued.event_id))["status"] == "queued"
    shown = await shop.event("show", queued.event_id)
    assert "the brand is paused" in shown.out

    await shop.brand("resume")
    await shop.instance.minted(queued.event_id)
    facts = (await shop.event("show", queued.event_id, "--json")).json
    assert facts["status"] in {"minted", "final"}
    hashes = [attempt["hash"] for attempt in facts["transaction"]["attempts"]]
    assert facts["mint"]["transactionHash"] in hashes
    assert (await shop.event("retry", queued.event_id)).code == 1
    assert (await shop.post()).status == 200


async def test_what_a_disabled_brand_owes_is_still_minted(shop: Shop) -> None:
    await shop.brand("pause")

    async def waits() -> Answer | None:
        answer = await shop.post()
        return answer if answer.status == 202 else None

    queued = await until(waits, IN_FORCE_SECONDS)
    assert queued is not None
    await shop.brand("disable")
    await until(shop.is_unknown, IN_FORCE_SECONDS)
    await shop.brand("resume")

    await shop.instance.minted(queued.event_id)


async def test_a_rotated_key_and_the_one_before_both_sign_until_that_is_revoked(
    shop: Shop,
) -> None:
    first = shop.keys["securityKey"]
    assert await shop.status_of_signed(first) == 200

    second = (await shop.brand("rotate-key", "--key", "security_key")).json["securityKey"]

    async def signs(key: str) -> bool:
        return await shop.status_of_signed(key) == 200

    await until(lambda: signs(second), IN_FORCE_SECONDS)
    assert await signs(first)

    third = (await shop.brand("rotate-key", "--key", "security_key", "--revoke")).json
    await until(lambda: signs(third["securityKey"]), IN_FORCE_SECONDS)
    assert await shop.status_of_signed(first) == 401
    assert await shop.status_of_signed(second) == 401


async def test_a_change_that_nobody_was_told_of_is_in_force_within_a_second_too(
    shop: Shop,
) -> None:
    """The connection that receives notifications can be lost at any moment."""
    async with shop.instance.database() as connection:
        await connection.execute(
            """
            UPDATE brands
               SET disabled_at = now(), revision = nextval('brand_revisions')
             WHERE id = decode(substring($1 from 3), 'hex')
            """,
            shop.id,
        )
    await until(shop.is_unknown, IN_FORCE_SECONDS)


async def test_two_files_applied_at_once_leave_one_of_them_whole(shop: Shop) -> None:
    both = await asyncio.gather(
        *(
            shop.instance.command(*_apply(shop, reward), output=asyncio.subprocess.PIPE)
            for reward in (7, 8)
        )
    )
    errors = [(await process.communicate())[1].decode() for process in both]

    assert [process.returncode for process in both] == [0, 0], errors

    async def is_one_of_them() -> bool:
        rewards = await shop.rewards()
        return rewards is not None and rewards["form_submit"] in {7, 8}

    await until(is_one_of_them, IN_FORCE_SECONDS)


def _apply(shop: Shop, reward: int) -> list[str]:
    file = shop.instance.folder / f"{shop.domain}-{reward}.toml"
    file.write_text(
        f"""
        [brand]
        id = "{shop.id}"
        name = "{shop.domain}"
        domains = ["{shop.domain}"]
        [[events]]
        type = "form_submit"
        reward = {reward}
        """
    )
    return ["brand", "apply", str(file), "--data-dir", str(shop.instance.data_dir)]
