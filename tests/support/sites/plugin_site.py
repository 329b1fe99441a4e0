"""The WordPress plugin, run by PHP's own server with the functions of WordPress stubbed.

tests/wordpress/router.php has the stubs; options, users and mails are files.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.ports import free_port
from tests.support.tools import php_path
from tests.support.waiting import until

_ROOT = Path(__file__).parents[3]
PLUGIN = _ROOT / "integrations/wordpress/ltzd-loyalty/ltzd-loyalty.php"
ROUTER = _ROOT / "tests/wordpress/router.php"

# The method, status and code of a failure, by route, or by method and route.
FAILURES = {
    "checkin": ("POST", 400, "checkin_failed"),
    "redeem": ("POST", 400, "redeem_failed"),
    "claim-milestone": ("POST", 400, "claim_failed"),
    "link": ("POST", 400, "link_failed"),
    "DELETE link": ("DELETE", 400, "link_failed"),
    "leaderboard": ("GET", 500, "api_error"),
    "me": ("GET", 500, "api_error"),
    "perks": ("GET", 500, "api_error"),
}

Json = dict[str, Any]


@dataclass
class StubbedSite:
    """A client of the site's REST API and its settings page, and its files."""

    folder: Path
    port: int
    http: aiohttp.ClientSession

    def keep(self, **options: object) -> None:
        (self.folder / "options.json").write_text(json.dumps(options))

    def keep_users(self, users: Mapping[int, Json]) -> None:
        (self.folder / "users.json").write_text(json.dumps(users))

    def mails(self) -> list[tuple[str, str]]:
        """Returns the address and the text of each mail that was sent."""
        path = self.folder / "mails.json"
        return [(to, text) for to, text in json.loads(path.read_text())] if path.exists() else []

    def options(self) -> Json:
        options: Json = json.loads((self.folder / "options.json").read_text())
        return options

    def sent_with(self) -> Json:
        """Returns the arguments of the last request that the plugin sent."""
        arguments: Json = json.loads((self.folder / "last-request.json").read_text())
        return arguments

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ask(
        self, route: str, *, json: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Json, Mapping[str, str]]:
        method = FAILURES[route.partition("?")[0]][0]
        url = f"{self.url}/wp-json/loyalty/v1/{route.removeprefix('DELETE ')}"
        async with self.http.request(method, url, json=json, headers=headers) as reply:
            return reply.status, await reply.json(), reply.headers

    async def ask_raw(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()
        return answer

    async def users_me(self, change: Json | None = None) -> tuple[int, Json]:
        """Requests WordPress's own route; with a change it writes, as core does."""
        method = "GET" if change is None else "POST"
        url = f"{self.url}/wp-json/wp/v2/users/me?context=edit"
        async with self.http.request(method, url, json=change) as reply:
            return reply.status, await reply.json()

    async def confirm_email(self) -> tuple[int, Json]:
        url = f"{self.url}/wp-json/loyalty/v1/confirm-email"
        async with self.http.post(url, json={}) as reply:
            return reply.status, await reply.json()

    def mailed_link(self) -> str:
        """Returns the link in the newest mail, as a path of this site."""
        _, _, rest = self.mails()[-1][1].partition("https://site.example")
        return rest.split()[0]

    async def open(self, path: str) -> tuple[int, str]:
        async with self.http.get(f"{self.url}{path}", allow_redirects=False) as reply:
            return reply.status, await reply.text()

    async def page(self) -> str:
        async with self.http.get(f"{self.url}/wp-admin/options-general.php") as reply:
            assert reply.status == 200, await reply.text()
            return await reply.text()

    async def save(self, settings: object) -> tuple[Json, Json]:
        """Saves the settings page; returns the stored settings and the errors."""
        async with self.http.post(f"{self.url}/wp-admin/options.php", json=settings) as reply:
            result = json.loads(await reply.text())
            return result["kept"], result["errors"]


@asynccontextmanager
async def a_stubbed_site(folder: Path) -> AsyncIterator[StubbedSite]:
    php = str(php_path())
    (folder / "options.json").write_text("{}")
    (folder / "users.json").write_text("{}")
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "LTZD_TEST_FOLDER": str(folder),
        "LTZD_TEST_PLUGIN": str(PLUGIN),
    }
    with (folder / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(php, "-n", "-d", "display_errors=1", "-S", f"127.0.0.1:{port}", str(ROUTER)),
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
        )
    cookies = aiohttp.DummyCookieJar()
    # Like a browser, sends no content type without a body.
    async with aiohttp.ClientSession(
        cookie_jar=cookies, skip_auto_headers=["Content-Type"]
    ) as http:
        site = StubbedSite(folder, port, http)

        async def is_up() -> bool:
            assert process.returncode is None, (folder / "output").read_text()
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return True
            return False

        await until(is_up)
        yield site
    process.send_signal(signal.SIGTERM)
    await process.wait()
