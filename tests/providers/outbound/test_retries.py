"""Retries of a provider's requests: how many, how long apart, and when the deadline ends them."""

import asyncio

import pytest

from ltzd.concurrency.clock import loop_time
from ltzd.providers.outbound.retries import RetryPolicy, TransientFailure, with_retries

FAILURE = TransientFailure("The provider is not available", "status 503")


class Request:
    """Fails as often as `failures` says, then answers "done"."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.sent_at: list[float] = []

    async def __call__(self) -> str:
        self.sent_at.append(loop_time())
        if self.failures:
            raise self.failures.pop(0)
        return "done"


async def test_a_transient_failure_is_retried_until_an_answer_comes() -> None:
    request = Request(FAILURE, FAILURE)

    assert await with_retries(request, RetryPolicy(3, 0.001), loop_time() + 5) == "done"
    assert len(request.sent_at) == 3


async def test_the_last_attempts_failure_is_raised() -> None:
    request = Request(*[FAILURE] * 5)

    with pytest.raises(TransientFailure) as raised:
        await with_retries(request, RetryPolicy(3, 0.001), loop_time() + 5)

    assert raised.value.reason == "status 503"
    assert len(request.sent_at) == 3


async def test_any_other_failure_is_not_retried() -> None:
    request = Request(ValueError("refused"))

    with pytest.raises(ValueError, match="refused"):
        await with_retries(request, RetryPolicy(3, 0.001), loop_time() + 5)

    assert len(request.sent_at) == 1


async def test_pauses_double_and_a_requested_wait_is_kept() -> None:
    request = Request(FAILURE, FAILURE, TransientFailure("busy", "status 429", 0.2))

    await with_retries(request, RetryPolicy(4, 0.02), loop_time() + 5)

    first, second, third = (
        later - earlier
        for earlier, later in zip(request.sent_at, request.sent_at[1:], strict=False)
    )
    assert first >= 0.009
    assert second >= 0.019
    assert third >= 0.199


async def test_a_pause_that_would_pass_the_deadline_is_not_waited_for() -> None:
    request = Request(TransientFailure("busy", "status 429", 60.0))

    async with asyncio.timeout(5):
        with pytest.raises(TransientFailure):
            await with_retries(request, RetryPolicy(4, 0.001), loop_time() + 10)

    assert len(request.sent_at) == 1
