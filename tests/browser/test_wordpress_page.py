"""The WordPress plugin's page and blocks in a real browser: markup and scripts, with a live ltzd.

PHP serves the page with the stubs of tests/wordpress; test_real_wordpress.py has it in a real
WordPress.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Request, Route, expect

from tests.support.instances.instance import Instance
from tests.support.sites.plugin_site import StubbedSite, a_stubbed_site
from tests.support.sites.visitors import a_context

MUG = "Enamel mug"
COFFEE = "Free coffee"
OTHER_NONCE = "1111111111"


@dataclass
class Member:
    page: Page
    site: StubbedSite
    instance: Instance
    email: str

    def part(self, name: str) -> Locator:
        return self.page.locator(f'[data-part="{name}"]').first

    def block(self, name: str) -> Locator:
        return self.page.locator(f'[data-ltzd-block="{name}"]')

    @property
    def news(self) -> Locator:
        return self.page.get_by_role("status")

    async def arrive(self) -> None:
        await self.page.goto(f"{self.site.url}/rewards/")
        await expect(self.part("balance")).not_to_have_text("…")

    async def arrive_at_blocks(self) -> None:
        await self.page.goto(f"{self.site.url}/blocks/")
        await expect(self.part("balance")).not_to_have_text("…")

    async def code(self) -> str:
        """Returns a code, which the wallet's owner requests."""
        control_url = self.instance.dev_json["sandbox"]["identityTokenUrl"]
        async with self.instance.http.post(control_url, json={"email": self.email}) as answer:
            token = (await answer.json())["accessToken"]
        url = f"{self.instance.base_url}/site-links"
        headers = {"Authorization": f"Bearer {token}"}
        order = {"host": "site.example", "dailyAllowance": 70}
        async with self.instance.http.post(url, json=order, headers=headers) as answer:
            assert answer.status == 201, await answer.text()
            code: str = (await answer.json())["code"]
        return code


@pytest_asyncio.fixture
async def member(browser: Browser, one_instance: Instance, tmp_path: Path) -> AsyncIterator[Member]:
    async with a_stubbed_site(tmp_path) as site:
        control_url = one_instance.dev_json["sandbox"]["siteSessionUrl"]
        name = f"paula-{site.port}"
        async with one_instance.http.post(control_url, json={"username": name}) as answer:
            session = await answer.json()
        site.keep(
            home="https://site.example",
            nonce=session["nonce"],
            ltzd_loyalty={"url": one_instance.base_url},
        )
        site.keep_users({1: {"login": name, "email": session["email"], "capabilities": []}})
        async with a_context(browser) as context:
            await context.add_cookies(
                [
                    {"name": key, "value": value, "url": site.url}
                    for key, _, value in (
                        cookie.partition("=") for cookie in session["cookie"].split("; ")
                    )
                ]
            )
            yield Member(await context.new_page(), site, one_instance, session["email"])


async def test_the_page_shows_the_wallet_and_redeems_at_the_price_it_shows(
    member: Member,
) -> None:
    event = await member.instance.post_event(member.email)
    await member.instance.minted(event.event_id)
    await member.arrive()
    await expect(member.part("balance")).to_have_text("100 LTZ")
    await expect(member.part("spendable")).to_have_text("100 LTZ")

    async with member.page.expect_request("**/redeem") as request:
        await member.page.get_by_role("button", name=f"Redeem {MUG}").click()

    order = (await request.value).post_data_json
    assert order is not None
    assert order["maxCost"] == 15
    await expect(member.news).to_contain_text("Your code: ")


async def test_a_dearer_perk_is_shown_with_its_new_price_and_not_taken(member: Member) -> None:
    event = await member.instance.post_event(member.email)
    await member.instance.minted(event.event_id)

    async def cheaper(route: Route) -> None:
        answer = await route.fetch()
        body = await answer.json()
        for perk in body["perks"]:
            perk["cost"] -= 1 if perk["name"] == MUG else 0
        await route.fulfill(response=answer, json=body)

    await member.page.route("**/perks", cheaper, times=1)
    await member.arrive()
    card = member.page.get_by_role("listitem").filter(has_text=MUG)
    await expect(card).to_contain_text("14 LTZ")
    await member.page.get_by_role("button", name=f"Redeem {MUG}").click()

    await expect(member.news).to_contain_text("The price is now 15 LTZ. Press Redeem again")
    await expect(card).to_contain_text("15 LTZ")
    await expect(member.part("balance")).to_have_text("100 LTZ")


