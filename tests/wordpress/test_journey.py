"""An owner connects a real WordPress as the plugin's README says, and a member spends points there.

Both use Chromium. In `make test` the site is in a folder and has another REST prefix;
`make wordpress` also tries a site at the root, and one whose only PHP worker waits for itself.
Skipped where Debian's packages of a WordPress (scripts/test-tools) are missing.
"""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.async_api import Browser, Error, Page, async_playwright, expect

from ltzd.dev import demo
from tests.support.commands import ltzd
from tests.support.instances.instance import Instance, an_instance
from tests.support.sites.wordpress import PASSWORD, Shape, WordPressSite, a_wordpress
from tests.support.tools import chromium_path
from tests.support.waiting import until

IS_FULL = bool(os.environ.get("LTZD_WORDPRESS"))
IMAGES = os.environ.get("LTZD_WORDPRESS_IMAGES")
"""A folder for screenshots."""
FOLDER = Shape("/blog", "api/rest")
SHAPES = (FOLDER, Shape()) if IS_FULL else (FOLDER,)
HOST = "site.example"
WELCOME = "account_creation"
BLOCKS = "".join(
    f"<!-- wp:ltzd-loyalty/{name} /-->" for name in ("streak", "points", "perks", "leaderboard")
)
WRITE_PAGE = """async (content) => {
  await wp.data.dispatch('core/editor').editPost({ title: 'Rewards', content, status: 'publish' });
  await wp.data.dispatch('core/editor').savePost();
  return wp.data.select('core/editor').getPermalink();
}"""
_MS = 60_000


@asynccontextmanager
async def connected(folder: Path, shape: Shape) -> AsyncIterator[tuple[WordPressSite, Instance]]:
    """A new site, and an ltzd whose operator has done step 3 of the README."""
    async with (
        a_wordpress(folder, shape) as site,
        an_instance("--chain", "anvil", "--site-url", site.url) as instance,
    ):
        text = Path(demo.__file__).with_name("brand.toml").read_text()
        text = text.replace('domains = ["shop.example"]', f'domains = ["shop.example", "{HOST}"]')
        if shape.rest_prefix != "wp-json":
            text = text.replace("[site]\n", f'[site]\nrest_prefix = "{shape.rest_prefix}"\n')
        file = folder / "brand.toml"
        file.write_text(text)
        done = await ltzd("brand", "apply", file, "--data-dir", instance.data_dir)
        assert done.code == 0, done.err
        yield site, instance


@asynccontextmanager
async def a_browser() -> AsyncIterator[Browser]:
    path = chromium_path()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


class Visitor:
    """A browser's profile; errors of the plugin's scripts are kept."""

    def __init__(self, site: WordPressSite, page: Page) -> None:
        self.site = site
        self.page = page
        self.errors: list[str] = []
        page.set_default_timeout(_MS)
        page.on("pageerror", self._keep)

    def _keep(self, error: Error) -> None:
        """Debian's WordPress itself lacks libraries unless more packages are installed."""
        if "ltzd" in (error.stack or ""):
            self.errors.append(str(error))

    async def open(self, path: str) -> None:
        await self.page.goto(path if path.startswith("http") else self.site.url + path)

    async def log_in(self, name: str) -> None:
        """
        The page takes the focus for the name a moment after it has loaded; a password that is
        typed at that moment would land in the name's field.
        """
        user = self.page.get_by_label("Username or Email Address")
        await expect(user).to_be_focused()
        await user.fill(name)
        await self.page.get_by_label("Password", exact=True).fill(PASSWORD)
        await self.page.get_by_role("button", name="Log In").click()

    async def picture(self, name: str) -> None:
        if IMAGES:
            await self.page.screenshot(path=Path(IMAGES) / f"{name}.png")


async def a_visitor(browser: Browser, site: WordPressSite, height: int) -> Visitor:
    context = await browser.new_context(viewport={"width": 1_100, "height": height})
    return Visitor(site, await context.new_page())


