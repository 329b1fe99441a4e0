"""The demo site in a real browser, on top of everything that `ltzd dev` starts."""

import asyncio
import re
from typing import Literal

from playwright.async_api import Locator, Page, Route, expect

from tests.support.instances.instance import Instance
from tests.support.sites.visitors import NewVisitor, Visitor
from tests.support.waiting import until

COFFEE = "Free coffee"
MUG = "Enamel mug"
CLASSES = "Ten yoga classes"
MOST_TABS = 10
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def test_the_keyboard_alone_logs_in(visitor: Visitor) -> None:
    await visitor.arrive()
    keyboard, field = visitor.page.keyboard, visitor.page.get_by_label("User name")
    for _ in range(MOST_TABS):
        await keyboard.press("Tab")
        if await field.evaluate("each => each === document.activeElement"):
            break
    await keyboard.type(visitor.name)
    await keyboard.press("Enter")
    await expect(visitor.page.get_by_role("heading", level=1)).to_contain_text(visitor.name)


async def test_a_check_in_shows_the_streak_and_its_ltz_once_the_block_is_there(
    member: Visitor,
) -> None:
    await member.page.clock.install()
    await expect(member.at("streak-days")).to_have_text("0")
    before = await member.balance()

    await member.button("Check in").dblclick()

    await expect(member.at("streak-days")).to_have_text("1")
    await expect(member.news).to_have_text("Checked in: 10 LTZ for you.")
    await expect(member.at("next-milestone")).to_contain_text("6 more days to your 7-day bonus")
    await expect(member.at("balance")).to_have_text(str(before + 10))
    await expect(member.at("pending")).to_be_hidden()
    assert member.request_count("POST checkin") == 1
    await it_asks_no_longer(member)

    await member.page.reload()
    await member.button("Check in").click()
    await expect(member.news).to_contain_text("You have checked in today already")
    await expect(member.button("Checked in today")).to_be_disabled()
    await expect(member.at("streak-days")).to_have_text("1")


async def it_asks_no_longer(member: Visitor) -> None:
    """No timer requests the balance within half a minute."""
    looks = member.request_count("GET me")
    await member.page.clock.fast_forward(30_000)
    async with member.page.expect_response("**/leaderboard*"):
        await member.page.get_by_role("radio", name="All time").check()
    assert member.request_count("GET me") == looks


async def test_a_free_perk_gives_a_code_to_read_aloud(member: Visitor) -> None:
    redeem = member.button("Redeem Free coffee")
    await redeem.click()
    dialog = member.page.get_by_role("dialog", name="Free coffee")
    await expect(dialog).to_be_visible()
    code = await member.at("code-text").inner_text()
    assert len(code) >= 6
    assert float(await size_of(member, "code-text")) >= 24
    await member.page.keyboard.press("Escape")

    await expect(dialog).to_be_hidden()
    await expect(redeem).to_be_focused()
    await member.page.reload()
    await expect(member.at("code-list")).to_contain_text(
        f"Free coffee\n{code}", use_inner_text=True
    )
    assert member.request_count("POST redeem") >= 1


async def test_the_focus_stays_while_the_perks_are_read_again(member: Visitor) -> None:
    redeem = member.button("Redeem Free coffee")
    await expect(redeem).to_be_visible()
    is_closed = asyncio.Event()

    async def late_and_dearer(route: Route) -> None:
        answer = await route.fetch()
        body = await answer.json()
        for perk in body["perks"]:
            perk["cost"] += perk["name"] == CLASSES
        await is_closed.wait()
        await route.fulfill(response=answer, json=body)

    await member.page.route("**/perks", late_and_dearer)
    await redeem.click()
    await member.button("Done").click()
    await expect(redeem).to_be_focused()
    is_closed.set()
    await expect(member.at("perks")).to_contain_text("41 LTZ")
    await expect(redeem).to_be_focused()


