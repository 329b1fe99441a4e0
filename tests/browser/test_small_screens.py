"""Pages on a screen of 320 pixels, which WCAG asks for (1.4.10), with a name as long as can be."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.instances.instance import Instance
from tests.support.sites.plugin_site import a_stubbed_site
from tests.support.sites.visitors import NewVisitor, a_context
from tests.support.waiting import until

WIDTH = 320
SITE = "/wp-json/loyalty/v1"


@pytest_asyncio.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with a_context(browser, viewport={"width": WIDTH, "height": 640}) as context:
        yield await context.new_page()


async def a_long_name_on_the_leaderboard(instance: Instance) -> str:
    """Returns the name of a member who has earned more LTZ than others of the week."""
    name = f"{uuid4().hex}{uuid4().hex}"[:60]
    url = instance.dev_json["sandbox"]["siteSessionUrl"]
    async with instance.http.post(url, json={"username": name}) as answer:
        session = await answer.json()
    headers = {
        "Host": "site.example",
        "Cookie": session["cookie"],
        "X-WP-Nonce": session["nonce"],
    }

    async def is_checked_in() -> bool:
        url = f"{instance.base_url}{SITE}/checkin"
        async with instance.http.post(url, headers=headers) as answer:
            assert answer.status in {200, 503}, await answer.text()
            return answer.status == 200

    await until(is_checked_in)
    event = await instance.taken_event(
        session["email"], eventType="purchase", metadata={"amount": 900_000}
    )
    await instance.minted(event.event_id)

    async def is_ranked() -> bool:
        board = await instance.read(f"{SITE}/leaderboard", Host="site.example")
        return name in [entry["username"] for entry in board["leaderboard"]]

    await until(is_ranked)
    return name


async def test_a_long_name_does_not_widen_the_wordpress_leaderboard(
    page: Page, one_instance: Instance, tmp_path: Path
) -> None:
    name = await a_long_name_on_the_leaderboard(one_instance)
    async with a_stubbed_site(tmp_path) as site:
        site.keep(home="https://site.example", ltzd_loyalty={"url": one_instance.base_url}, user=0)
        await page.goto(f"{site.url}/blocks/")
        await expect(page.get_by_text(name)).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") == WIDTH


async def test_a_long_name_leaves_amounts_on_one_line(
    new_visitor: NewVisitor, one_instance: Instance
) -> None:
    await a_long_name_on_the_leaderboard(one_instance)
    visitor = await new_visitor(viewport={"width": WIDTH, "height": 640})
    await visitor.arrive()
    amounts = visitor.at("board").locator("td.number")
    await expect(amounts.first).to_be_visible()
    assert await visitor.page.evaluate("document.documentElement.scrollWidth") == WIDTH
    assert await amounts.evaluate_all(
        """(cells) => cells.every((cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          return range.getClientRects().length === 1;
        })"""
    )


async def test_the_page_of_the_api_fits(page: Page, one_instance: Instance) -> None:
    await page.goto(f"{one_instance.base_url}/docs")
    await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert await page.evaluate("document.documentElement.scrollWidth") == WIDTH