async def connect(owner: Visitor, instance: Instance) -> None:
    """Steps 1 and 2 of the README: activation, and the settings with their tests."""
    await owner.open("/wp-admin/plugins.php")
    await owner.log_in("admin")
    await owner.page.locator("tr[data-slug='ltzd-loyalty'] .activate a").click()
    await expect(owner.page.locator("#message")).to_contain_text("Plugin activated")
    await owner.page.locator("tr[data-slug='ltzd-loyalty']").get_by_text("Settings").click()
    field = owner.page.get_by_label
    await field("Address of ltzd").fill(instance.base_url)
    await field("Brand id").fill(instance.dev_json["brand"]["brandId"])
    await field("Host name").fill(HOST)
    await field("Registration").fill(WELCOME)
    await owner.page.get_by_role("button", name="Save Changes").click()


async def publish(owner: Visitor) -> str:
    """Step 4: a page with all blocks, in the editor. Returns its URL."""
    await owner.open("/wp-admin/post-new.php?post_type=page")
    await owner.page.wait_for_function(
        "window.wp && wp.blocks && wp.blocks.getBlockType('ltzd-loyalty/leaderboard')"
    )
    url: str = await owner.page.evaluate(WRITE_PAGE, BLOCKS)
    return url


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.path or "root")
async def test_an_owner_connects_a_site_and_a_member_redeems_a_perk(
    shape: Shape, tmp_path: Path
) -> None:
    async with connected(tmp_path, shape) as (site, instance), a_browser() as browser:
        site.install()
        owner = await a_visitor(browser, site, 940)
        await connect(owner, instance)
        lines = owner.page.locator(".wrap > p")
        await expect(lines.first).to_have_text(f"ltzd serves {HOST}.")
        shown = " ".join(await lines.all_inner_texts())
        assert "ltzd knows the brand." in shown
        assert "ltzd asked this site who you are, and the site told it." in shown
        assert ('url = "' in shown) == bool(shape.path)
        assert ('rest_prefix = "api/rest"' in shown) == (shape.rest_prefix != "wp-json")
        await owner.picture("wordpress-settings")
        rewards = await publish(owner)
        assert rewards == f"{site.url}/rewards/"

        name = f"ann{uuid4().hex[:8]}"
        await site.register(name, f"{name}@shop.example")
        await site.run("do_action( 'ltzd_loyalty_send' );")

        async def is_welcomed() -> bool:
            return bool(
                await instance.ask(
                    "SELECT count(*) FROM rewards WHERE mint_block_hash IS NOT NULL AND kind = 1"
                )
            )

        await until(is_welcomed)
        member = await a_visitor(browser, site, 540)
        await member.open(rewards)
        await member.page.get_by_text("Log in to see your rewards.").first.click()
        await member.log_in(name)
        await expect(member.page).to_have_url(rewards)
        await member.page.get_by_role("button", name="Check in").click()
        streak = member.page.locator("[data-ltzd-block=streak]")
        await expect(streak.locator("[data-part=news]")).to_contain_text("10")
        await expect(streak.locator("[data-part=days]")).to_have_text("1")
        points = member.page.locator("[data-ltzd-block=points]")
        await expect(points.locator("[data-part=balance]")).to_contain_text(re.compile("1[01]0"))
        perks = member.page.locator("[data-ltzd-block=perks]")
        await perks.get_by_role("button", name="Redeem Free coffee").click()
        await expect(perks.locator("[data-part=news]")).to_have_text(
            re.compile(r"Your code: [A-Z2-9]{4}-[A-Z2-9]{4}-[A-Z2-9]{4}")
        )
        await member.picture("wordpress-member")
        assert owner.errors + member.errors == []
        assert site.faults() == []


@pytest.mark.skipif(not IS_FULL, reason="`make wordpress` tries a single worker")
async def test_a_site_whose_only_worker_waits_for_itself_is_told_so(tmp_path: Path) -> None:
    async with connected(tmp_path, Shape(workers=1)) as (site, instance):
        await site.activate()
        keep = "update_option( 'ltzd_loyalty', [ 'url' => $argv[1], 'host' => $argv[2] ] );"
        await site.run(keep, instance.base_url, HOST)
        administrator = await site.log_in("admin")
        _, page = await administrator.open(
            f"{site.url}/wp-admin/options-general.php?page=ltzd-loyalty"
        )
        assert "this site did not answer within five seconds. Give PHP a second worker" in page