async def test_a_code_is_shown_though_the_page_cannot_be_renewed_after_it(member: Member) -> None:
    event = await member.instance.post_event(member.email)
    await member.instance.minted(event.event_id)
    for arrive in (member.arrive, member.arrive_at_blocks):
        await arrive()
        await member.page.route("**/v1/me", lambda route: route.abort())
        await member.page.route("**/v1/perks", lambda route: route.abort())
        await member.page.get_by_role("button", name=f"Redeem {MUG}").click()
        news = member.page.get_by_role("status").filter(has_text="Your code: ")
        await expect(news).to_be_visible()
        await member.page.unroute_all()


async def test_a_member_without_ltz_for_a_second_one_can_still_ask_for_the_code(
    member: Member,
) -> None:
    """ltzd counts a redemption as spent as soon as it has begun."""
    event = await member.instance.post_event(member.email)
    await member.instance.minted(event.event_id)

    async def late(route: Route) -> None:
        answer = await route.fetch()
        body = await answer.json()
        await route.fulfill(response=answer, status=202, json={**body, "confirmationCode": None})

    async def poorer(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), "spendable": 0})

    for arrive in (member.arrive, member.arrive_at_blocks):
        await arrive()
        redeem = member.page.get_by_role("button", name=f"Redeem {MUG}")
        other = member.page.get_by_role("button", name="Redeem Ten yoga classes")
        await expect(other).to_be_enabled()
        await member.page.route("**/v1/me", poorer)
        await member.page.route("**/v1/redeem", late, times=1)
        await redeem.click()
        news = member.page.get_by_role("status")
        await expect(news.filter(has_text="Press Redeem again")).to_be_visible()
        await expect(other).to_be_disabled()

        await member.page.reload()
        await expect(other).to_be_disabled()
        await redeem.click()
        await expect(news.filter(has_text="Your code: ")).to_be_visible()
        await expect(redeem).to_be_disabled()
        await member.page.unroute_all()


async def test_a_redemption_by_the_keyboard_leaves_the_focus_where_it_was(member: Member) -> None:
    for arrive in (member.arrive, member.arrive_at_blocks):
        await arrive()
        button = member.page.get_by_role("button", name=f"Redeem {COFFEE}")
        await button.focus()
        await member.page.keyboard.press("Enter")
        news = member.page.get_by_role("status").filter(has_text=re.compile("Your code|as often"))
        await expect(news).to_be_visible()
        await expect(button).to_be_focused()


async def test_a_redemption_that_takes_long_is_seen_to_be_under_way(member: Member) -> None:
    is_mined = asyncio.Event()

    async def slow(route: Route) -> None:
        await is_mined.wait()
        perk = {"id": "1", "name": COFFEE}
        await route.fulfill(json={"success": True, "confirmationCode": "CCCC-2222", "perk": perk})

    await member.page.route("**/v1/redeem", slow)
    for arrive in (member.arrive, member.arrive_at_blocks):
        is_mined.clear()
        await arrive()
        await member.page.get_by_role("button", name=f"Redeem {COFFEE}").click()
        news = member.page.get_by_role("status")
        await expect(news.filter(has_text="One moment, please …")).to_be_visible()
        is_mined.set()
        await expect(news.filter(has_text="Your code: CCCC-2222")).to_be_visible()
        await expect(news.filter(has_text="One moment")).to_have_count(0)


