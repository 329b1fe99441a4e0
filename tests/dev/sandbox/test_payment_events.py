"""The control endpoint of payments, and the signed events: their content and durability."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import stripe

from ltzd.dev.sandbox import Sandbox
from ltzd.errors import Misconfigured
from tests.support.services.shop import ORDER, Json, Shop, a_shop, priced

# A sandbox in a process of its own, which says where it is and waits to be killed.
PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from ltzd.dev.sandbox import Sandbox

async def main():
    sandbox = Sandbox(Path(sys.argv[1]), 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    print(json.dumps({**sandbox.payments_section(), **sandbox.control_endpoints()}), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with a_shop(tmp_path) as shop:
        yield shop


# --- the control endpoint ---------------------------------------------------------------------


async def test_the_control_endpoint_pays_and_answers_after_both_events(shop: Shop) -> None:
    made = await shop.create_session()

    status, answer = await shop.control_payment(made.id)

    assert status == 200
    assert (answer["status"], answer["paymentStatus"]) == ("complete", "paid")
    assert [event["delivered"] for event in answer["events"]] == [True, True]
    [completed] = shop.events_of("checkout.session.completed")
    [succeeded] = shop.events_of("payment_intent.succeeded")
    assert (completed["object"], completed["livemode"]) == ("event", False)
    assert completed["id"].startswith("evt_")
    assert (completed["api_version"], completed["pending_webhooks"]) == ("2026-10-28.endive", 1)
    assert completed["request"] == {"id": None, "idempotency_key": None}
    session, intent = completed["data"]["object"], succeeded["data"]["object"]
    assert (session["id"], session["payment_status"]) == (made.id, "paid")
    assert (session["metadata"], session["url"]) == (ORDER["metadata"], None)
    assert (intent["id"], intent["object"]) == (session["payment_intent"], "payment_intent")
    assert (intent["amount"], intent["metadata"]) == (500, {"order": "7"})
    assert intent["id"] == answer["paymentIntentId"]


async def test_paying_again_sends_the_same_event_again(shop: Shop) -> None:
    made = await shop.create_session()

    assert await shop.control_payment(made.id) == await shop.control_payment(made.id)

    first, second = shop.events_of("checkout.session.completed")
    assert first == second


async def test_paying_at_once_from_many_sides_is_one_payment(shop: Shop) -> None:
    made = await shop.create_session()

    answers = await asyncio.gather(*(shop.control_payment(made.id) for _ in range(10)))

    assert {status for status, _ in answers} == {200}
    assert len({answer["paymentIntentId"] for _, answer in answers}) == 1
    assert len({event["id"] for event in shop.events_of("checkout.session.completed")}) == 1


async def test_a_slow_method_completes_first_and_pays_later(shop: Shop) -> None:
    made = await shop.create_session()

    _, unpaid = await shop.control_payment(made.id, paymentStatus="unpaid")
    assert (unpaid["status"], unpaid["paymentStatus"]) == ("complete", "unpaid")
    assert (await shop.control_payment(made.id, kind="refund"))[0] == 409
    assert [event.type for event in shop.events] == ["checkout.session.completed"]
    [completed] = shop.events_of("checkout.session.completed")
    assert completed["data"]["object"]["payment_status"] == "unpaid"

    _, paid = await shop.control_payment(made.id)
    assert (paid["paymentStatus"], paid["paymentIntentId"]) == ("paid", unpaid["paymentIntentId"])
    [arrived] = shop.events_of("checkout.session.async_payment_succeeded")
    assert arrived["data"]["object"]["payment_status"] == "paid"
    assert len(shop.events_of("payment_intent.succeeded")) == 1
    assert (await shop.control_payment(made.id, paymentStatus="unpaid"))[0] == 409


async def test_a_session_over_nothing_needs_no_payment(shop: Shop) -> None:
    made = await shop.create_session(line_items=priced(0))

    _, answer = await shop.control_payment(made.id)

    assert (answer["status"], answer["paymentStatus"]) == ("complete", "no_payment_required")
    assert [event.type for event in shop.events] == ["checkout.session.completed"]


async def test_the_control_endpoint_refunds_and_disputes_a_paid_session(shop: Shop) -> None:
    made = await shop.create_session()
    assert (await shop.control_payment(made.id, kind="refund"))[0] == 409
    assert (await shop.control_payment(made.id, kind="dispute"))[0] == 409
    _, paid = await shop.control_payment(made.id)

    assert (await shop.control_payment(made.id, kind="refund", amount=501))[0] == 409
    _, refunded = await shop.control_payment(made.id, kind="refund", amount=100)
    _, disputed = await shop.control_payment(made.id, kind="dispute")

    assert [event["type"] for event in refunded["events"]] == ["charge.refunded", "refund.created"]
    assert [event["delivered"] for event in disputed["events"]] == [True]
    [event] = shop.events_of("charge.dispute.created")
    dispute = event["data"]["object"]
    assert (dispute["object"], dispute["amount"]) == ("dispute", 400)
    assert (dispute["reason"], dispute["status"]) == ("fraudulent", "needs_response")
    assert dispute["payment_intent"] == paid["paymentIntentId"]
    assert (await shop.control_payment(made.id, kind="dispute"))[0] == 409


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"session_id": 7}, "sessionId"),
        ({"kind": "gift"}, "kind"),
        ({"paymentStatus": "maybe"}, "paymentStatus"),
        ({"kind": "refund", "paymentStatus": "paid"}, "paymentStatus"),
        ({"amount": 1}, "amount"),
        ({"kind": "refund", "amount": 0}, "amount"),
        ({"x": 1}, "x"),
    ],
    ids=str,
)
async def test_the_control_endpoint_names_a_bad_field(shop: Shop, fields: Json, field: str) -> None:
    status, answer = await shop.control_payment(**{"session_id": "cs_test_x", **fields})

    assert (status, answer["field"]) == (400, field)


async def test_the_control_endpoint_refuses_an_unknown_session(shop: Shop) -> None:
    assert (await shop.control_payment("cs_test_nobody"))[0] == 404


# --- delivery and keeping -----------------------------------------------------------------------


async def test_a_refused_event_comes_again_until_it_is_taken(shop: Shop) -> None:
    made = await shop.create_session(line_items=priced(0))
    shop.answers = [500, 303]

    _, answer = await shop.control_payment(made.id)
    assert [event["delivered"] for event in answer["events"]] == [False]
    await shop.wait_for_event("checkout.session.completed", times=3)

    assert len({event.id for event in shop.events}) == 1


async def test_an_event_that_nobody_took_comes_after_a_restart_and_only_that(shop: Shop) -> None:
    taken, lost = await shop.create_session(), await shop.create_session()
    await shop.control_payment(taken.id)
    shop.sandbox.set_payment_events_url("http://127.0.0.1:1/nobody")
    _, answer = await shop.control_payment(lost.id)
    assert [event["delivered"] for event in answer["events"]] == [False, False]
    before = shop.sandbox.payments_section()
    shop.events.clear()

    await shop.restart()

    event = await shop.wait_for_event("checkout.session.completed")
    await shop.wait_for_event("payment_intent.succeeded")
    assert event["data"]["object"]["id"] == lost.id
    assert len(shop.events) == 2
    assert (await shop.read(lost.id)).payment_status == "paid"
    after = shop.sandbox.payments_section()
    assert {**after, "apiUrl": before["apiUrl"]} == before
    assert after["secretKey"].startswith("sk_test_")
    assert after["signingSecret"].startswith("whsec_")


async def test_a_payment_that_was_told_of_survives_a_kill(shop: Shop, tmp_path: Path) -> None:
    await shop.sandbox.stop()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    event = json.loads(await process.stdout.readline())
    client = stripe.StripeClient(
        event["secretKey"],
        base_addresses={"api": event["apiUrl"]},
        http_client=stripe.AIOHTTPClient(session=shop.http),
    )
    params: Any = ORDER
    made = await client.v1.checkout.sessions.create_async(params)
    assert (await shop.post(event["payUrl"], {"sessionId": made.id}))[0] == 200
    process.kill()
    await process.wait()

    await shop.restart()

    event = await shop.wait_for_event("checkout.session.completed")
    assert event["data"]["object"]["id"] == made.id


@pytest.mark.parametrize("line", [b'{"kind":"step"}\n', b'{"kind":"app"}\n', b"{}\n"])
async def test_a_damaged_journal_is_a_plain_sentence(
    shop: Shop, tmp_path: Path, line: bytes
) -> None:
    await shop.sandbox.stop()
    with (tmp_path / "sandbox" / "payments.jsonl").open("ab") as file:
        file.write(line)

    with pytest.raises(Misconfigured, match="--clean"):
        await Sandbox(tmp_path, 0, "http://127.0.0.1:1", None).start()
