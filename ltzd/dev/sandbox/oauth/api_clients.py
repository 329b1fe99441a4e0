"""The look-ups at Spotify by id, and at Instagram and TikTok by username, all with tokens."""

import re
from collections.abc import Mapping

import aiohttp
from aiohttp import web

from ltzd.dev.sandbox.oauth.account_store import AccountStore, ProviderAccount
from ltzd.dev.sandbox.oauth.credentials import (
    CLIENT_ID,
    INSTAGRAM_USER,
    TOKEN_SECONDS,
    AccountCredentials,
    ClientTokenStore,
)
from ltzd.dev.sandbox.oauth.errors import PREFIX
from ltzd.dev.sandbox.requests import BadInputError, json_object, json_reply

SPOTIFY = f"{PREFIX}/spotify/v1"
SPOTIFY_TOKEN = f"{PREFIX}/spotify/api/token"
INSTAGRAM = f"{PREFIX}/instagram/v23.0"
TIKTOK = f"{PREFIX}/tiktok/v2"

_GRANT = "client_credentials"
_DISCOVERY = re.compile(r"business_discovery\.username\(([A-Za-z0-9._]{1,30})\)\{([a-z_,]+)\}")
_TRACE = "AsandboxTrace"


class ClientsApi:
    def __init__(self, store: AccountStore, credentials: AccountCredentials) -> None:
        self._store = store
        self._credentials = credentials
        self.spotify_tokens = ClientTokenStore()
        self.tiktok_tokens = ClientTokenStore()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(SPOTIFY_TOKEN, self._spotify_token),
            web.get(SPOTIFY + "/users/{id}", self._spotify),
            web.get(INSTAGRAM + "/{id}", self._instagram),
            web.post(TIKTOK + "/oauth/token/", self._tiktok_token),
            web.post(TIKTOK + "/research/user/info/", self._tiktok),
        ]

    async def _spotify_token(self, request: web.Request) -> web.Response:
        expected = aiohttp.encode_basic_auth(CLIENT_ID, self._credentials.of["spotify"])
        if request.headers.get("Authorization") != expected:
            return _oauth_error("invalid_client", "Invalid client")
        if (await request.post()).get("grant_type") != _GRANT:
            return _oauth_error("unsupported_grant_type", f"grant_type must be {_GRANT}")
        return _token_reply(self.spotify_tokens.new(), "Bearer")

    async def _spotify(self, request: web.Request) -> web.Response:
        given = request.headers.get("Authorization")
        if given is None:
            return _spotify_error(401, "No token provided")
        if not self.spotify_tokens.is_valid(given):
            return _spotify_error(401, "The access token expired")
        account = self._store.find("spotify", request.match_info["id"])
        return _spotify_error(404, "User not found") if account is None else _spotify_user(account)

    async def _instagram(self, request: web.Request) -> web.Response:
        if not self._credentials.matches("instagram", request.query.get("access_token")):
            text = "Invalid OAuth access token - Cannot parse access token"
            return _graph_error(400, 190, text)
        if request.match_info["id"] != INSTAGRAM_USER:
            return _graph_error(400, 100, "Unsupported get request.", error_subcode=33)
        discovery = _DISCOVERY.fullmatch(request.query.get("fields", ""))
        if discovery is None:
            return _graph_error(400, 100, "(#100) The fields cannot be read")
        account = self._store.find_by_username("instagram", discovery[1])
        if account is None:
            return _not_professional(discovery[1])
        fields = {
            "id": f"17841{account.number:012}",
            "ig_id": account.id,
            "username": account.username,
        }
        chosen = {name: fields[name] for name in discovery[2].split(",") if name in fields}
        result = {"id": fields["id"]} | chosen
        return json_reply({"business_discovery": result, "id": INSTAGRAM_USER})

    async def _tiktok_token(self, request: web.Request) -> web.Response:
        """Refuse a wrong client secret with status 200, as TikTok does."""
        form = await request.post()
        key, secret = form.get("client_key"), form.get("client_secret")
        if key != CLIENT_ID or not self._credentials.matches("tiktok", str(secret)):
            text = "Client key or secret is incorrect."
            error = {"error": "invalid_client", "error_description": text, "log_id": _TRACE}
            return json_reply(error)
        if form.get("grant_type") != _GRANT:
            text = f"grant_type must be {_GRANT}"
            return json_reply({"error": "invalid_request", "error_description": text})
        return _token_reply(self.tiktok_tokens.new(), "Bearer")

    async def _tiktok(self, request: web.Request) -> web.Response:
        if not self.tiktok_tokens.is_valid(request.headers.get("Authorization")):
            text = "The access token is invalid or not found in the request."
            return _tiktok_reply({}, "access_token_invalid", text, 401)
        try:
            username = (await json_object(request)).get("username")
        except BadInputError:
            username = None
        account = (
            self._store.find_by_username("tiktok", username) if isinstance(username, str) else None
        )
        if account is None or "fields" not in request.query:
            text = "Invalid or missing parameters: the user cannot be found"
            return _tiktok_reply({}, "invalid_params", text, 400)
        return _tiktok_reply({"display_name": account.username}, "ok", "", 200)


def _token_reply(token: str, kind: str) -> web.Response:
    body = {"access_token": token, "token_type": kind, "expires_in": TOKEN_SECONDS}
    return json_reply(body)


def _oauth_error(code: str, description: str) -> web.Response:
    return json_reply({"error": code, "error_description": description}, 400)


def _spotify_error(status: int, message: str) -> web.Response:
    return json_reply({"error": {"status": status, "message": message}}, status)


def _spotify_user(account: ProviderAccount) -> web.Response:
    return json_reply(
        {
            "display_name": account.username,
            "external_urls": {"spotify": f"https://open.spotify.com/user/{account.id}"},
            "followers": {"href": None, "total": 0},
            "href": f"https://api.spotify.com/v1/users/{account.id}",
            "id": account.id,
            "images": [],
            "type": "user",
            "uri": f"spotify:user:{account.id}",
        }
    )


def _graph_error(status: int, code: int, message: str, **more: object) -> web.Response:
    error: Mapping[str, object] = {
        "message": message,
        "type": "OAuthException",
        "code": code,
        **more,
        "fbtrace_id": _TRACE,
    }
    return json_reply({"error": error}, status)


def _not_professional(username: str) -> web.Response:
    """The error for a personal account, which is also the error for an unknown one."""
    return _graph_error(
        400,
        110,
        "Invalid user id",
        error_subcode=2207013,
        is_transient=False,
        error_user_title="Cannot find User",
        error_user_msg=f"The user with username: {username} cannot be found.",
    )


def _tiktok_reply(data: object, code: str, message: str, status: int) -> web.Response:
    error = {"code": code, "message": message, "log_id": _TRACE}
    return json_reply({"data": data, "error": error}, status)
