"""Webhooks arrive at least once and signed; a bad receiver delays only its own webhooks."""

import asyncio
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from ltzd import __version__, telemetry
from ltzd.deliveries import database_time
from ltzd.deliveries.leases import LEASE, RENEWAL_AGE
from ltzd.providers import brand_webhooks
from ltzd.providers.brand_webhooks import BrandWebhooks
from ltzd.rules.webhooks import ATTEMPTS, FEW_SLOTS, JITTER, MOST_SLOTS, PAUSES
from ltzd.store.brands import keys as brand_keys
from ltzd.store.database import session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.wakeups import POLL_SECONDS
from ltzd.store.webhooks import records as webhook_records
from ltzd.values import hex_of
from tests.support.rows.core import a_hash, value
from tests.support.services.webhooks import SEALER, Receiver, World, answering, hanging
from tests.support.waiting import Stopwatch, until

HOUR = timedelta(hours=1)


def counted(metric: Any, *labels: str) -> float:
    """Returns the current value of a counter."""
    number: float = (metric.labels(*labels) if labels else metric)._value.get()
    return number


async def attempted(world: World, times: int) -> dict[str, Any]:
    """The only webhook, once the outcome of its last attempt is written."""

    async def there() -> bool:
        row = await world.row()
        waits = row["next_at"] - world.clock.now()
        is_leased = timedelta(0) < waits <= LEASE and times > 1
        return row["attempts"] == times and bool(row["last_error"]) and not is_leased

    await until(there)
    return await world.row()


# --- contents ----------------------------------------------------------------------------------


