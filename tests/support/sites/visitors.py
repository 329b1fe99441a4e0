"""Who visits the demo site with a browser, and what the browser says of the visit."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from playwright.async_api import Browser, ConsoleMessage, Locator, Page, Request, expect

API = "/wp-json/loyalty/v1/"
PATIENCE_MILLISECONDS = 10_000


@dataclass
class Visitor:
    page: Page
    site: str
    name: str = field(default_factory=lambda: f"Ann {uuid4().hex[:12]}")
    refused: int = 0
    """How many requests are meant to be refused, which the browser writes to its console."""
    asked: list[str] = field(default_factory=list)
    """Method and path of every request to the API."""
    elsewhere: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def arrive(self) -> None:
        await self.page.goto(self.site)

    async def log_in(self) -> None:
        await self.arrive()
        await self.page.get_by_label("User name").fill(self.name)
        await self.button("Log in").click()
        await expect(self.page.get_by_role("heading", level=1)).to_have_text(
            f"Good to see you, {self.name}"
        )
        await expect(self.at("balance")).not_to_have_text("…")

    def at(self, id_: str) -> Locator:
        return self.page.locator(f"#{id_}")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    @property
    def news(self) -> Locator:
        return self.page.get_by_role("status")

    async def balance(self) -> int:
        return int((await self.at("balance").inner_text()).replace(",", ""))

    async def email(self) -> str:
        """The address that the page hands to the wallet app."""
        address = await self.page.locator(".wallet-app").first.get_attribute("href")
        assert address is not None
        (email,) = parse_qs(urlsplit(address).query)["email"]
        return email

    async def wallet_app(self) -> Page:
        """The page that plays the visitor's wallet app, opened as the visitor opens it."""
        way = self.page.locator(".wallet-app:visible")
        if not await way.count():
            await self.page.get_by_text("LTZ from elsewhere?").click()
        async with self.page.context.expect_page() as opened:
            await way.click()
        page = await opened.value
        await page.get_by_role("button", name="Open the wallet").click()
        return page

    async def link_code(self) -> str:
        app = await self.wallet_app()
        await app.get_by_role("button", name="Get a code").click()
        code = await app.get_by_role("status").inner_text()
        await app.close()
        return code

    def times_asked(self, line: str) -> int:
        return self.asked.count(line)

    def note_request(self, request: Request) -> None:
        if not request.url.startswith(self.site):
            self.elsewhere.append(request.url)
        path = urlsplit(request.url).path
        if API in path:
            self.asked.append(f"{request.method} {path.partition(API)[2]}")

    def note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def check(self) -> None:
        assert self.elsewhere == []
        refusals = [each for each in self.complaints if "Failed to load resource" in each]
        assert len(refusals) == self.refused, self.complaints
        assert len(self.complaints) == self.refused, self.complaints


NewVisitor = Callable[..., Awaitable[Visitor]]


@asynccontextmanager
async def a_visitor(browser: Browser, site: str, **profile: Any) -> AsyncIterator[Visitor]:
    context = await browser.new_context(**profile)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    page = await context.new_page()
    visitor = Visitor(page, site)
    page.on("request", visitor.note_request)
    page.on("console", visitor.note_message)
    page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
    try:
        yield visitor
        visitor.check()
    finally:
        await context.close()
