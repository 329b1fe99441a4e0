"""The look-ups of an account by id at GitHub, Twitter, Telegram and Google."""

from aiohttp import web

from ltzd.dev.sandbox.oauth.account_store import AccountStore, ProviderAccount
from ltzd.dev.sandbox.oauth.credentials import AccountCredentials
from ltzd.dev.sandbox.oauth.errors import PREFIX
from ltzd.dev.sandbox.requests import json_reply
from ltzd.rules.oauth.accounts import OAuthProvider
from ltzd.rules.oauth.ids import OAuthIdInvalid, check_id

GITHUB = f"{PREFIX}/github"
TWITTER = f"{PREFIX}/twitter/2"
TELEGRAM = f"{PREFIX}/telegram"
GOOGLE = f"{PREFIX}/google/v1"

_GITHUB_DOCS = "https://docs.github.com/rest"
_TWITTER_PROBLEMS = "https://api.twitter.com/2/problems"


class ByIdApi:
    def __init__(self, store: AccountStore, credentials: AccountCredentials) -> None:
        self._store = store
        self._credentials = credentials

    def routes(self) -> list[web.RouteDef]:
        chat = TELEGRAM + "/bot{token}/getChat"
        return [
            web.get(GITHUB + "/user/{id}", self._github),
            web.get(TWITTER + "/users/{id}", self._twitter),
            web.get(chat, self._telegram),
            web.post(chat, self._telegram),
            web.get(GOOGLE + "/people/{id}", self._google),
        ]

    async def _github(self, request: web.Request) -> web.Response:
        """Answers unauthenticated requests too, as GitHub does."""
        if "User-Agent" not in request.headers:
            return web.Response(status=403, text="Request forbidden by administrative rules.")
        if "Authorization" in request.headers and not self._has_bearer(request, "github"):
            return _github_error(401, "Bad credentials")
        account = self._store.find("github", request.match_info["id"])
        return _github_error(404, "Not Found") if account is None else _github_user(account)

    async def _twitter(self, request: web.Request) -> web.Response:
        account_id = request.match_info["id"]
        if not self._has_bearer(request, "twitter"):
            title = "Unauthorized"
            body = {"title": title, "type": "about:blank", "status": 401, "detail": title}
            return json_reply(body, 401)
        if not _is_id("twitter", account_id):
            return _twitter_invalid(account_id)
        account = self._store.find("twitter", account_id)
        if account is None:
            return _twitter_unknown(account_id)
        user = {"id": account.id, "name": account.username, "username": account.username}
        return json_reply({"data": user})

    async def _telegram(self, request: web.Request) -> web.Response:
        if not self._credentials.matches("telegram", request.match_info["token"]):
            return _telegram_error(401, "Unauthorized")
        parameters = request.query if request.method == "GET" else await request.post()
        chat_id = str(parameters.get("chat_id", ""))
        if not chat_id:
            return _telegram_error(400, "Bad Request: chat_id is empty")
        account = self._store.find("telegram", chat_id)
        if account is None:
            return _telegram_error(400, "Bad Request: chat not found")
        chat = {
            "id": int(account.id),
            "first_name": account.username,
            "username": account.username,
            "type": "private",
            "active_usernames": [account.username],
            "accent_color_id": 1,
            "max_reaction_count": 11,
        }
        return json_reply({"ok": True, "result": chat})

    async def _google(self, request: web.Request) -> web.Response:
        key = request.query.get("key")
        if key is None:
            text = (
                "Method doesn't allow unregistered callers (callers without established identity)."
            )
            return _google_error(403, text, "PERMISSION_DENIED")
        if not self._credentials.matches("google", key):
            text = "API key not valid. Please pass a valid API key."
            return _google_error(400, text, "INVALID_ARGUMENT")
        if not request.query.get("personFields"):
            text = "personFields mask is required. Please specify one or more valid paths."
            return _google_error(400, text, "INVALID_ARGUMENT")
        account = self._store.find("google", request.match_info["id"])
        if account is None:
            return _google_error(404, "Requested entity was not found.", "NOT_FOUND")
        etag = f"%EgUBAi43PRoEAQIFByIM{account.number:x}"
        return json_reply({"resourceName": f"people/{account.id}", "etag": etag})

    def _has_bearer(self, request: web.Request, name: str) -> bool:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        return kind == "Bearer" and self._credentials.matches(name, token)


def _is_id(provider: OAuthProvider, text: str) -> bool:
    try:
        check_id(provider, text)
    except OAuthIdInvalid:
        return False
    return True


def _github_user(account: ProviderAccount) -> web.Response:
    return json_reply(
        {
            "login": account.username,
            "id": int(account.id),
            "node_id": f"U_kgDO{account.number:x}",
            "avatar_url": f"https://avatars.githubusercontent.com/u/{account.id}?v=4",
            "html_url": f"https://github.com/{account.username}",
            "type": "User",
            "user_view_type": "public",
            "site_admin": False,
            "name": None,
            "company": None,
            "email": None,
            "bio": None,
        }
    )


def _github_error(status: int, message: str) -> web.Response:
    body = {"message": message, "documentation_url": _GITHUB_DOCS, "status": str(status)}
    return json_reply(body, status)


def _twitter_unknown(account_id: str) -> web.Response:
    error = {
        "value": account_id,
        "detail": f"Could not find user with id: [{account_id}].",
        "title": "Not Found Error",
        "resource_type": "user",
        "parameter": "id",
        "resource_id": account_id,
        "type": f"{_TWITTER_PROBLEMS}/resource-not-found",
    }
    return json_reply({"errors": [error]})


def _twitter_invalid(account_id: str) -> web.Response:
    message = f"The `id` query parameter value [{account_id}] is not valid"
    body = {
        "errors": [{"parameters": {"id": [account_id]}, "message": message}],
        "title": "Invalid Request",
        "detail": "One or more parameters to your request was invalid.",
        "type": f"{_TWITTER_PROBLEMS}/invalid-request",
    }
    return json_reply(body, 400)


def _telegram_error(status: int, description: str) -> web.Response:
    return json_reply({"ok": False, "error_code": status, "description": description}, status)


def _google_error(code: int, message: str, status: str) -> web.Response:
    return json_reply({"error": {"code": code, "message": message, "status": status}}, code)