async def test_a_member_who_has_spent_all_can_still_ask_for_the_code(member: Visitor) -> None:
    """ltzd counts a redemption as spent as soon as it has begun."""
    await with_the_price_of_a_mug(member)

    async def not_mined(route: Route) -> None:
        await route.fulfill(status=202, json={"success": True, "confirmationCode": None})

    async def spent(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), "spendable": 0})

    await member.page.route("**/redeem", not_mined)
    await member.page.route("**/me", spent)
    redeem = member.button(f"Redeem {MUG}")
    async with member.page.expect_response("**/redeem"):
        await redeem.click()
    await member.page.reload()
    await expect(member.at("spendable")).to_have_text("0 LTZ")
    await member.page.route("**/redeem", redeemed_at_once)
    await redeem.click()

    await expect(member.page.get_by_role("dialog", name=MUG)).to_be_visible()
    await member.button("Done").click()
    await expect(redeem).to_be_disabled()


async def test_a_browser_without_storage_shows_the_code(visitor: Visitor) -> None:
    await visitor.page.add_init_script(
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new Error('denied'); } })"
    )
    await visitor.log_in()
    await visitor.button(f"Redeem {COFFEE}").click()
    await expect(visitor.page.get_by_role("dialog", name=COFFEE)).to_be_visible()
    code = await visitor.at("code-text").inner_text()
    await visitor.button("Done").click()
    await expect(visitor.at("code-list")).to_have_text(f"{COFFEE}{code}")


async def test_a_code_that_is_told_again_is_not_paid_again(member: Visitor) -> None:
    await with_the_price_of_a_mug(member)
    await member.page.route("**/redeem", redeemed_at_once)
    for _ in range(2):
        await member.button(f"Redeem {MUG}").click()
        await member.button("Done").click()
        await expect(member.at("pending")).to_have_text("15 LTZ being spent")
    await expect(member.at("code-list")).to_have_text(f"{MUG}MMMM-3333")


async def with_the_price_of_a_mug(member: Visitor) -> None:
    await member.button("Check in").click()
    await member.button("Claim 5 LTZ for 1 day in a row").click()
    await expect(member.at("balance")).to_have_text("15")
    await expect(member.button(f"Redeem {MUG}")).to_be_enabled()


async def redeemed_at_once(route: Route) -> None:
    """A redemption that nothing on chain follows, so that the page waits for its payment."""
    order = route.request.post_data_json
    assert order is not None
    perk = {"id": order["perkId"], "name": MUG, "cost": 15, "category": "goods"}
    await route.fulfill(json={"success": True, "confirmationCode": "MMMM-3333", "perk": perk})


async def size_of(member: Visitor, id_: str) -> str:
    size: str = await member.at(id_).evaluate("each => getComputedStyle(each).fontSize")
    return size.removesuffix("px")


async def test_a_milestone_is_claimed_once_and_what_it_brings_buys_a_perk(member: Visitor) -> None:
    redeem = member.button("Redeem Enamel mug")
    await expect(redeem).to_be_disabled()
    await member.button("Check in").click()
    claim = member.button("Claim 5 LTZ for 1 day in a row")
    await claim.click()
    await expect(member.news).to_have_text("5 LTZ for 1 day in a row. Well done!")
    await expect(claim).to_have_count(0)
    await expect(member.at("balance")).to_have_text("15")

    await redeem.click()

    await expect(member.page.get_by_role("dialog", name="Enamel mug")).to_be_visible()
    await member.button("Done").click()
    await expect(member.at("balance")).to_have_text("0")
    await expect(redeem).to_be_disabled()
    await member.page.reload()
    await expect(member.at("streak-days")).to_have_text("1")
    await expect(claim).to_have_count(0)


async def test_a_big_spender_leads_the_board_that_everybody_may_see(
    member: Visitor, new_visitor: NewVisitor, one_instance: Instance
) -> None:
    metadata = {"amount": 1_000_000}
    event = await one_instance.post_event(
        await member.email(), eventType="purchase", metadata=metadata
    )
    await one_instance.minted(event.event_id)
    stranger = await new_visitor()
    for visitor, suffix in ((member, " you"), (stranger, "")):
        await visitor.arrive()
        line = visitor.at("board").get_by_role("row").filter(has_text=member.name)
        shown = re.compile(rf"{member.name}{suffix}\s+2,000,000 LTZ$")
        await expect(line).to_have_text(shown, use_inner_text=True)
    assert "@" not in await stranger.at("board").inner_text()


