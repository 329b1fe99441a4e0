"""`ltzd check` asks brands' sites, and says of each answer what to do."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from msgspec.structs import replace
from pydantic import SecretStr

from ltzd.actions.site_plugin.members import SitePolicy
from ltzd.cli.checks import check
from ltzd.daemon.checks import sites
from ltzd.errors import HostSiteUnavailable
from ltzd.providers.host_sites import HostCredentials, HostSiteClient, guard_policy
from ltzd.providers.outbound.guarded_http import GuardPolicy
from ltzd.rules.brands.configuration import Brand, Site
from ltzd.rules.checks.findings import Finding, Level
from ltzd.store import database
from ltzd.store.brands import configurations
from tests.support.services.brand_api import never_answer
from tests.support.services.web_servers import served_at
from tests.support.surfaces.event_action import SEALER, a_brand

WORDPRESS = {"code": "rest_not_logged_in", "message": "You are not currently logged in."}


@dataclass
class Answers:
    """A site at every path; `status` None never answers."""

    base: str = ""
    status: int | None = 401
    body: object = None
    paths: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(str(request.rel_url))
        assert not {"Cookie", "X-WP-Nonce", "Authorization"} & set(request.headers)
        if self.status is None:
            return await never_answer(request)
        if isinstance(self.body, str):
            return web.Response(status=self.status, text=self.body, content_type="text/html")
        return web.json_response(self.body, status=self.status)


@pytest_asyncio.fixture
async def answers() -> AsyncIterator[Answers]:
    answers = Answers()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answers.answer)
    async with served_at(application) as answers.base:
        yield answers


async def findings_of(answers: Answers, *brands: Brand, seconds: float = 0.5) -> list[Finding]:
    client = HostSiteClient(replace(guard_policy(allow_loopback=True), timeout_seconds=seconds))
    try:
        return await sites.ask_all(client, list(brands), SitePolicy(answers.base + "/{host}"))
    finally:
        await client.close()


def a_shop(**site: object) -> Brand:
    return a_brand(site=Site.model_validate({"hosts": ["shop.example"], **site}))


async def test_a_site_that_refuses_a_stranger_as_wordpress_does_is_connected(
    answers: Answers,
) -> None:
    answers.body = WORDPRESS
    (finding,) = await findings_of(answers, a_shop(rest_prefix="api"), a_brand())
    assert finding.level is Level.OK
    assert answers.paths == ["/shop.example/api/wp/v2/users/me?context=edit"]
    assert f"{answers.base}{answers.paths[0]}" in finding.sentence


@pytest.mark.parametrize(
    ("status", "body", "advice"),
    [
        (401, "Log in!", "a firewall, a plugin or a log-in page"),
        (403, {"code": "forbidden"}, "a firewall, a plugin or a log-in page"),
        (401, {"code": 7}, "a firewall, a plugin or a log-in page"),
        (404, {"code": "rest_no_route"}, "set url and rest_prefix"),
        (404, "<html>", "its permalinks are plain"),
        (200, {"id": 1}, "exclude the REST API from it"),
        (200, "<html>", "exclude the REST API from it"),
        (500, "", "look at the site's log"),
        (302, "", "status 302: redirects are not followed"),
        (None, "", "no answer in time"),
    ],
)
async def test_any_other_answer_says_what_to_do(
    answers: Answers, status: int | None, body: object, advice: str
) -> None:
    answers.status, answers.body = status, body
    (finding,) = await findings_of(answers, a_shop())
    assert finding.level is Level.WARNING
    assert advice in finding.sentence
    assert f"{answers.base}/shop.example/wp-json/wp/v2/users/me" in finding.sentence


async def test_one_site_that_is_away_hides_no_other(answers: Answers) -> None:
    answers.body = WORDPRESS
    away = a_brand(
        site=Site.model_validate({"hosts": ["away.example"], "url": "https://away.example:1"})
    )
    first, second = await findings_of(answers, away, a_shop())
    assert (first.level, second.level) == (Level.WARNING, Level.OK)
    assert "https://away.example:1/wp-json/wp/v2/users/me" in first.sentence


async def test_a_server_of_a_hundred_sites_is_asked_for_all_of_them_but_not_at_once(
    answers: Answers,
) -> None:
    """Each address is asked once, also if two brands name it."""
    answers.body = WORDPRESS
    shops = [a_shop(rest_prefix=f"api{number}") for number in range(100)]
    findings = await findings_of(answers, *shops, shops[7], seconds=20)
    assert [finding.level for finding in findings] == [Level.OK] * 100
    assert len(set(answers.paths)) == len(answers.paths) == 100


async def test_the_command_asks_the_sites_of_the_brands_in_the_database(
    answers: Answers, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.status = 404
    connection = await database.connect(database_url, "test")
    async with connection.transaction():
        await configurations.apply(connection, a_shop(), SEALER)
    connection.terminate()

    async def no_findings(*_: object) -> SimpleNamespace:
        return SimpleNamespace(findings=())

    monkeypatch.setattr("ltzd.daemon.checks.installation.examine", no_findings)
    site = SimpleNamespace(base_url=answers.base + "/{host}", rest_prefix="wp-json")
    url = SecretStr(database_url)
    settings: Any = SimpleNamespace(database_url=url, site=site, staging=True)
    (finding,) = await check._findings(settings, also_running=False)
    assert "set url and rest_prefix" in finding.sentence


async def test_an_error_for_the_log_names_the_url_that_was_asked(answers: Answers) -> None:
    answers.status = 500
    client = HostSiteClient(GuardPolicy(allow_loopback=True))
    log_in = HostCredentials(authorization="Basic YWRhOmFiY2Q=")
    with pytest.raises(HostSiteUnavailable, match=r"/blog/api/wp/v2/users/me\?context=edit: "):
        await client.user_of(f"{answers.base}/blog", log_in, "api")
    await client.close()
