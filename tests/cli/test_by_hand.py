"""`ltzd tx` and `ltzd lane` on a running instance: what a person does at night is done at once."""

import signal
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from ltzd.values import address_of, checksummed
from tests.support.commands import Outcome, ltzd
from tests.support.instances.books import assert_books_agree
from tests.support.instances.fees import mined_by_hand
from tests.support.instances.instance import Answer, Instance
from tests.support.waiting import until


class Night:
    """A person with a terminal beside an instance whose blocks a test mines."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    async def ltzd(self, *arguments: object) -> Outcome:
        return await ltzd(*arguments, "--data-dir", self.instance.data_dir)

    async def a_published_mint(self) -> tuple[Answer, dict[str, Any]]:
        """A new event whose mint a node has and no block; returns the event and transaction."""
        event = await self.instance.post_event(f"{uuid4().hex}@mail.example")
        assert event.status == 200, event.body
        (row,) = await until(self.published_mints)
        return event, row

    async def published_mints(self) -> list[dict[str, Any]]:
        wallet = ("--wallet", self.instance.minter)
        listed = await self.ltzd("tx", "list", "--state", "published", *wallet, "--json")
        rows: list[dict[str, Any]] = listed.json["transactions"]
        return rows

    async def is_in_the_pool(self, hash_: str) -> bool:
        return await self.instance.rpc("eth_getTransactionByHash", hash_) is not None

    async def mine(self, blocks: int) -> None:
        for _ in range(blocks):
            await self.instance.rpc("evm_mine")

    async def mint_lane(self) -> dict[str, Any]:
        listed = await self.ltzd("lane", "list", "--kind", "mint", "--json")
        minter = checksummed(address_of(self.instance.minter))
        row: dict[str, Any] = next(row for row in listed.json["lanes"] if row["wallet"] == minter)
        return row


@pytest_asyncio.fixture
async def night(one_instance: Instance) -> AsyncIterator[Night]:
    night = Night(one_instance)
    yield night
    await night.ltzd("lane", "resume", "--all")
    await assert_books_agree_at_last(one_instance)


async def assert_books_agree_at_last(instance: Instance) -> None:
    async def all_minted() -> bool:
        await instance.rpc("evm_mine")
        owed = "SELECT count(*) FROM rewards WHERE mint_block_hash IS NULL"
        return bool(await instance.ask(owed) == 0)

    await until(all_minted, 60.0)
    await assert_books_agree(instance)


async def test_a_stuck_mint_is_sped_up_and_minted_once(night: Night) -> None:
    async with mined_by_hand(night.instance):
        event, row = await night.a_published_mint()

        done = await night.ltzd("tx", "speed-up", row["id"], "--json")

        assert done.json["isDone"], done.err
        newest = done.json["request"]["attempt"]
        assert newest != row["newestHash"]
        await until(lambda: night.is_in_the_pool(newest))
        again = await night.ltzd("tx", "speed-up", row["newestHash"], "--json")
        assert not again.json["isNew"]
        await night.mine(1)
        minted = await night.instance.minted(event.event_id)
    assert minted["transactionHash"] == newest
    late = await night.ltzd("tx", "cancel", row["id"])
    assert late.code == 1
    assert "is too late to replace" in late.err or "is settled" in late.err


async def test_a_cancelled_mint_is_minted_by_a_new_transaction_once_that_is_final(
    night: Night,
) -> None:
    async with mined_by_hand(night.instance):
        event, row = await night.a_published_mint()
        done = await night.ltzd("tx", "cancel", row["id"])
        assert done.code == 0, done.err
        shown = (await night.ltzd("tx", "show", row["id"], "--json")).json
        assert shown["hasSelfTransfer"]
        await until(lambda: night.is_in_the_pool(shown["newestHash"]))
        await night.mine(70)  # past finality, 64 blocks below the head

        async def is_settled() -> bool:
            await night.mine(1)
            settled = (await night.ltzd("tx", "show", row["id"], "--json")).json
            return bool(settled["state"] == "cancelled")

        await until(is_settled, 60.0)

        async def is_minted() -> bool:
            await night.mine(1)
            return (await night.instance.event(event.event_id))["status"] in {"minted", "final"}

        await until(is_minted, 60.0)
    page = (await night.ltzd("tx", "show", row["id"])).out
    assert "settled: cancelled" in page


async def test_a_paused_lane_signs_nothing_and_resumes(night: Night) -> None:
    paused = await night.ltzd("lane", "pause", "--kind", "mint", "--reason", "a look", "--json")
    (lane,) = paused.json["lanes"]
    assert lane["inForce"] is True, paused.err
    queued = await night.instance.post_event(f"{uuid4().hex}@mail.example")
    assert queued.status == 202
    status = await night.instance.status()
    reasons = [row["pausedFor"] for row in status["lanes"] if row["kind"] == "mint"]
    assert reasons == ["by_hand"]
    row = await night.mint_lane()
    assert (row["pausedByHandReason"], row["holder"]) == ("a look", lane["holder"])
    assert row["nonceOnChain"] == row["nextNonce"]
    assert int(row["balanceWei"]) > 0

    resumed = await night.ltzd("lane", "resume", row["wallet"], "--json")

    assert resumed.json["lanes"][0]["inForce"] is True
    await night.instance.minted(queued.event_id)


@pytest.mark.parametrize("command", ["cancel", "speed-up"])
async def test_a_frozen_process_does_not_carry_out_what_was_withdrawn(
    night: Night, command: str
) -> None:
    process = night.instance.process
    assert process is not None
    async with mined_by_hand(night.instance):
        event, row = await night.a_published_mint()
        process.send_signal(signal.SIGSTOP)
        try:
            refused = await night.ltzd("tx", command, row["id"], "--wait", "0.5")
        finally:
            process.send_signal(signal.SIGCONT)
        assert refused.code == 1
        assert "no lane will do it later" in refused.err
        served = await night.ltzd("lane", "resume", "--all", "--json")
        assert served.code == 0
        shown = (await night.ltzd("tx", "show", row["id"], "--json")).json
        assert len(shown["attempts"]) == 1
        await night.mine(1)
        minted = await night.instance.minted(event.event_id)
    assert minted["transactionHash"] == row["newestHash"]
