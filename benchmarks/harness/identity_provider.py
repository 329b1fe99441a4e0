"""The sandbox's identity provider with answers that take a known time.

ltzd has so many requests to the provider under way at most, so that this time bounds the wallets
that can be made a second. The provider's limit of users a minute is off.
"""

import aiohttp

from benchmarks.harness.instance import Instance
from ltzd.providers.identity.client import IdentityPolicy

DELAY_SECONDS = 0.05
"""Of each answer."""
MOST_PLACES = IdentityPolicy("", "", "").max_concurrent
"""The number of concurrent requests of ltzd at the provider."""
_CALLS = 'ltzd_providers_request_seconds_count{outcome="ok",provider="identity"}'


async def slow_down(ltzd: Instance, client: aiohttp.ClientSession) -> None:
    order = {"service": "identity", "delaySeconds": DELAY_SECONDS, "times": 1_000_000}
    async with client.post(ltzd.dev_json["sandbox"]["faultUrl"], json=order) as answer:
        answer.raise_for_status()


async def count_calls(ltzd: Instance, client: aiohttp.ClientSession) -> int:
    """The number of requests that ltzd has made to the provider."""
    async with client.get(f"{ltzd.dev_json['adminUrl']}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next((int(float(line.split()[-1])) for line in lines if line.startswith(_CALLS)), 0)
