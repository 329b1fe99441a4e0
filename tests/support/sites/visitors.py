"""Visitors of the demo site with a browser, and the browser's records of the visit."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
)

API = "/wp-json/loyalty/v1/"
# As long as other tests wait for a fact: a short one would be a timed test on a busy machine.
TIMEOUT_MILLISECONDS = 60_000


@dataclass
class Visitor:
    page: Page
    site: str
    name: str = field(default_factory=lambda: f"Ann {uuid4().hex[:12]}")
    expected_refusals: int = 0
    """The browser writes each refused request to its console."""
    api_requests: list[str] = field(default_factory=list)
    """Method and path of every request to the API."""
    foreign_requests: list[str] = field(default_factory=list)
    """URLs outside the site."""
    console_errors: list[str] = field(default_factory=list)

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
        """Returns the address that the page passes to the wallet app."""
        address = await self.page.locator(".wallet-app").first.get_attribute("href")
        assert address is not None
        (email,) = parse_qs(urlsplit(address).query)["email"]
        return email

    async def wallet_app(self) -> Page:
        """Opens the page that stands for the visitor's wallet app, as the visitor does."""
        link = self.page.locator(".wallet-app:visible")
        if not await link.count():
            await self.page.get_by_text("LTZ from elsewhere?").click()
        async with self.page.context.expect_page() as opened:
            await link.click()
        page = await opened.value
        await page.get_by_role("button", name="Open the wallet").click()
        return page

    async def link_code(self) -> str:
        app = await self.wallet_app()
        await app.get_by_role("button", name="Get a code").click()
        code = await app.get_by_role("status").inner_text()
        await app.close()
        return code

    def request_count(self, line: str) -> int:
        return self.api_requests.count(line)

    def note_request(self, request: Request) -> None:
        if not request.url.startswith(self.site):
            self.foreign_requests.append(request.url)
        path = urlsplit(request.url).path
        if API in path:
            self.api_requests.append(f"{request.method} {path.partition(API)[2]}")

    def note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.console_errors.append(message.text)

    def check(self) -> None:
        assert self.foreign_requests == []
        refusals = [error for error in self.console_errors if "Failed to load resource" in error]
        assert len(refusals) == self.expected_refusals, self.console_errors
        assert len(self.console_errors) == self.expected_refusals, self.console_errors


NewVisitor = Callable[..., Awaitable[Visitor]]


@asynccontextmanager
async def a_context(browser: Browser, **profile: Any) -> AsyncIterator[BrowserContext]:
    """
    A profile of its own in the browser, closed at the end.

    A request that the test answers itself may still be under way then. Playwright would hand the
    error of that closed request to whatever the event loop runs next, such as another test.
    """
    context = await browser.new_context(**profile)
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    try:
        yield context
    finally:
        for page in context.pages:
            await page.unroute_all(behavior="ignoreErrors")
        await context.close()


@asynccontextmanager
async def a_visitor(browser: Browser, site: str, **profile: Any) -> AsyncIterator[Visitor]:
    async with a_context(browser, **profile) as context:
        page = await context.new_page()
        visitor = Visitor(page, site)
        page.on("request", visitor.note_request)
        page.on("console", visitor.note_message)
        page.on("pageerror", lambda error: visitor.console_errors.append(str(error)))
        yield visitor
        visitor.check()
