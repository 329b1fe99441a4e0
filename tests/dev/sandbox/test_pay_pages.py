"""The hosted pay page and the list of payments, as a browser without a script uses them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import stripe

from tests.support.services.shop import ORDER, Shop, a_shop


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with a_shop(tmp_path) as shop:
        yield shop


async def page_of(shop: Shop, url: str | None) -> str:
    assert url is not None
    async with shop.http.get(url) as reply:
        assert (reply.status, reply.content_type) == (200, "text/html")
        return await reply.text()


async def test_a_person_pays_on_the_page_and_lands_in_the_shop(shop: Shop) -> None:
    made = await shop.create_session()
    page = await page_of(shop, made.url)
    assert "2 x 5,000 &lt;LTZ&gt;" in page
    assert "Pay 5.00 USD" in page
    assert f'action="/pay/{made.id}/pay"' in page
    assert f'action="/pay/{made.id}/cancel"' in page
    assert "<script" not in page

    # The second press of the button finds the work done.
    for _ in range(2):
        async with shop.http.post(
            f"{made.url}/pay", headers={"Origin": shop.sandbox.url}, allow_redirects=False
        ) as reply:
            assert reply.status == 303
            assert reply.headers["Location"] == (
                f"https://shop.example/thanks?session={made.id}&%C3%A9=1"
            )
    await shop.wait_for_event("checkout.session.completed")
    await shop.wait_for_event("payment_intent.succeeded")
    assert len(shop.events) == 2
    assert "This is paid" in await page_of(shop, made.url)


async def test_a_browser_may_follow_the_button_out_of_the_sandbox(shop: Shop) -> None:
    made = await shop.create_session()
    async with shop.http.get(str(made.url)) as reply:
        # With no-referrer it would send Origin null, which is refused; and it holds the redirect
        # that answers a form to the policy of the form's page.
        assert reply.headers["Referrer-Policy"] == "same-origin"
        assert "form-action http: https:" in reply.headers["Content-Security-Policy"]
    async with shop.http.get(shop.sandbox.url + "/") as reply:
        assert "form-action 'none'" in reply.headers["Content-Security-Policy"]


async def test_cancel_leads_back_and_leaves_the_session_open(shop: Shop) -> None:
    made = await shop.create_session()

    async with shop.http.post(f"{made.url}/cancel", allow_redirects=False) as reply:
        assert (reply.status, reply.headers["Location"]) == (303, ORDER["cancel_url"])

    assert (await shop.read(made.id)).status == "open"
    assert shop.events == []


async def test_without_a_cancel_url_there_is_no_way_to_cancel(shop: Shop) -> None:
    made = await shop.create_session(cancel_url=None)

    assert "/cancel" not in await page_of(shop, made.url)
    async with shop.http.post(f"{made.url}/cancel", allow_redirects=False) as reply:
        assert reply.status == 409


async def test_a_page_of_another_site_cannot_pay(shop: Shop) -> None:
    made = await shop.create_session()

    for origin in ("https://evil.example", "null"):
        async with shop.http.post(f"{made.url}/pay", headers={"Origin": origin}) as reply:
            assert reply.status == 403

    assert (await shop.read(made.id)).status == "open"


async def test_a_slow_payment_is_settled_on_its_page(shop: Shop) -> None:
    made = await shop.create_session()
    await shop.control_payment(made.id, paymentStatus="unpaid")
    assert "the money has not arrived yet" in await page_of(shop, made.url)

    async with shop.http.post(f"{made.url}/pay", allow_redirects=False) as reply:
        assert reply.status == 303

    await shop.wait_for_event("checkout.session.async_payment_succeeded")
    assert (await shop.read(made.id)).payment_status == "paid"


async def test_an_expired_session_says_so_and_cannot_be_paid(shop: Shop) -> None:
    made = await shop.create_session()
    expire = shop.client().v1.checkout.sessions.expire_async
    expired = await expire(made.id)

    assert (expired.status, expired.payment_status, expired.url) == ("expired", "unpaid", None)
    event = await shop.wait_for_event("checkout.session.expired")
    assert event["data"]["object"]["id"] == made.id
    assert (await shop.control_payment(made.id))[0] == 409
    for action in ("pay", "cancel"):
        async with shop.http.post(f"{made.url}/{action}", allow_redirects=False) as reply:
            assert (reply.status, "expired" in await reply.text()) == (409, True)
    page = await page_of(shop, made.url)
    assert "no longer be paid" in page
    assert "<button" not in page
    with pytest.raises(stripe.InvalidRequestError):
        await expire(made.id)


async def test_the_list_refunds_and_disputes_what_is_paid_and_nothing_else(shop: Shop) -> None:
    unpaid, refunded, disputed = [await shop.create_session() for _ in range(3)]
    await shop.control_payment(refunded.id)
    await shop.control_payment(disputed.id)
    page = await page_of(shop, shop.sandbox.url + "/pay")
    assert f'action="/pay/{unpaid.id}/refund"' not in page
    for made in (refunded, disputed):
        assert f'action="/pay/{made.id}/refund"' in page
        assert f'aria-label="Dispute {made.id}"' in page

    async with shop.http.post(f"{shop.sandbox.url}/pay/{refunded.id}/refund") as reply:
        assert (reply.status, reply.url.path) == (200, "/pay/")
    async with shop.http.post(f"{shop.sandbox.url}/pay/{disputed.id}/dispute") as reply:
        page = await reply.text()

    assert "refunded, 5.00 USD" in page
    assert ">disputed<" in page
    assert "<button" not in page
    assert (await shop.wait_for_event("refund.created"))["data"]["object"]["amount"] == 500
    await shop.wait_for_event("charge.dispute.created")
    async with shop.http.post(f"{shop.sandbox.url}/pay/{unpaid.id}/refund") as reply:
        assert (reply.status, reply.content_type) == (409, "text/html")


async def test_an_unknown_payment_page_is_a_page(shop: Shop) -> None:
    for path in ("/pay/cs_test_nobody", "/pay/a/b/c"):
        async with shop.http.get(shop.sandbox.url + path) as reply:
            assert (reply.status, reply.content_type) == (404, "text/html")