async def test_a_webhook_is_posted_at_once_with_a_valid_signature(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/hooks")
    (secret,) = await world.secrets(brand)
    async with world.sending():
        (reward,) = await world.minted(brand, ltz=30)
        (post,) = await receiver.got("/hooks")
        await world.delivered()

    body = Webhook(secret).verify(post.body, post.headers)
    row = await world.row()
    assert body["ltzAmount"] == 30
    assert body["transactionHash"] == hex_of(a_hash("mint in 7"))
    assert post.id == f"msg_{row['id'].hex}"
    assert (row["subject"], row["attempts"], row["last_status"]) == (reward, 1, 204)
    assert post.headers["content-type"] == "application/json"
    assert post.headers["user-agent"] == f"ltzd/{__version__}"


async def test_a_sender_in_this_process_is_notified_before_its_next_poll(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/hooks")
    await world.minted(brand)
    async with world.sending():
        await receiver.got("/hooks")
        for number in range(2, 7):
            asked_at = asyncio.get_running_loop().time()
            await world.minted(brand)
            post = (await receiver.got("/hooks", number))[-1]
            if post.at - asked_at < 0.3:
                return
    pytest.fail("it always came with the look of every second")


async def test_during_a_rotation_both_secrets_sign_and_afterwards_only_the_new_one(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/hooks")
    (old,) = await world.secrets(brand)
    async with world.sending():
        await world.minted(brand)
        await world.delivered(1)
        async with session(world.pool) as connection:
            rotation = await brand_keys.rotate(
                connection, brand.address, "webhook_secret", SEALER, revoke=False
            )
        await world.minted(brand)
        await world.delivered(2)
        world.advance(25 * HOUR)
        await world.minted(brand)
        await world.delivered(3)

    alone, both, new = await receiver.got("/hooks", 3)
    assert alone.headers["webhook-signature"].count("v1,") == 1
    assert both.headers["webhook-signature"].count("v1,") == 2
    assert Webhook(old).verify(both.body, both.headers) == both.json
    assert Webhook(rotation.key).verify(both.body, both.headers) == both.json
    assert new.verified_by(rotation.key)
    assert not new.verified_by(old)


async def test_a_reversal_and_an_undone_mint_are_posted_like_a_mint(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/hooks")
    async with world.sending():
        (reward,) = await world.minted(brand)
        await world.delivered(1)
        await world.undo(6)
        await world.fail(reward, reason="LTZ says: no")
        await world.delivered(2)

    first, second = await receiver.got("/hooks", 2)
    assert (second.json["event"], second.json["reason"]) == ("ltz_reverted", "LTZ says: no")
    assert second.json["userId"] == first.json["userId"]
    assert second.id != first.id


async def test_a_reward_undone_by_a_reorg_is_announced_when_it_is_minted_again(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/hooks")
    (reward,) = await world.minted(brand)
    await world.undo(6)
    async with world.sending():

        async def is_deferred() -> bool:
            return bool((await world.row())["next_at"] > world.clock.now())

        await until(is_deferred)
        row = await world.row()
        assert (row["attempts"], row["last_error"], receiver.posts) == (0, None, {})
        await world.mint(reward, block=8)
        world.advance(timedelta(seconds=20))
        (post,) = await receiver.got("/hooks")
        await world.delivered()

    assert post.json["transactionHash"] == hex_of(a_hash("mint in 8"))
    assert (await world.row())["attempts"] == 1


async def test_a_webhook_that_cannot_be_sent_waits_the_longer_the_older_it_is(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/hooks")
    await world.minted(brand, 3)
    await world.undo(6)
    for age in (timedelta(minutes=5), timedelta(days=1)):
        await value(
            world.pool,
            """
            UPDATE webhooks SET created_at = created_at - $1::interval
             WHERE id = (SELECT id FROM webhooks
                          WHERE created_at > now() - interval '1 minute' LIMIT 1)
            """,
            age,
        )
    begun = world.clock.now()
    async with world.sending():

        async def are_deferred() -> bool:
            return all(row["next_at"] > begun for row in await world.rows())

        await until(are_deferred)

    waits = [round((row["next_at"] - begun).total_seconds(), -1) for row in await world.rows()]
    assert waits == [600, 30, 10]
    assert receiver.posts == {}


async def test_a_brand_without_a_readable_secret_does_not_keep_the_sender_at_work(
    world: World, receiver: Receiver
) -> None:
    lost, other = await world.brand("/lost"), await world.brand("/other")
    strange = Sealer([b"\x06" * 32])
    async with session(world.pool) as connection:
        await brand_keys.rotate(connection, lost.address, "webhook_secret", strange, revoke=True)
    await world.minted(lost, 60)
    async with world.sending():
        for number in range(1, 4):
            await world.minted(other)
            await receiver.got("/other", number)
        await world.delivered(3)

    now = world.clock.now()
    rows = [row for row in await world.rows() if row["brand_id"] == lost.address]
    assert sum(row["next_at"] > now for row in rows) == FEW_SLOTS
    assert {row["attempts"] for row in rows} == {0}


async def test_a_brand_with_an_undecryptable_secret_delays_only_itself(
    world: World, receiver: Receiver
) -> None:
    lost, other = await world.brand("/lost"), await world.brand("/other")
    strange = Sealer([b"\x06" * 32])
    async with session(world.pool) as connection:
        await brand_keys.rotate(connection, lost.address, "webhook_secret", strange, revoke=True)
    async with world.sending():
        await world.minted(lost)
        await world.minted(other)
        await world.delivered(1)
    assert "/lost" not in receiver.posts
    assert [row["attempts"] for row in await world.rows()] == [0, 1]


# --- failures -----------------------------------------------------------------------------------


async def test_an_endpoint_that_answers_500_for_days_is_disabled_after_ten_attempts(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/broken")
    receiver.behaviours["/broken"] = answering(500)
    closed = counted(telemetry.ENDPOINT_DISABLEMENTS)
    await world.minted(brand)
    async with world.sending():
        for attempt, pause in enumerate(PAUSES, 1):
            row = await attempted(world, attempt)
            waits = row["next_at"] - world.clock.now()
            assert pause * 0.999 - timedelta(seconds=5) <= waits <= pause * (1 + JITTER), attempt
            assert (row["state"], row["last_status"]) == ("pending", 500)
            world.advance(row["next_at"] - world.clock.now())
        row = await attempted(world, ATTEMPTS)

        async def disabled() -> bool:
            return counted(telemetry.ENDPOINT_DISABLEMENTS) == closed + 1

        await until(disabled)
        await world.minted(brand)
        await until(polled(world))

    assert (row["state"], row["last_error"]) == ("exhausted", "status 500")
    assert (await world.states())[:2] == ["exhausted", "pending"], "a later webhook did not wait"
    posts = receiver.posts["/broken"]
    assert len(posts) == ATTEMPTS
    assert len({post.id for post in posts}) == 1
    stamps = [int(post.headers["webhook-timestamp"]) for post in posts]
    assert stamps == sorted(set(stamps)), "the timestamp is not that of each attempt"
    async with session(world.pool) as connection:
        (endpoint,) = await webhook_records.disabled_endpoints(connection, brand.address)
    assert endpoint.reason == "nothing arrived for three days"


def polled(world: World) -> Any:
    """A webhook of another brand, written later, was delivered meanwhile."""
    done: list[object] = []

    async def check() -> bool:
        if not done:
            done.append(await world.minted(await world.brand("/witness")))
        return bool(world.receiver.posts["/witness"])

    return check


async def test_a_single_webhook_that_is_given_up_does_not_disable_an_endpoint_that_works(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/picky")
    (bad,) = await world.minted(brand)
    await value(
        world.pool,
        "UPDATE webhooks SET attempts = $1, next_at = next_at + interval '1 minute'",
        ATTEMPTS - 1,
    )

    async def picky(request: web.Request) -> web.StreamResponse:
        text = await request.text()
        return web.Response(status=400 if '"ltzAmount":100,' in text else 200)

    receiver.behaviours["/picky"] = picky
    await world.minted(brand, ltz=7)
    async with world.sending():
        await world.delivered(1)
        world.advance(timedelta(minutes=2))

        async def given_up() -> bool:
            return "exhausted" in await world.states()

        await until(given_up)
        await world.minted(brand, ltz=8)
        world.advance(timedelta(minutes=2))  # the endpoint rests after a failure
        await world.delivered(2)
    (row,) = [row for row in await world.rows() if row["subject"] == bad]
    assert row["state"] == "exhausted"


async def test_410_disables_an_endpoint_at_once_and_enabling_it_sends_the_waiting_webhooks(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/gone")
    receiver.behaviours["/gone"] = answering(410)
    async with world.sending():
        await world.minted(brand)

        async def disabled() -> bool:
            async with session(world.pool) as connection:
                return bool(await webhook_records.disabled_endpoints(connection, None))

        await until(disabled)
        await world.minted(brand, 3)
        await until(polled(world))
        assert len(receiver.posts["/gone"]) == 1

        del receiver.behaviours["/gone"]
        async with session(world.pool) as connection:
            assert await webhook_records.is_disabled(connection, brand.address)
            ids = [row["id"] for row in await world.rows()]
            await webhook_records.replay(connection, ids)
            await webhook_records.enable(connection, brand.address)
            assert not await webhook_records.is_disabled(connection, brand.address)
        await world.delivered(4 + 1)
    posts = receiver.posts["/gone"]
    assert posts[0].id in {post.id for post in posts[1:]}, "the refused webhook was not sent again"


async def test_another_url_in_the_brands_file_enables_the_endpoint(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/gone")
    receiver.behaviours["/gone"] = answering(410)
    async with world.sending():
        await world.minted(brand)
        await attempted(world, 1)
        await world.apply(brand.model_copy(update={"webhook_url": receiver.url("/new")}))
        world.advance(timedelta(minutes=2))
        await world.delivered(1)
    assert len(receiver.posts["/new"]) == 1


async def test_a_redirect_is_a_failure_and_is_not_followed(
    world: World, receiver: Receiver
) -> None:
    receiver.behaviours["/moved"] = answering(307, Location="/elsewhere")
    await world.minted(await world.brand("/moved"))
    async with world.sending():
        row = await attempted(world, 1)

    assert (row["state"], row["last_status"], row["last_error"]) == ("pending", 307, "status 307")
    assert set(receiver.posts) == {"/moved"}


@pytest.mark.parametrize(("status", "asked_for"), [(503, 600), (500, 90_000)])
async def test_retry_after_is_obeyed_up_to_a_day(
    world: World, receiver: Receiver, status: int, asked_for: int
) -> None:
    receiver.behaviours["/busy"] = answering(status, **{"Retry-After": str(asked_for)})
    await world.minted(await world.brand("/busy"))
    async with world.sending():
        row = await attempted(world, 1)

    waits = row["next_at"] - world.clock.now()
    assert timedelta(seconds=-5) < waits - timedelta(seconds=min(asked_for, 86_400)) <= timedelta(0)


async def test_an_overloaded_endpoint_rests_as_long_as_it_asks(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/busy")
    receiver.behaviours["/busy"] = answering(429, **{"Retry-After": "60"})
    async with world.sending():
        await world.minted(brand)
        await attempted(world, 1)
        await world.minted(brand)
        await until(polled(world))
        assert len(receiver.posts["/busy"]) == 1

        del receiver.behaviours["/busy"]
        world.advance(timedelta(seconds=70))
        await world.delivered(3)


async def test_a_200_with_an_endless_or_too_long_body_is_a_delivery(
    world: World, receiver: Receiver
) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x" * 1_000_000)
        return await hanging(request)

    async def packed(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"no gzip", headers={"Content-Encoding": "gzip"})

    receiver.behaviours |= {"/endless": endless, "/packed": packed}
    async with world.sending():
        await world.minted(await world.brand("/endless"))
        await world.minted(await world.brand("/packed"))
        await world.delivered(2)


async def test_an_endpoint_inside_the_private_network_is_never_requested(
    world: World, receiver: Receiver
) -> None:
    async def names(host: str) -> list[str]:
        return {"inside.example": ["10.0.0.7"], "here.example": ["127.0.0.1"]}[host]

    before = counted(telemetry.WEBHOOK_ATTEMPTS, "refused")
    inside = await world.brand(url="https://inside.example/hooks")
    here = await world.brand(url="https://here.example/hooks")
    await world.minted(inside)
    await world.minted(here)
    async with world.sending(policy=brand_webhooks.guard_policy(), resolve=names):

        async def refused() -> bool:
            return all(row["last_error"] for row in await world.rows())

        await until(refused)
    attempts = {(row["state"], row["attempts"], row["last_error"]) for row in await world.rows()}
    assert attempts == {("pending", 1, "an address of the host is not allowed")}
    assert counted(telemetry.WEBHOOK_ATTEMPTS, "refused") == before + 2
    assert receiver.posts == {}


async def test_an_internal_error_is_counted_and_stops_no_other_brand(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = await world.brand("/bad"), await world.brand("/good")
    post = BrandWebhooks.post

    async def breaks(self: BrandWebhooks, message: Any, *rest: Any) -> Any:
        if message.url.endswith("/bad"):
            raise ZeroDivisionError
        return await post(self, message, *rest)

    monkeypatch.setattr(BrandWebhooks, "post", breaks)
    errors = counted(telemetry.WEBHOOK_ERRORS)
    async with world.sending():
        await world.minted(bad)
        await world.minted(good)
        await world.delivered(1)

        async def warned() -> bool:
            return (await world.rows())[0]["last_error"] is not None

        await until(warned)
    assert (await world.rows())[0]["last_error"] == "a fault of ltzd (ZeroDivisionError)"
    assert counted(telemetry.WEBHOOK_ERRORS) == errors + 1


# --- fairness -----------------------------------------------------------------------------------


async def test_a_brand_that_hangs_uses_its_own_slots_and_delays_no_other(
    world: World, receiver: Receiver
) -> None:
    slow, quick = await world.brand("/slow"), await world.brand("/quick")
    receiver.behaviours["/slow"] = hanging
    await world.minted(slow, 50)
    async with world.sending():
        await receiver.got("/slow", FEW_SLOTS)
        loop = asyncio.get_running_loop()
        for number in range(1, 6):
            begun = loop.time()
            await world.minted(quick)
            post = (await receiver.got("/quick", number))[-1]
            assert post.at - begun < 5.0, "the hanging brand's slots would be free after 20 s"
    assert receiver.most_at_once["/slow"] == len(receiver.posts["/slow"]) == FEW_SLOTS


async def test_many_webhooks_of_one_brand_do_not_wait_for_the_next_poll_after_each_batch(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/hooks")
    await world.minted(brand, 60)
    async with world.sending():
        begun = asyncio.get_running_loop().time()
        posts = await receiver.got("/hooks", 60)
        await world.delivered(60)

    assert posts[-1].at - begun < 60 / FEW_SLOTS / 2
    assert receiver.most_at_once["/hooks"] <= MOST_SLOTS


async def test_an_endpoint_that_answers_soon_gets_more_webhooks_at_a_time(
    world: World, receiver: Receiver
) -> None:
    async def soon(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return web.Response(status=204)

    receiver.behaviours["/hooks"] = soon
    brand = await world.brand("/hooks")
    await world.minted(brand, 200)
    async with world.sending():
        await world.delivered(200)
    assert FEW_SLOTS < receiver.most_at_once["/hooks"] <= MOST_SLOTS


async def test_after_a_failure_an_endpoint_gets_one_webhook_at_a_time(
    world: World, receiver: Receiver
) -> None:
    brand = await world.brand("/broken")
    receiver.behaviours["/broken"] = answering(500)
    await world.minted(brand)
    async with world.sending():
        await attempted(world, 1)

        async def slowly(_request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(0.01)
            return web.Response(status=500)

        receiver.behaviours["/broken"] = slowly
        await world.minted(brand, 10)
        await receiver.got("/broken", 11)
    assert receiver.most_at_once["/broken"] == 1


async def test_the_bound_of_all_brands_together_excludes_no_brand(
    world: World, receiver: Receiver
) -> None:
    for number in range(5):
        await world.minted(await world.brand(f"/{number}"), 3)
    async with world.sending(max_in_flight=3, max_at_once=2):
        await world.delivered(15)
    assert all(len(receiver.posts[f"/{number}"]) == 3 for number in range(5))


# --- at least once ------------------------------------------------------------------------------


async def test_a_webhook_posted_before_a_kill_is_posted_again_under_its_id(
    world: World, receiver: Receiver
) -> None:
    receiver.behaviours["/hooks"] = hanging
    await world.minted(await world.brand("/hooks"))
    async with world.sending():
        await receiver.got("/hooks")
    assert (await world.row())["attempts"] == 1
    del receiver.behaviours["/hooks"]

    async with world.sending():
        await until(polled(world))
        assert len(receiver.posts["/hooks"]) == 1, "the webhook was posted again within its lease"
        world.advance(LEASE)
        first, second = await receiver.got("/hooks", 2)
        await world.delivered(2)
    assert first.id == second.id
    assert first.body == second.body


async def test_a_lease_is_renewed_as_long_as_the_attempt_is_under_way(
    world: World, receiver: Receiver
) -> None:
    receiver.behaviours["/hooks"] = hanging
    await world.minted(await world.brand("/hooks"))
    async with world.sending(), world.sending():
        await receiver.got("/hooks")
        for _ in range(3 * LEASE // RENEWAL_AGE):
            before = (await world.row())["next_at"]

            async def is_renewed(before: datetime = before) -> bool:
                return bool((await world.row())["next_at"] > before)

            world.advance(RENEWAL_AGE)
            await until(is_renewed)
        assert (await world.row())["attempts"] == 1
        await until(polled(world))
    assert len(receiver.posts["/hooks"]) == 1


async def test_a_settled_webhook_is_not_leased_again(world: World, receiver: Receiver) -> None:
    receiver.behaviours["/hooks"] = answering(500)
    await world.minted(await world.brand("/hooks"))
    async with world.sending():
        settled = await attempted(world, 1)
        await until(polled(world))
        world.advance(RENEWAL_AGE)
        await world.minted(await world.brand("/later"))
        await receiver.got("/later")
    assert (await world.rows())[0] == settled


def test_a_kill_delays_webhooks_by_less_than_ten_seconds_and_one_renewal_may_fail() -> None:
    poll = timedelta(seconds=POLL_SECONDS)
    assert LEASE + poll < timedelta(seconds=10)
    assert 2 * (RENEWAL_AGE + poll) < LEASE


async def test_an_attempt_whose_outcome_was_lost_with_its_sender_is_repeated(
    world: World, receiver: Receiver
) -> None:
    await world.minted(await world.brand("/hooks"))
    async with transaction(world.pool) as connection:
        answered = asyncio.Event()

        async def locked_before_the_answer(_request: web.Request) -> web.StreamResponse:
            await connection.execute("SELECT FROM webhooks FOR UPDATE")
            answered.set()
            return web.Response()

        receiver.behaviours["/hooks"] = locked_before_the_answer
        async with world.sending():
            await answered.wait()

            async def outcome_waits() -> bool:
                return bool(
                    await value(
                        world.pool,
                        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                        "AND datname = current_database()",
                    )
                )

            await until(outcome_waits)
    assert await world.states() == ["pending"]
    del receiver.behaviours["/hooks"]

    async with world.sending():
        world.advance(LEASE)
        first, second = await receiver.got("/hooks", 2)
        await world.delivered(1)
    assert first.id == second.id


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
async def test_webhooks_are_sent_and_dated_by_the_databases_time(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    """A clock that was set back would delay every brand's webhooks; receivers refuse both dates."""

    class Set(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override] # no Set is needed
            return datetime.now(tz) + ahead

    monkeypatch.setattr(database_time, "datetime", Set)
    brand = await world.brand("/hooks")
    (secret,) = await world.secrets(brand)
    async with world.sending(by_test_clock=False):
        await world.minted(brand)
        (post,) = await receiver.got("/hooks")
        await world.delivered()
    assert Webhook(secret).verify(post.body, post.headers) == post.json


async def test_two_senders_share_the_work_and_post_nothing_twice(
    world: World, receiver: Receiver
) -> None:
    brands = [await world.brand(f"/{number}") for number in range(4)]
    async with world.sending(), world.sending():
        for brand in brands:
            await world.minted(brand, 15)
        await world.delivered(60)
    posts = [post.id for path in receiver.posts.values() for post in path]
    assert len(posts) == len(set(posts)) == 60


async def test_a_database_outage_only_delays_webhooks(world: World, receiver: Receiver) -> None:
    brand = await world.brand("/hooks")
    async with world.sending():
        await world.minted(brand)
        await world.delivered(1)
        await value(
            world.pool,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        await world.minted(brand, 3)
        await world.delivered(4)


async def test_a_sender_stops_at_once_with_deliveries_in_flight(
    world: World, receiver: Receiver
) -> None:
    receiver.behaviours["/hooks"] = hanging
    await world.minted(await world.brand("/hooks"), 4)
    async with world.sending():
        await receiver.got("/hooks", 4)
        watch = Stopwatch()
    assert watch.seconds() < 2.0


async def test_a_replayed_webhook_is_delivered_again_under_its_id(
    world: World, receiver: Receiver
) -> None:
    await world.minted(await world.brand("/hooks"))
    async with world.sending():
        await world.delivered(1)
        async with session(world.pool) as connection:
            assert await webhook_records.replay(connection, [(await world.row())["id"]])
        first, second = await receiver.got("/hooks", 2)
        await world.delivered(1)
    assert first.id == second.id
    assert (await world.row())["attempts"] == 1


async def test_the_backlog_is_measured_while_senders_run(world: World, receiver: Receiver) -> None:
    receiver.behaviours["/slow"] = hanging
    await world.minted(await world.brand("/slow"), 6)
    async with world.sending():
        await receiver.got("/slow", FEW_SLOTS)

        async def measured() -> bool:
            return bool(telemetry.WEBHOOKS_PENDING._value.get() == 6)

        await until(measured)
        assert telemetry.WEBHOOKS_IN_FLIGHT._value.get() == FEW_SLOTS
