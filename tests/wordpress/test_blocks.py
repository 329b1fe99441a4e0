"""The plugin's blocks and shortcodes as PHP renders them, and ltzd's messages translated."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from ltzd.actions.site_plugin import check_ins, links, redemptions
from ltzd.http.site_plugin import errors
from ltzd.rules.site_plugin import redemptions as redeeming
from tests.support.services.web_servers import served_at
from tests.support.sites.plugin_site import PLUGIN, StubbedSite, a_stubbed_site

NAMES = ("streak", "points", "perks", "leaderboard")
SESSION = {"Cookie": "wordpress_logged_in_a=ann%7Ctoken", "X-WP-Nonce": "a1b2c3d4e5"}
PERKS = [
    {"id": "p-1", "name": "Mug <b>", "cost": 15, "category": "drinks", "available": True},
    {"id": "p-2", "name": 'Free "coffee"', "cost": 0, "category": "drinks", "available": False},
    {"id": "p-3", "name": "Bun", "cost": 1234.5, "category": "food", "available": True},
]
BOARD = [{"userIdentifier": "x", "username": "ann & bob", "value": 1200, "rank": 1}]


class Ltzd:
    """A fake ltzd: the answer to each path, and what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {
            "perks": (200, {"success": True, "perks": PERKS}),
            "leaderboard": (200, {"success": True, "leaderboard": BOARD}),
        }
        self.targets: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        assert request.headers["Host"] == "site.example"
        name = request.path.rpartition("/")[2]
        assert name == "me" or "Cookie" not in request.headers
        self.targets.append(request.raw_path.removeprefix("/wp-json/loyalty/v1/"))
        status, body = self.answers[name]
        return web.json_response(body, status=status)


@pytest_asyncio.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StubbedSite]:
    async with a_stubbed_site(tmp_path_factory.mktemp("blocks")) as site:
        yield site


@pytest_asyncio.fixture
async def ltzd(server: StubbedSite) -> AsyncIterator[Ltzd]:
    ltzd = Ltzd()
    application = web.Application()
    application.router.add_route("GET", "/{path:.*}", ltzd.answer)
    async with served_at(application) as ltzd.url:
        server.keep(ltzd_loyalty={"url": ltzd.url})
        server.keep_users({1: {"login": "ann", "email": "ann@site.example", "capabilities": []}})
        yield ltzd


async def page(site: StubbedSite, path: str = "/blocks/") -> str:
    status, text = await site.open(path)
    assert status == 200, text
    return text


async def test_a_visitor_sees_perks_and_leaderboard_without_a_script(
    server: StubbedSite, ltzd: Ltzd
) -> None:
    server.keep(user=0, **server.options())
    text = await page(server)
    assert "<script" not in text
    assert text.count("Log in to see your rewards.") == 2
    assert "<span>Mug &lt;b&gt;</span>" in text
    prices = re.findall(r'data-part="price">([^<]*)<', text)
    assert prices == ["15 LTZ", "Free", "1,234.50 LTZ"]
    assert '<td>1</td><th scope="row">ann &amp; bob</th><td>1,200</td>' in text
    assert "<button" not in text


async def test_a_members_page_has_a_button_for_each_perk_and_the_scripts_once(
    server: StubbedSite, ltzd: Ltzd
) -> None:
    text = await page(server)
    assert text.count('aria-label="Redeem ') == len(PERKS)
    assert 'aria-label="Redeem Free &quot;coffee&quot;"' in text
    assert text.count("window.ltzdLoyaltyPage = ") == 1
    assert re.findall(r'src="([^"]*)"', text) == [
        "/wp-content/plugins/ltzd-loyalty/api.js",
        "/wp-content/plugins/ltzd-loyalty/blocks.js",
    ]
    (data,) = re.findall(r"window\.ltzdLoyaltyPage = (.*?);</script>", text)
    page_data = json.loads(data)
    assert (page_data["root"], page_data["nonce"]) == ("/wp-json/loyalty/v1/", "0123456789")


