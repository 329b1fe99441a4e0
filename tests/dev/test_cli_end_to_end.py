"""CLI commands with a running dev instance: brands change without a restart, and status."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest_asyncio

from tests.support.instances.instance import Instance
from tests.support.waiting import until

IN_FORCE_SECONDS = 1.0
BRAND = """
[brand]
id = "{brand}"
name = "Corner shop"
domains = ["corner.example"]

[[events]]
type = "account_creation"
reward = {reward}
"""


async def ltzd(instance: Instance, *arguments: str) -> tuple[int, str, str]:
    """Runs a command; returns exit code, standard output and standard error."""
    done = await instance.command(*arguments, output=asyncio.subprocess.PIPE)
    out, err = await done.communicate()
    assert done.returncode is not None
    return done.returncode, out.decode(), err.decode()


@pytest_asyncio.fixture
async def brand_file(one_instance: Instance) -> AsyncIterator[Path]:
    path = one_instance.folder / f"{uuid4().hex}.toml"
    yield path
    path.unlink(missing_ok=True)


def declare(path: Path, brand: str, reward: int, more: str = "") -> None:
    path.write_text(BRAND.format(brand=brand, reward=reward) + more)


async def configuration(instance: Instance, brand: str) -> tuple[int, dict[str, Any]]:
    url = f"{instance.base_url}/service-api/event-config"
    async with instance.http.get(url, params={"brandId": brand}) as reply:
        return reply.status, await reply.json()


async def reward(instance: Instance, brand: str) -> int | None:
    _, body = await configuration(instance, brand)
    rewards = {event["eventType"]: event["rewardAmount"] for event in body.get("events", [])}
    ltz: int | None = rewards.get("account_creation")
    return ltz


async def test_a_brand_file_is_shown_then_applied_then_in_force_within_a_second(
    one_instance: Instance, brand_file: Path
) -> None:
    brand = "0x" + uuid4().hex + "00000000"
    where = ("--data-dir", str(one_instance.data_dir))
    declare(brand_file, brand, 70)

    code, changes, _ = await ltzd(
        one_instance, "brand", "apply", str(brand_file), "--dry-run", *where
    )
    assert code == 0
    assert "account_creation: reward 70" in changes
    assert "securityKey" not in changes
    assert (await configuration(one_instance, brand))[0] == 404

    code, keys, _ = await ltzd(one_instance, "brand", "apply", str(brand_file), *where)
    assert code == 0
    assert json.loads(keys).keys() == {
        *("brandId", "securityKey", "apiKey", "webhookSecret", "verificationToken")
    }

    async def is_now(expected: int) -> bool:
        return await reward(one_instance, brand) == expected

    await until(lambda: is_now(70), IN_FORCE_SECONDS)
    answer = await one_instance.post_event(
        f"{uuid4().hex}@corner.example", brandId=brand, domain="corner.example"
    )
    assert (answer.status, answer.body["rewardAmount"]) == (200, 70)

    declare(brand_file, brand, 80)
    code, output, _ = await ltzd(one_instance, "brand", "apply", str(brand_file), *where)
    assert (code, output) == (0, ""), "keys are shown once only"
    await until(lambda: is_now(80), IN_FORCE_SECONDS)


async def test_a_faulty_brand_file_changes_nothing_and_every_fault_is_told(
    one_instance: Instance, brand_file: Path
) -> None:
    brand = one_instance.dev_json["otherBrand"]["brandId"]
    before = await configuration(one_instance, brand)
    declare(brand_file, brand, -5, "coolness = 11")
    code, out, err = await ltzd(
        one_instance, "brand", "apply", str(brand_file), "--data-dir", str(one_instance.data_dir)
    )
    assert (code, out) == (1, "")
    assert err.startswith("ltzd: 2 faults:")
    assert "Traceback" not in err
    assert await configuration(one_instance, brand) == before


async def test_status_tells_programs_and_people_how_it_stands(one_instance: Instance) -> None:
    where = ("--data-dir", str(one_instance.data_dir))
    code, out, _ = await ltzd(one_instance, "status", "--json", *where)
    facts = json.loads(out)
    assert (code, facts["ready"], facts["reasons"]) == (0, True, [])
    assert facts["chain"]["chainId"] == one_instance.dev_json["chainId"]
    assert facts["chain"]["ltz"] == one_instance.dev_json["contracts"]["LTZ"]
    assert [(lane["wallet"], lane["kind"], lane["isHeld"]) for lane in facts["lanes"]] == [
        (one_instance.dev_json["minter"], "mint", True),
        (one_instance.dev_json["operator"], "relay", True),
    ]
    code, page, _ = await ltzd(one_instance, "status", *where)
    assert code == 0
    assert "ready" in page


async def test_a_command_without_an_instance_says_what_to_do(one_instance: Instance) -> None:
    nowhere = str(one_instance.folder / "nowhere")
    code, out, err = await ltzd(one_instance, "status", "--data-dir", nowhere)
    assert (code, out) == (1, "")
    assert err == (
        f"ltzd: No dev instance runs in {nowhere}: give --config FILE, start `ltzd dev` there "
        "first, or name its data directory with --data-dir.\n"
    )