async def test_the_board_follows_the_choice(member: Visitor) -> None:
    await member.button("Check in").click()
    await expect(member.at("pending")).to_be_hidden()
    board = member.at("board")
    for metric, unit in (("Activity", "Rewards"), ("Streak", "Days in a row")):
        await member.page.get_by_role("radio", name=metric).check()
        await expect(board.get_by_role("columnheader").last).to_have_text(unit)
        for period, parameter in (
            ("This month", "month"),
            ("All time", "all"),
            ("This week", "week"),
        ):
            async with member.page.expect_response(
                f"**/leaderboard?*period={parameter}"
            ) as response:
                await member.page.get_by_role("radio", name=period).check()
            ranked = (await (await response.value).json())["leaderboard"]
            assert ranked
            names = board.locator(".name")
            await expect(names).to_have_text([entry["username"] for entry in ranked])


# --- spending limits, and links ------------------------------------------------------------------


async def with_foreign_ltz(member: Visitor, instance: Instance) -> None:
    """A member with 10 LTZ from a check-in at the site, and 10 more from another brand."""
    foreign = {"brandId": OTHER_BRAND, "domain": "other.example"}
    event = await instance.post_event(await member.email(), **foreign)
    await instance.minted(event.event_id)
    await member.page.reload()
    await expect(member.at("balance")).to_have_text("10")
    await member.button("Check in").click()
    await expect(member.at("balance")).to_have_text("20")
    await expect(member.at("pending")).to_be_hidden()


OTHER_BRAND = "0xb4a2d0000000000000000000000000000000d0e2"


async def test_a_code_from_the_wallet_app_lets_the_site_spend_the_rest_until_it_is_ended(
    member: Visitor, one_instance: Instance
) -> None:
    await with_foreign_ltz(member, one_instance)
    card = member.page.get_by_role("listitem").filter(has_text=MUG)
    await expect(member.at("spendable")).to_have_text("10 LTZ")
    await expect(card).to_contain_text("Link your wallet to use what else is in it")
    await expect(member.button(f"Redeem {MUG}")).to_be_disabled()

    code = await member.link_code()
    await member.page.get_by_label("Code from your wallet app").fill(f" {code.lower()} ")
    await member.page.keyboard.press("Enter")

    await expect(member.news).to_have_text("Your wallet is linked.")
    await expect(member.at("spendable")).to_have_text("20 LTZ")
    await expect(member.at("link-terms")).to_contain_text(
        "Of the 500 LTZ a day from the rest of your wallet, 500 LTZ are left today."
    )
    await expect(member.at("link-code")).to_be_hidden()
    await member.button(f"Redeem {MUG}").click()
    await member.button("Done").click()
    await expect(member.at("balance")).to_have_text("5")
    await expect(member.at("link-terms")).to_contain_text("495 LTZ are left today")

    await member.button("End the link").click()

    await expect(member.news).to_contain_text("The link is ended")
    await expect(member.at("spendable")).to_have_text("0 LTZ")
    await expect(member.button("End the link")).to_be_hidden()
    assert member.request_count("DELETE link") == 1
    await member.page.reload()
    await expect(member.at("spendable")).to_have_text("0 LTZ")


async def test_the_owner_sees_the_link_in_the_wallet_app_and_ends_it(member: Visitor) -> None:
    await member.page.get_by_text("LTZ from elsewhere?").click()
    await member.page.get_by_label("Code from your wallet app").fill(await member.link_code())
    await member.button("Link the wallet").click()
    await expect(member.button("End the link")).to_be_visible()

    app = await member.wallet_app()
    await app.get_by_role("button", name="End the link to site.example").click()

    await expect(app.get_by_text("The link to site.example is ended.")).to_be_visible()
    await expect(app.get_by_text("No site is linked to this wallet.")).to_be_visible()
    await member.page.reload()
    await expect(member.at("unlinked")).to_be_visible()


