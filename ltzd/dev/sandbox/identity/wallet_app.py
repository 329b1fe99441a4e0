"""A page that plays a user's wallet app, where the user gets codes that link the wallet to a site.

Each request logs the owner of an e-mail address in, as the identity control endpoint does, and
calls ltzd's `/site-links` with the owner's access token. The page keeps no session: each form
carries the address.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web

from ltzd.dev.sandbox import pages
from ltzd.dev.sandbox.pages import Html
from ltzd.dev.sandbox.requests import BadInputError, email_in, json_reply
from ltzd.dev.sandbox.site.demo_pages import WALLET_APP, is_own_form
from ltzd.dev.sandbox.site.users import HOST

_CODE = f"{WALLET_APP}code"
_END = f"{WALLET_APP}end"
_TITLE = "Your wallet app"
_DAILY_ALLOWANCE = "500"
_TIMEOUT = aiohttp.ClientTimeout(total=20, sock_connect=5)
_UNAVAILABLE = "ltzd does not answer; it may be starting."

LogIn = Callable[[str], Awaitable[tuple[str, str]]]
"""Returns an access token and the wallet of an e-mail address's owner."""


class WalletApp:
    def __init__(self, log_in: LogIn) -> None:
        self._log_in = log_in
        self._ltzd_url: str | None = None

    def set_ltzd_url(self, ltzd_url: str) -> None:
        self._ltzd_url = ltzd_url.rstrip("/")

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(WALLET_APP, self._welcome),
            web.post(WALLET_APP, self._open),
            web.post(_CODE, self._code),
            web.post(_END, self._end),
            *(web.get(path, _redirect_home) for path in (WALLET_APP.rstrip("/"), _CODE, _END)),
        ]

    async def _welcome(self, request: web.Request) -> web.Response:
        return _log_in_page(request.query.get("email", ""))

    async def _open(self, request: web.Request) -> web.Response:
        return await self._for_owner(request, _no_action)

    async def _code(self, request: web.Request) -> web.Response:
        async def action(owner: "_Owner", given: Mapping[str, str]) -> Html:
            link: dict[str, object] = {"host": given["host"].strip()}
            amount = given["dailyAllowance"].strip()
            link["dailyAllowance"] = int(amount) if amount.isdecimal() else amount
            status, body = await owner.ask("POST", "", link)
            return _code_shown(body) if status == 201 else _refused(body)

        return await self._for_owner(request, action, "host", "dailyAllowance")

    async def _end(self, request: web.Request) -> web.Response:
        async def action(owner: "_Owner", given: Mapping[str, str]) -> Html:
            status, body = await owner.ask("DELETE", f"/{quote(given['host'], safe='')}")
            if status == 204:
                return pages.note(f"The link to {given['host']} is ended.")
            return _refused(body)

        return await self._for_owner(request, action, "host")

    async def _for_owner(
        self, request: web.Request, action: "_OwnerAction", *names: str
    ) -> web.Response:
        if not is_own_form(request):
            return json_reply({"error": "Origin: must be the page's own"}, 403)
        form = {key: text for key, text in (await request.post()).items() if isinstance(text, str)}
        try:
            email = email_in(form, "email")
        except BadInputError as error:
            return _log_in_page(form.get("email", ""), str(error))
        token, wallet = await self._log_in(email)
        given = {name: form.get(name, "") for name in names}
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as http:
            owner = _Owner(http, f"{self._ltzd_url}/site-links", token)
            try:
                outcome = await action(owner, given)
                _, body = await owner.ask("GET", "")
            except (aiohttp.ClientError, TimeoutError, ValueError):
                return _page(pages.alert(_UNAVAILABLE), status=503)
        return _wallet_page(email, wallet, outcome, body)


class _Owner:
    """A client of ltzd's `/site-links` with the owner's access token."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str) -> None:
        self._http = http
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    async def ask(
        self, method: str, path: str, body: object = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Return status and body. Raises ClientError, TimeoutError or ValueError."""
        url = self._url + path
        async with self._http.request(method, url, json=body, headers=self._headers) as answer:
            content = {} if answer.status == 204 else await answer.json()
            if not isinstance(content, dict):
                raise ValueError("the answer is not a JSON object")
            return answer.status, content


_OwnerAction = Callable[[_Owner, Mapping[str, str]], Awaitable[Html]]


async def _no_action(_owner: _Owner, _given: Mapping[str, str]) -> Html:
    return Html("")


async def _redirect_home(_request: web.Request) -> web.Response:
    return web.Response(status=303, headers={"Location": WALLET_APP, "Cache-Control": "no-store"})


def _page(*parts: Html, status: int = 200) -> web.Response:
    return pages.page(_TITLE, *parts, status=status, form_action="'self'")


def _log_in_page(email: str, fault: str = "") -> web.Response:
    return _page(
        pages.note(
            "In production this is an app of its own, where a user logs in at the identity"
            " provider. In this sandbox any address is enough."
        ),
        *([pages.alert(fault)] if fault else []),
        pages.form(
            WALLET_APP,
            "Open the wallet",
            pages.field("email", "E-mail address", email, type="email", autocomplete="email"),
        ),
        status=400 if fault else 200,
    )


def _wallet_page(email: str, wallet: str, outcome: Html, body: Mapping[str, Any]) -> web.Response:
    return _page(
        pages.facts([("Owner", pages.text(email)), ("Wallet", pages.text(wallet))]),
        outcome,
        pages.heading("Link a site"),
        pages.note("The site may then spend from this wallet, up to the daily limit."),
        pages.form(
            _CODE,
            "Get a code",
            pages.hidden("email", email),
            pages.field("host", "Site", HOST, autocapitalize="none", spellcheck="false"),
            pages.field("dailyAllowance", "LTZ a day", _DAILY_ALLOWANCE, inputmode="numeric"),
        ),
        pages.heading("Linked sites"),
        _links_shown(email, body),
    )


def _links_shown(email: str, body: Mapping[str, Any]) -> Html:
    links = body.get("links")
    if not isinstance(links, list):
        return _refused(body)
    if not links:
        return pages.note("No site is linked to this wallet.")
    rows = [
        [
            pages.text(link["host"]),
            pages.text(f"{link['dailyAllowance']} LTZ"),
            pages.text(link["expiresAt"]),
            pages.form(
                _END,
                f"End the link to {link['host']}",
                pages.hidden("email", email),
                pages.hidden("host", str(link["host"])),
                style="plain",
            ),
        ]
        for link in links
    ]
    return pages.table(("Site", "A day", "Until", "End"), rows)


def _code_shown(body: Mapping[str, Any]) -> Html:
    text = f"Type this code at {body['host']} before {body['expiresAt']}. It works once."
    return Html(pages.note(text) + pages.code(str(body["code"])))


def _refused(body: Mapping[str, Any]) -> Html:
    return pages.alert(str(body.get("error", "ltzd gave no reason.")))