async def test_a_code_stays_on_the_page_after_the_next_one_and_a_reload(member: Member) -> None:
    event = await member.instance.post_event(member.email)
    await member.instance.minted(event.event_id)

    async def redeemed(route: Route) -> None:
        order = route.request.post_data_json
        assert order is not None
        is_coffee = order["maxCost"] == 0
        perk = {"id": order["perkId"], "name": COFFEE if is_coffee else MUG}
        code = "CCCC-2222" if is_coffee else "MMMM-3333"
        await route.fulfill(json={"success": True, "confirmationCode": code, "perk": perk})

    await member.page.route("**/v1/redeem", redeemed)
    shown = [f"{COFFEE} CCCC-2222", f"{MUG} MMMM-3333"]
    for arrive in (member.arrive, member.arrive_at_blocks):
        await arrive()
        await member.page.evaluate("sessionStorage.clear()")
        await member.page.reload()
        news = member.page.get_by_role("status")
        for name, code in ((MUG, "MMMM-3333"), (COFFEE, "CCCC-2222"), (COFFEE, "CCCC-2222")):
            await member.page.get_by_role("button", name=f"Redeem {name}").click()
            await expect(news.filter(has_text=f"Your code: {code}")).to_be_visible()
        codes = member.page.locator('[data-part="codes"] li')
        await expect(codes).to_have_text(shown)
        await member.page.reload()
        await expect(codes).to_have_text(shown)


async def test_a_browser_without_storage_shows_codes_too(member: Member) -> None:
    await member.page.add_init_script(
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new Error('denied'); } })"
    )
    await member.arrive()
    async with member.page.expect_response("**/v1/redeem") as response:
        await member.page.get_by_role("button", name=f"Redeem {COFFEE}").click()
    code = (await (await response.value).json())["confirmationCode"]
    await expect(member.news).to_have_text(f"Your code: {code}")
    await expect(member.page.locator('[data-part="codes"] li')).to_have_text(f"{COFFEE} {code}")


async def test_a_refusal_is_shown_though_the_page_cannot_be_renewed_after_it(
    member: Member,
) -> None:
    async def refuse(route: Route) -> None:
        body = {"code": "redeem_failed", "message": "This perk is sold out.", "data": {}}
        await route.fulfill(status=400, json=body)

    await member.arrive()
    await member.page.route("**/v1/redeem", refuse)
    await member.page.route("**/v1/perks", lambda route: route.abort())
    await member.page.get_by_role("button", name=f"Redeem {COFFEE}").click()
    await expect(member.news).to_have_text("This perk is sold out.")


async def test_a_code_links_the_wallet_and_a_button_ends_the_link(member: Member) -> None:
    await member.arrive()
    field = member.page.get_by_label("Code from your wallet app")
    await field.fill("ABCD2345")
    await member.page.get_by_role("button", name="Link the wallet").click()
    await expect(member.news).to_contain_text("code")
    await expect(member.part("linked")).to_be_hidden()

    await field.fill(await member.code())
    await member.page.keyboard.press("Enter")
    await expect(member.news).to_have_text("Your wallet is linked.")
    await expect(member.part("link")).to_contain_text("up to 70 LTZ a day")
    await expect(member.part("link")).to_contain_text("70 LTZ are left today")

    await member.page.get_by_role("button", name="End the link").click()
    await expect(member.news).to_have_text("The link is ended.")
    await expect(member.part("linked")).to_be_hidden()
    await expect(field).to_be_focused()


async def test_a_button_has_the_confirmation_mailed(member: Member) -> None:
    await member.arrive()
    await expect(member.page.get_by_text("It is not confirmed yet.")).to_be_visible()
    button = member.page.get_by_role("button", name="Confirm my e-mail address")
    await button.click()
    await expect(member.news).to_contain_text("A link was mailed to this address.")
    ((address, _),) = member.site.mails()
    assert address == member.email
    await button.click()
    await expect(member.news).to_contain_text("A link was mailed not long ago.")
    await member.site.open(member.site.mailed_link())
    await member.arrive()
    await expect(member.page.get_by_text("It is confirmed.")).to_be_visible()


async def test_a_stranger_is_led_to_the_log_in(member: Member) -> None:
    member.site.keep(user=0, **member.site.options())
    await member.page.goto(f"{member.site.url}/rewards/")
    link = member.page.get_by_role("link", name="Log in to see your rewards.")
    address = await link.get_attribute("href")
    assert address is not None
    assert address.startswith("/wp-login.php?redirect_to=")


# --- the blocks ---------------------------------------------------------------------------------


