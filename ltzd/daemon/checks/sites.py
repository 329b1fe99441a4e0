"""Sends each brand's site the request for its member, without a log-in. Changes nothing."""

import asyncio
from typing import Final

import asyncpg

from ltzd.actions.site_plugin.members import SitePolicy
from ltzd.daemon.checks.brands import active_brands
from ltzd.daemon.settings.settings import Settings
from ltzd.errors import DatabaseUnavailable, HostSiteUnavailable, Misconfigured
from ltzd.providers import host_sites
from ltzd.providers.host_sites import HostSiteClient, users_me_url
from ltzd.providers.outbound.json_bodies import InvalidJsonError, decode_json
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.checks import sites as rules
from ltzd.rules.checks.findings import Finding
from ltzd.store import database

_AT_ONCE: Final = 20
"""Below the requests that may wait for one host, which may have the sites of many brands."""


async def examine(settings: Settings) -> list[Finding]:
    """One finding for each site; none if the database cannot be read, which other checks say."""
    try:
        connection = await database.connect(settings.database_url.get_secret_value(), "check")
    except (Misconfigured, DatabaseUnavailable):
        return []
    try:
        brands = await active_brands(connection)
    except (
        *database.LOST,
        asyncpg.UndefinedTableError,
        asyncpg.UndefinedColumnError,
        asyncpg.InsufficientPrivilegeError,
    ):
        return []
    finally:
        connection.terminate()
    policy = SitePolicy(settings.site.base_url, settings.site.rest_prefix)
    client = HostSiteClient(host_sites.guard_policy(allow_loopback=settings.staging))
    try:
        return await ask_all(client, brands, policy)
    finally:
        await client.close()


async def ask_all(client: HostSiteClient, brands: list[Brand], policy: SitePolicy) -> list[Finding]:
    """The findings of all sites, of which up to `_AT_ONCE` are asked at once."""
    addresses = dict.fromkeys(
        (policy.base_url_of(brand, host), policy.rest_prefix_of(brand))
        for brand in brands
        if brand.site is not None
        for host in brand.site.hosts
    )
    slots = asyncio.Semaphore(_AT_ONCE)

    async def ask(origin: str, rest_prefix: str) -> Finding:
        async with slots:
            return await _ask(client, origin, rest_prefix)

    return list(await asyncio.gather(*(ask(*address) for address in addresses)))


async def _ask(client: HostSiteClient, origin: str, rest_prefix: str) -> Finding:
    url = users_me_url(origin, rest_prefix)
    try:
        answer = await client.ask_without_log_in(origin, rest_prefix)
    except HostSiteUnavailable as error:
        return rules.on_no_answer(url, str(error.details["reason"]))
    return rules.on_answer(url, answer.status, _code_in(answer.body))


def _code_in(body: bytes) -> str | None:
    try:
        content = decode_json(body)
    except InvalidJsonError:
        return None
    code = content.get("code") if isinstance(content, dict) else None
    return code if isinstance(code, str) else None