async def test_ltzds_answer_is_kept_for_the_next_pages(server: StubbedSite, ltzd: Ltzd) -> None:
    assert await page(server) == await page(server)
    query = "metric=ltz_earned&period=week&limit=10"
    assert ltzd.targets == ["perks", f"leaderboard?{query}"]
    assert server.sent_with()["timeout"] == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("metric=streak&period=all&limit=3", "metric=streak&period=all&limit=3"),
        ("metric=x&period=%0a&limit=0", "metric=ltz_earned&period=week&limit=1"),
        ("limit=1000", "metric=ltz_earned&period=week&limit=100"),
        ("limit=many&other=1", "metric=ltz_earned&period=week&limit=10"),
    ],
)
async def test_a_shortcode_asks_only_for_what_ltzd_accepts(
    server: StubbedSite, ltzd: Ltzd, given: str, expected: str
) -> None:
    await page(server, f"/blocks/?{given}")
    assert ltzd.targets == ["perks", f"leaderboard?{expected}"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_block_is_what_the_shortcode_is_in_the_themes_wrapper(
    server: StubbedSite, ltzd: Ltzd, name: str
) -> None:
    text = await page(server, f"/block/?name=ltzd-loyalty/{name}")
    assert re.match(rf'\s*<div class="wp-block ltzd-block" data-ltzd-block="{name}"', text), text


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"code": "api_error", "message": "x", "data": {"status": 500}}),
        (200, {"success": True}),
        (200, ["x"]),
        (200, {"success": True, "perks": "x", "leaderboard": 7}),
    ],
)
async def test_without_ltzds_answer_the_page_says_so_and_asks_no_more_at_once(
    server: StubbedSite, ltzd: Ltzd, answer: tuple[int, Any]
) -> None:
    server.keep(user=0, **server.options())
    ltzd.answers = {"perks": answer, "leaderboard": answer}
    for _ in range(2):
        text = await page(server)
        assert text.count("The loyalty programme gives no answer.") == 2
    assert len(ltzd.targets) == 2


async def test_what_is_malformed_in_an_answer_is_left_out(server: StubbedSite, ltzd: Ltzd) -> None:
    ltzd.answers = {
        "perks": (200, {"success": True, "perks": [PERKS[0], {"id": 7}, "x", {"id": []}]}),
        "leaderboard": (200, {"success": True, "leaderboard": [{"rank": "x"}, 1]}),
    }
    text = await page(server)
    assert text.count("data-perk=") == 1
    assert "Nobody is on this list yet." in text


# --- messages -----------------------------------------------------------------------------------


async def message_to_member(server: StubbedSite, ltzd: Ltzd, code: str, message: str) -> str:
    refusal = {"code": code, "message": message, "data": {"status": 400}}
    ltzd.answers["me"] = (400, refusal)
    url = f"{server.url}/wp-json/loyalty/v1/me"
    async with server.http.get(url, headers=SESSION) as answer:
        body = await answer.json()
        assert (answer.status, body["code"]) == (400, code)
        return str(body["message"])


@pytest.fixture
def german(server: StubbedSite, ltzd: Ltzd) -> StubbedSite:
    server.keep(locale="de_DE", **server.options())
    return server


async def test_the_editor_names_the_blocks_in_the_sites_language(german: StubbedSite) -> None:
    status, script = await german.open("/editor/")
    assert status == 200
    shown = json.loads(script.removeprefix("window.ltzdLoyaltyBlocks = ").removesuffix(";"))
    titles = [block["title"] for block in shown]
    assert titles == [f"de_DE: Loyalty: {name}" for name in NAMES]


async def test_a_site_in_english_shows_ltzds_own_words(server: StubbedSite, ltzd: Ltzd) -> None:
    message = "Words that nobody has listed."
    assert await message_to_member(server, ltzd, "redeem_failed", message) == message


async def test_a_listed_sentence_is_translated_with_its_amounts(
    german: StubbedSite, ltzd: Ltzd
) -> None:
    sold_out = await message_to_member(german, ltzd, "redeem_failed", "This perk is sold out.")
    assert sold_out == "de_DE: This perk is sold out."
    message = "This perk costs 12.5 LTZ, but your wallet holds 3 LTZ."
    assert await message_to_member(german, ltzd, "redeem_failed", message) == f"de_DE: {message}"


async def test_another_sentence_becomes_that_of_its_code(german: StubbedSite, ltzd: Ltzd) -> None:
    message = await message_to_member(german, ltzd, "claim_failed", "Words that nobody has listed.")
    assert message == "de_DE: The milestone could not be claimed."
    assert (
        await message_to_member(german, ltzd, "rest_new", "Words of a new code.")
        == "Words of a new code."
    )


def test_every_sentence_that_ltzd_has_for_a_member_is_listed() -> None:
    listed = re.findall(
        r"pair\( '((?:[^'\\]|\\.)*)' \)", (PLUGIN.parent / "messages.php").read_text()
    )
    known = {sentence.replace("\\'", "'") for sentence in listed}
    assert len(known) > 30
    texts = sentences_of_ltzd()
    assert len(texts) > 20
    assert texts - known == set()


def sentences_of_ltzd() -> set[str]:
    """The constants of the modules that hold whole sentences for members."""
    values: list[object] = [*errors._MESSAGES.values(), *redeeming._BY_REVERT.values()]
    for module in (redeeming, check_ins, links, redemptions, errors):
        values += [value for name, value in vars(module).items() if name.isupper()]
    return {
        text
        for text in values
        if isinstance(text, str) and text.endswith(".") and text != redeeming.ABANDONED_UNSENT
    }
