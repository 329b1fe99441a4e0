"""One real browser for all tests of this folder, and visitors of the demo site in it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.support.instances.instance import Instance
from tests.support.sites.visitors import TIMEOUT_MILLISECONDS, NewVisitor, Visitor, a_visitor
from tests.support.tools import chromium_path

expect.set_options(timeout=TIMEOUT_MILLISECONDS)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = chromium_path()
    async with async_playwright() as playwright:
        # Chromium's sandbox does not work for root; the tests open our own pages only.
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture
async def new_visitor(browser: Browser, one_instance: Instance) -> AsyncIterator[NewVisitor]:
    """Makes visitors with a profile each; at the end their browsers' records are checked."""
    site = f"{one_instance.dev_json['sandboxUrl']}/site/"
    async with AsyncExitStack() as stack:

        async def new(**profile: object) -> Visitor:
            return await stack.enter_async_context(a_visitor(browser, site, **profile))

        yield new


@pytest_asyncio.fixture
async def visitor(new_visitor: NewVisitor) -> Visitor:
    return await new_visitor()


@pytest_asyncio.fixture
async def member(visitor: Visitor) -> Visitor:
    """A visitor who has logged in for the first time."""
    await visitor.log_in()
    return visitor
