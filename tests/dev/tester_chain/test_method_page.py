"""docs/dev-chain.md tells what both dev chains answer to five clients."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.clients.method_page import PAGE, Comparison, compared

REFUSED_BY_ALL = {"setMinGasPrice"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def comparison() -> AsyncIterator[Comparison]:
    yield await compared()


def test_the_page_tells_what_both_chains_answer(comparison: Comparison) -> None:
    text = PAGE.read_text()
    assert text.splitlines() == comparison.page(text).splitlines(), "run `make dev-chain-page`"


def test_every_action_of_viems_test_client_works(comparison: Comparison) -> None:
    refused = {
        ours["action"]: ours["refusal"]
        for ours, _ in comparison.actions["settings"]
        if "refusal" in ours
    }
    assert refused.keys() == REFUSED_BY_ALL


def test_filters_and_subscriptions_work_alike_on_both_chains(comparison: Comparison) -> None:
    assert all(ours == theirs for ours, theirs in comparison.actions["filters"])