async def test_a_wrong_code_is_told_beside_its_field(member: Visitor) -> None:
    page, field = member.page, member.page.get_by_label("Code from your wallet app")
    await page.get_by_text("LTZ from elsewhere?").click()
    await field.fill("ABCD2345")
    async with page.expect_response("**/link") as response:
        await member.button("Link the wallet").click()
    answer = await (await response.value).json()
    assert answer["code"] == "link_failed"
    await expect(member.at("link-fault")).to_have_text(answer["message"])
    await expect(field).to_have_attribute("aria-invalid", "true")
    await expect(field).to_be_focused()
    await expect(field).to_have_value("ABCD2345")
    member.expected_refusals = 1

    await field.fill(await member.link_code())
    await member.button("Link the wallet").click()
    await expect(member.news).to_have_text("Your wallet is linked.")
    await expect(member.at("link-fault")).to_have_text("")


async def test_a_code_works_once(member: Visitor, new_visitor: NewVisitor) -> None:
    code = await member.link_code()
    await member.page.get_by_label("Code from your wallet app").fill(code)
    await member.button("Link the wallet").click()
    await expect(member.news).to_have_text("Your wallet is linked.")
    other = await new_visitor()
    await other.log_in()
    await other.page.get_by_text("LTZ from elsewhere?").click()
    await other.page.get_by_label("Code from your wallet app").fill(code)
    await other.button("Link the wallet").click()
    await expect(other.at("link-fault")).not_to_have_text("")
    await expect(other.button("End the link")).to_be_hidden()
    other.expected_refusals = 1


# --- prices ---------------------------------------------------------------------------------------


async def test_a_perk_is_redeemed_for_no_more_than_the_page_showed(
    member: Visitor, one_instance: Instance
) -> None:
    event = await one_instance.post_event(await member.email())
    await one_instance.minted(event.event_id)
    await member.page.reload()
    card = member.page.get_by_role("listitem").filter(has_text=CLASSES)
    redeem = member.button(f"Redeem {CLASSES}")
    await expect(card).to_contain_text("40 LTZ")
    await expect(member.at("spendable")).to_have_text("100 LTZ")
    try:
        await price_of_classes(one_instance, "45.5")
        await redeem.click()

        await expect(member.news).to_contain_text("The price is now 45.5 LTZ.")
        await expect(member.news).to_contain_text("Press Redeem again to take it at that price.")
        await expect(card).to_contain_text("45.5 LTZ")
        await expect(member.at("balance")).to_have_text("100")
        member.expected_refusals = 1

        async with member.page.expect_request("**/redeem") as request:
            await redeem.click()
        order = (await request.value).post_data_json
        assert order is not None
        assert order["maxCost"] == 46
        await expect(member.page.get_by_role("dialog", name=CLASSES)).to_be_visible()
        await member.button("Done").click()
        await expect(member.at("balance")).to_have_text("54.5")
    finally:
        await price_of_classes(one_instance, "40")


async def price_of_classes(instance: Instance, price: str) -> None:
    """The REGISTRAR changes the price on chain, and ltzd reads it."""
    key = str(instance.data_dir / "keys/admin")
    place = ("--key", key, "--data-dir", str(instance.data_dir))
    command = ("collection", "set", "2", "--price", price, *place)
    process = await instance.command(*command, output=asyncio.subprocess.PIPE)
    output, errors = await process.communicate()
    assert process.returncode == 0, (output, errors)
    url = f"{instance.base_url}/wp-json/loyalty/v1/perks"

    async def is_read() -> bool:
        async with instance.http.get(url, headers={"Host": "site.example"}) as answer:
            perks = (await answer.json())["perks"]
        return any(perk["name"] == CLASSES and perk["cost"] == float(price) for perk in perks)

    await until(is_read)


async def test_who_is_no_longer_logged_in_hears_it(member: Visitor) -> None:
    await member.page.context.clear_cookies()
    async with member.page.expect_response("**/checkin") as response:
        await member.button("Check in").click()
    answer = await (await response.value).json()
    assert answer["code"] == "not_logged_in"
    await expect(member.news).to_have_text(answer["message"])
    member.expected_refusals = 1
    await member.button("Log out").click()
    await expect(member.button("Log in")).to_be_visible()


