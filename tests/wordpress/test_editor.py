"""The plugin's blocks in WordPress's own editor, in a real browser.

Skipped where Debian's packages of a WordPress (scripts/test-tools) are missing.
"""

from playwright.async_api import async_playwright, expect

from tests.support.sites.wordpress import WordPressSite
from tests.support.tools import chromium_path

_MS = 60_000
NAMES = ("streak", "points", "perks", "leaderboard")
HAS_BLOCKS = "window.wp && wp.blocks && wp.blocks.getBlockType('ltzd-loyalty/leaderboard')"
INSERT = """(names) => names.forEach((name) => wp.data.dispatch('core/block-editor')
  .insertBlock(wp.blocks.createBlock(`ltzd-loyalty/${name}`)))"""
SELECT_LAST = """() => {
  wp.data.dispatch('core/block-editor')
    .selectBlock(wp.data.select('core/block-editor').getBlocks().at(-1).clientId);
  wp.data.dispatch('core/edit-post').openGeneralSidebar('edit-post/block');
}"""


async def test_the_editor_shows_each_block_as_php_renders_it(site: WordPressSite) -> None:
    await site.run("update_option( 'ltzd_loyalty', [ 'url' => '', 'brand' => '', 'host' => '' ] );")
    administrator = await site.log_in("admin")
    path = chromium_path()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        context = await browser.new_context()
        await context.add_cookies(
            [
                {"name": name, "value": value, "url": site.url}
                for name, value in administrator.cookies.items()
            ]
        )
        page = await context.new_page()
        await page.goto(f"{site.url}/wp-admin/post-new.php?post_type=page", timeout=_MS)
        await page.wait_for_function(HAS_BLOCKS, timeout=_MS)
        await page.evaluate(INSERT, list(NAMES))
        for name in NAMES:
            block = page.locator(f'.ltzd-block[data-ltzd-block="{name}"]')
            await expect(block).to_be_visible(timeout=_MS)
        await page.evaluate(SELECT_LAST)
        await page.get_by_label("Ranked by").select_option("streak", timeout=_MS)
        content = "wp.data.select('core/editor').getEditedPostContent()"
        written = await page.evaluate(content)
        await browser.close()
    assert '<!-- wp:ltzd-loyalty/leaderboard {"metric":"streak"} /-->' in written