async def test_a_member_checks_in_by_the_keyboard_and_the_streak_grows(member: Member) -> None:
    await member.arrive_at_blocks()
    streak = member.block("streak")
    await expect(streak.locator('[data-part="days"]')).to_have_text("0")
    button = streak.get_by_role("button", name="Check in")
    await button.focus()
    await member.page.keyboard.press("Enter")
    news = streak.get_by_role("status")
    await expect(news).to_contain_text("You have checked in, and earned ")
    await expect(streak.locator('[data-part="days"]')).to_have_text("1")
    await expect(button).to_be_focused()
    await member.page.keyboard.press("Enter")
    await expect(news).to_have_text("You have checked in already today.")


async def test_the_blocks_of_one_page_show_a_redemption(member: Member) -> None:
    event = await member.instance.post_event(member.email)
    await member.instance.minted(event.event_id)
    await member.arrive_at_blocks()
    perks = member.block("perks")
    await expect(perks.get_by_role("listitem").filter(has_text=MUG)).to_contain_text("15 LTZ")

    async with member.page.expect_request("**/redeem") as request:
        await perks.get_by_role("button", name=f"Redeem {MUG}").click()

    order = (await request.value).post_data_json
    assert order is not None
    assert order["maxCost"] == 15
    await expect(perks.get_by_role("status")).to_contain_text("Your code: ")
    await expect(member.part("balance")).to_have_text("85 LTZ")


async def test_a_nonce_of_a_cached_page_is_renewed(member: Member) -> None:
    options = member.site.options()
    member.site.keep(**{**options, "fresh_nonce": options["nonce"], "nonce": "0000000000"})
    await member.arrive_at_blocks()
    await expect(member.block("points").get_by_role("status")).to_have_text("")


async def test_a_page_does_nothing_for_another_member_who_has_logged_in_since(
    member: Member,
) -> None:
    """As in another tab: WordPress renews the nonce for that member."""
    await member.arrive_at_blocks()
    other = {"login": "otto", "email": "otto@site.example", "capabilities": []}
    member.site.keep_users({2: other})
    member.site.keep(**{**member.site.options(), "user": 2, "fresh_nonce": OTHER_NONCE})
    nonces = []

    def note(request: Request) -> None:
        if request.url.endswith("/checkin"):
            nonces.append(request.headers["x-wp-nonce"])

    member.page.on("request", note)
    streak = member.block("streak")
    await streak.get_by_role("button", name="Check in").click()
    await expect(streak.get_by_role("status")).to_contain_text("Another member is logged in")
    assert nonces == [member.site.options()["nonce"]]


async def test_a_member_whose_log_in_has_ended_reads_so(member: Member) -> None:
    options = member.site.options()
    member.site.keep(**{**options, "fresh_nonce": "0", "nonce": "0000000000"})
    await member.page.goto(f"{member.site.url}/blocks/")
    await expect(member.block("points").get_by_role("status")).to_have_text("Cookie check failed")


@pytest.mark.parametrize("language", ["pt-PT-ao90", "pt_PT", ""])
async def test_a_page_works_in_a_language_that_the_browser_does_not_know(
    member: Member, language: str
) -> None:
    """WordPress names one of its languages, and some themes name all, as no BCP 47 tag."""

    async def rewritten(route: Route) -> None:
        answer = await route.fetch()
        text = await answer.text()
        assert 'lang="en"' in text
        await route.fulfill(response=answer, body=text.replace('lang="en"', f'lang="{language}"'))

    event = await member.instance.post_event(
        member.email, eventType="purchase", metadata={"amount": 1_000}
    )
    await member.instance.minted(event.event_id)
    await member.page.route(member.site.url + "/rewards/", rewritten)
    await member.arrive()
    shown = {"": "2,000 LTZ"}.get(language, "2000 LTZ")
    await expect(member.part("balance")).to_have_text(shown)


async def test_blocks_ask_no_other_host_and_take_the_themes_colours(member: Member) -> None:
    hosts = set()
    member.page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    await member.arrive_at_blocks()
    assert hosts == {member.site.url.removeprefix("http://")}
    await member.page.add_style_tag(
        content="body { color: rgb(1, 2, 3); background: #fff; font-family: Theme }"
    )
    style = "(element) => [getComputedStyle(element).color, getComputedStyle(element).fontFamily]"
    for selector in ("dd", "button", "th", "li"):
        element = member.page.locator(f".ltzd-block {selector}").first
        assert await element.evaluate(style) == ["rgb(1, 2, 3)", "Theme"], selector