async def test_it_reads_well_on_a_small_screen_in_light_and_dark(new_visitor: NewVisitor) -> None:
    visitor = await new_visitor(viewport={"width": 360, "height": 740}, reduced_motion="reduce")
    page = visitor.page
    await visitor.arrive()
    await fits_and_reads_well(page)
    await visitor.log_in()
    await visitor.button("Check in").click()
    await expect(visitor.at("pending")).to_be_hidden()
    await page.get_by_text("LTZ from elsewhere?").click()
    await fits_and_reads_well(page)
    assert await page.evaluate(NAMELESS) == []

    app = await visitor.wallet_app()
    await app.get_by_role("button", name="Get a code").click()
    code = await app.get_by_role("status").inner_text()
    await fits_and_reads_well(app)
    assert await app.evaluate(NAMELESS) == []
    await page.get_by_label("Code from your wallet app").fill(code)
    await visitor.button("Link the wallet").click()
    await expect(visitor.button("End the link")).to_be_visible()
    await fits_and_reads_well(page)


async def test_the_keyboard_alone_gets_a_code_links_and_ends_the_link(member: Visitor) -> None:
    page = member.page
    await to_reach(page, page.get_by_text("LTZ from elsewhere?"))
    await page.keyboard.press("Enter")
    await to_reach(page, page.locator("#unlinked .wallet-app"))
    async with page.context.expect_page() as opened:
        await page.keyboard.press("Enter")
    app = await opened.value
    await app.get_by_label("E-mail address").focus()
    await app.keyboard.press("Enter")
    await app.get_by_label("LTZ a day").fill("70")
    await app.keyboard.press("Enter")
    code = await app.get_by_role("status").inner_text()
    await app.close()

    await page.get_by_label("Code from your wallet app").focus()
    await page.keyboard.type(code)
    await page.keyboard.press("Enter")
    await expect(member.at("link-terms")).to_contain_text("70 LTZ are left today")
    await expect(member.at("wallet-title")).to_be_focused()
    await to_reach(page, member.button("End the link"))
    await page.keyboard.press("Enter")
    await expect(member.button("End the link")).to_be_hidden()
    await expect(member.at("wallet-title")).to_be_focused()


async def to_reach(page: Page, target: Locator) -> None:
    for _ in range(3 * MOST_TABS):
        await page.keyboard.press("Tab")
        if await target.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError("the keyboard does not get there")


async def fits_and_reads_well(page: Page) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
    grounds = set()
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        grounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert await page.evaluate(UNREADABLE) == [], scheme
    assert len(grounds) == len(SCHEMES)


# Texts whose contrast is below WCAG's AA. Colours are read as they are rendered.
UNREADABLE = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const channels = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (color) => {
    const [r, g, b] = channels(color).slice(0, 3).map((byte) => {
      const part = byte / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (each) => {
    for (; each; each = each.parentElement) {
      const color = getComputedStyle(each).backgroundColor;
      if (channels(color)[3] === 255) return color;
    }
  };
  const hasText = (each) =>
    [...each.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const isSeen = (each) => each.checkVisibility({ visibilityProperty: true });
  const isOff = (each) => each.closest(":disabled, [aria-disabled=true]");
  return [...document.body.querySelectorAll("*")]
    .filter((each) => hasText(each) && isSeen(each) && !isOff(each))
    .map((each) => {
      const style = getComputedStyle(each);
      const [dark, light] = [luminance(style.color), luminance(ground(each))].sort((a, b) => a - b);
      const size = parseFloat(style.fontSize);
      const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
      return { text: each.textContent.trim(), ratio: (light + 0.05) / (dark + 0.05), isLarge };
    })
    .filter(({ ratio, isLarge }) => !(ratio >= (isLarge ? 3 : 4.5)));
}"""

# Controls without an accessible name.
NAMELESS = """() =>
  [...document.querySelectorAll("button, input, textarea, progress, dialog, table")]
    .filter((each) => each.checkVisibility())
    .filter((each) => !(each.ariaLabel || each.textContent.trim() || each.labels?.length))
    .map((each) => each.outerHTML)"""
