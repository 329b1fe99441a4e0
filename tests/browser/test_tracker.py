"""/ltzd.js in a real browser, on a plain page of a shop, with a live ltzd.

The brand's event-config comes from ltzd; tests of selectors add rules to its answer on the way.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page, Request, Route, expect

from tests.support.instances.instance import Instance
from tests.support.services.web_servers import served_at
from tests.support.sites.visitors import a_context

PAGE = """<!doctype html><html lang="en"><head><title>Shop</title><link rel="icon" href="data:,">
<style>.is-hidden {{ display: none }}</style>
<script src="{ltzd}/ltzd.js" data-brand="{brand}" data-domain="shop.example" {more} defer></script>
</head><body><h1>Shop</h1><input type="email" id="mail"><button id="go">Go</button>
<p id="done" class="is-hidden">Thank you</p><ol id="log"></ol>
<script>
document.addEventListener("ltzd", ({{ detail }}) => {{
  const line = document.createElement("li");
  line.textContent = `${{detail.eventType}} ${{detail.status}} ${{detail.rewardAmount}}`;
  document.querySelector("#log").append(line);
}});
document.querySelector("#go").addEventListener("click", () =>
  document.querySelector("#done").classList.remove("is-hidden"));
</script></body></html>"""


@dataclass
class Shop:
    """A page of the shop in a browser. `sent` has the bodies of its events."""

    page: Page
    url: str
    instance: Instance
    email: str
    attributes: dict[str, str] = field(default_factory=dict)
    sent: list[dict[str, Any]] = field(default_factory=list)

    async def open(self, path: str, **attributes: str) -> None:
        self.attributes.clear()
        self.attributes.update(attributes)
        async with self.page.expect_response("**/service-api/event-config?*"):
            await self.page.goto(self.url + path)

    async def log(self, *lines: str) -> None:
        await expect(self.page.locator("#log li")).to_have_text(list(lines))

    async def quiet_after_a_look(self) -> None:
        """Waits until the script has looked at a change of the page, and has sent nothing."""
        await self.page.evaluate(
            "() => { document.body.classList.toggle('changed');"
            " return new Promise((done) => setTimeout(() => setTimeout(done, 60), 60)); }"
        )
        assert self.sent == []

    async def add_rules(self, *rules: dict[str, Any]) -> None:
        async def more(route: Route) -> None:
            answer = await route.fetch()
            body = await answer.json()
            body["events"] += rules
            await route.fulfill(response=answer, json=body)

        await self.page.route("**/service-api/event-config?*", more)


def a_rule(event_type: str, method: str, **configuration: list[str]) -> dict[str, Any]:
    lists: dict[str, list[str]] = {
        "urlPatterns": [],
        "successSelectors": [],
        "channels": [],
    } | configuration
    return {"eventType": event_type, "detectionMethod": method, "detectionConfig": lists}


@pytest_asyncio.fixture
async def shop(browser: Browser, one_instance: Instance) -> AsyncIterator[Shop]:
    attributes: dict[str, str] = {}

    async def answer(_request: web.Request) -> web.Response:
        more = " ".join(f'data-{name}="{value}"' for name, value in attributes.items())
        brand = one_instance.dev_json["brand"]["brandId"]
        text = PAGE.format(ltzd=one_instance.base_url, brand=brand, more=more)
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with served_at(application) as url, a_context(browser) as context:
        page = await context.new_page()
        email = f"{uuid4().hex}@customer.example"
        shop = Shop(page, url, one_instance, email, attributes)

        def note(request: Request) -> None:
            if request.url.endswith("/manual-event") and request.method == "POST":
                event: Any = request.post_data_json
                shop.sent.append(event)

        page.on("request", note)
        yield shop
        assert await context.cookies() == []


async def test_a_page_that_fits_a_pattern_earns_its_event(shop: Shop) -> None:
    await shop.open("/welcome/?token=secret#part", email=shop.email)
    await shop.log("account_creation 200 100")
    (event,) = shop.sent
    assert event == {
        "brandId": shop.instance.dev_json["brand"]["brandId"],
        "eventType": "account_creation",
        "userEmail": shop.email,
        "domain": "shop.example",
        "sourceUrl": f"{shop.url}/welcome/",
    }


async def test_another_page_sends_nothing(shop: Shop) -> None:
    await shop.open("/welcome/more", email=shop.email)
    await shop.quiet_after_a_look()


async def test_a_page_of_the_same_document_is_looked_at(shop: Shop) -> None:
    await shop.open("/", email=shop.email)
    await shop.page.evaluate("history.pushState({}, '', '/welcome')")
    await shop.log("account_creation 200 100")


async def test_without_an_address_the_event_waits_for_it(shop: Shop) -> None:
    await shop.open("/welcome")
    await shop.quiet_after_a_look()
    await shop.page.evaluate("(email) => ltzd.identify(email)", shop.email)
    await shop.log("account_creation 200 100")


async def test_a_page_that_is_rendered_ahead_sends_nothing_until_the_visitor_opens_it(
    shop: Shop,
) -> None:
    """A browser that is driven from outside renders nothing ahead, so the test plays it."""
    await shop.page.add_init_script(
        "window.isAhead = true;"
        "Object.defineProperty(Document.prototype, 'prerendering', { get: () => isAhead });"
    )
    await shop.open("/welcome", email=shop.email)
    await shop.quiet_after_a_look()
    await shop.page.evaluate(
        "() => { isAhead = false; document.dispatchEvent(new Event('prerenderingchange')); }"
    )
    await shop.log("account_creation 200 100")


async def test_the_address_may_come_from_a_field_of_the_page(shop: Shop) -> None:
    await shop.open("/welcome", **{"email-from": "#mail"})
    await shop.page.fill("#mail", "no address")
    await shop.page.locator("#mail").blur()
    await shop.quiet_after_a_look()
    await shop.page.fill("#mail", shop.email)
    await shop.page.locator("#mail").blur()
    await shop.log("account_creation 200 100")


async def test_an_element_that_appears_is_a_success(shop: Shop) -> None:
    await shop.add_rules(
        a_rule("form_submit", "success_selector", successSelectors=["..", "#done"])
    )
    await shop.open("/form", email=shop.email)
    await shop.quiet_after_a_look()
    await shop.page.click("#go")
    await shop.log("form_submit 200 10")


async def test_pattern_and_selector_must_both_hold(shop: Shop) -> None:
    both = {"urlPatterns": ["/forms/*/end"], "successSelectors": ["#done"]}
    await shop.add_rules(
        a_rule("form_submit", "success_selector", **both),
        a_rule("newsletter_subscribe", "url_pattern", **both),
    )
    await shop.open("/forms/7/start", email=shop.email)
    await shop.page.click("#go")
    await shop.quiet_after_a_look()
    await shop.page.evaluate("history.pushState({}, '', '/forms/7/end/')")
    await expect(shop.page.locator("#log li")).to_have_count(2)
    assert {event["eventType"] for event in shop.sent} == {"form_submit", "newsletter_subscribe"}


@pytest.mark.parametrize(
    "rule",
    [
        a_rule("form_submit", "api", urlPatterns=["/form"], successSelectors=["h1"]),
        a_rule("form_submit", "url_pattern", successSelectors=["h1"]),
        a_rule("form_submit", "success_selector", urlPatterns=["/form"]),
        a_rule("form_submit", "url_pattern", urlPatterns=["/form?done=1", "form", "/fo.m"]),
        a_rule("form_submit", "unknown", urlPatterns=["/form"]),
    ],
    ids=["of the API", "no pattern", "no selector", "no path", "unknown method"],
)
async def test_a_rule_that_the_page_cannot_detect_sends_nothing(
    shop: Shop, rule: dict[str, Any]
) -> None:
    await shop.add_rules(rule)
    await shop.open("/form", email=shop.email)
    await shop.quiet_after_a_look()


async def test_an_event_is_sent_again_if_ltzd_was_busy(shop: Shop) -> None:
    async def busy(route: Route) -> None:
        await route.fulfill(status=503, json={"success": False})

    await shop.page.add_init_script(
        "const later = setTimeout; window.setTimeout = (work, ms) => later(work, ms / 40);"
    )
    await shop.page.route("**/manual-event", busy, times=1)
    await shop.open("/welcome", email=shop.email)
    await shop.log("account_creation 200 100")
    assert shop.sent[0] == shop.sent[1]


async def test_after_the_window_of_duplicates_an_event_is_not_sent_again(shop: Shop) -> None:
    async def record_and_sleep(route: Route) -> None:
        await route.fetch()
        await shop.page.evaluate("asleep = 3_600_000")
        await route.abort()

    await shop.page.add_init_script(
        "const later = setTimeout; window.setTimeout = (work, ms) => later(work, ms / 40);"
        "const now = Date.now; window.asleep = 0; Date.now = () => now() + asleep;"
    )
    await shop.page.route("**/manual-event", record_and_sleep, times=1)
    await shop.open("/welcome", email=shop.email)
    await shop.log("account_creation 0 undefined")
    assert len(shop.sent) == 1


async def test_a_page_may_report_an_event_of_its_own(shop: Shop) -> None:
    await shop.open("/", email=shop.email)
    answer = await shop.page.evaluate("ltzd.track('review_submission', { product: 7 })")
    assert (answer["status"], answer["rewardAmount"]) == (200, 50)
    assert shop.sent[0]["metadata"] == {"product": 7}
