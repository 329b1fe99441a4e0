"""The OAuth providers' documented requests about an account, and the documented answers.

Client and sandbox are both compared with these shapes, so neither can drift without a failing test.
The shapes come from the providers' documents and change only with those.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ltzd.providers.oauth.policy import (
    AccountLookupPolicy,
    DiscordAccess,
    GithubAccess,
    GoogleAccess,
    InstagramAccess,
    SpotifyAccess,
    TelegramAccess,
    TiktokAccess,
    TwitterAccess,
)
from ltzd.rules.oauth.accounts import OAuthAccount, OAuthProvider

Json = Any
CannedAnswer = tuple[int, Json]
"""Status and body."""

TELEGRAM_TOKEN = "4839574812:AAFD39kkdpWt3ywyRZergyOLMaJhac60qcK"
OUR_INSTAGRAM = "17841405822304914"


@dataclass(frozen=True, slots=True)
class Shape:
    """`path` is under the provider's base URL; `existing`'s `free` fields differ by account."""

    account: OAuthAccount
    path: str
    headers: Mapping[str, str]
    existing: CannedAnswer
    unknown: CannedAnswer
    method: str = "GET"
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json = None
    free: tuple[str, ...] = ()


def _account(provider: OAuthProvider, id_: str, username: str | None = None) -> OAuthAccount:
    return OAuthAccount(provider, id_, username)


SHAPES: Mapping[OAuthProvider, Shape] = {
    "discord": Shape(
        _account("discord", "308994132968210433", "ann.b"),
        "/users/308994132968210433",
        {"Authorization": "Bot discord-token", "User-Agent": "DiscordBot ("},
        (
            200,
            {
                "id": "308994132968210433",
                "username": "ann.b",
                "discriminator": "0",
                "global_name": "Ann",
                "avatar": None,
            },
        ),
        (404, {"message": "Unknown User", "code": 10013}),
        free=("global_name",),
    ),
    "github": Shape(
        _account("github", "583231", "octocat"),
        "/user/583231",
        {
            "Authorization": "Bearer github-token",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "ltzd/",
        },
        (
            200,
            {
                "login": "octocat",
                "id": 583231,
                "node_id": "MDQ6VXNlcjU4MzIzMQ==",
                "type": "User",
                "name": None,
                "email": None,
            },
        ),
        (
            404,
            {
                "message": "Not Found",
                "documentation_url": "https://docs.github.com/rest",
                "status": "404",
            },
        ),
        free=("node_id",),
    ),
    "twitter": Shape(
        _account("twitter", "2244994945", "XDevelopers"),
        "/users/2244994945",
        {"Authorization": "Bearer twitter-token"},
        (200, {"data": {"id": "2244994945", "name": "Developers", "username": "XDevelopers"}}),
        (
            200,
            {
                "errors": [
                    {
                        "value": "2244994945",
                        "detail": "Could not find user with id: [2244994945].",
                        "title": "Not Found Error",
                        "resource_type": "user",
                        "parameter": "id",
                        "resource_id": "2244994945",
                        "type": "https://api.twitter.com/2/problems/resource-not-found",
                    }
                ]
            },
        ),
        free=("name",),
    ),
    "telegram": Shape(
        _account("telegram", "5394817206", "ann_bee"),
        f"/bot{TELEGRAM_TOKEN}/getChat",
        {},
        (
            200,
            {
                "ok": True,
                "result": {
                    "id": 5394817206,
                    "type": "private",
                    "first_name": "Ann",
                    "username": "ann_bee",
                },
            },
        ),
        (400, {"ok": False, "error_code": 400, "description": "Bad Request: chat not found"}),
        query={"chat_id": "5394817206"},
        free=("first_name",),
    ),
    "google": Shape(
        _account("google", "108204268033311374519"),
        "/people/108204268033311374519",
        {},
        (200, {"resourceName": "people/108204268033311374519", "etag": "%EgUBAi43PQ=="}),
        (
            404,
            {
                "error": {
                    "code": 404,
                    "message": "Requested entity was not found.",
                    "status": "NOT_FOUND",
                }
            },
        ),
        query={"personFields": "names", "key": "google-key"},
        free=("etag",),
    ),
    "spotify": Shape(
        _account("spotify", "wizzler"),
        "/users/wizzler",
        {"Authorization": "Bearer a-client-token"},
        (
            200,
            {
                "id": "wizzler",
                "display_name": "Ann",
                "type": "user",
                "uri": "spotify:user:wizzler",
            },
        ),
        (404, {"error": {"status": 404, "message": "User not found"}}),
        free=("display_name", "message"),
    ),
    "instagram": Shape(
        _account("instagram", "17841405793187218", "ann.b"),
        f"/{OUR_INSTAGRAM}",
        {},
        (
            200,
            {
                "business_discovery": {
                    "id": "17841401441775531",
                    "username": "ann.b",
                    "ig_id": "17841405793187218",
                },
                "id": OUR_INSTAGRAM,
            },
        ),
        (
            400,
            {"error": {"message": "Invalid user id", "code": 110, "error_subcode": 2207013}},
        ),
        query={
            "fields": "business_discovery.username(ann.b){id,username,ig_id}",
            "access_token": "instagram-token",
        },
        free=("id", "ig_id"),
    ),
    "tiktok": Shape(
        _account("tiktok", "723f24d7-e717-40f8-a2b6-cb8464cd23b4", "ann.b"),
        "/research/user/info/",
        {"Authorization": "Bearer a-client-token", "Content-Type": "application/json"},
        (
            200,
            {
                "data": {"display_name": "Ann"},
                "error": {"code": "ok", "message": "", "log_id": "202211"},
            },
        ),
        (
            400,
            {"error": {"code": "invalid_params", "message": "no such user", "log_id": "202211"}},
        ),
        method="POST",
        query={"fields": "display_name"},
        body={"username": "ann.b"},
        free=("display_name", "log_id", "message"),
    ),
}

TOKEN = {"access_token": "a-client-token", "token_type": "Bearer", "expires_in": 3600}


def policy_at(base: str, **changes: Any) -> AccountLookupPolicy:
    """All eight providers at one server, each under its own name."""
    policy: dict[str, Any] = {
        "discord": DiscordAccess("discord-token", f"{base}/discord"),
        "twitter": TwitterAccess("twitter-token", f"{base}/twitter"),
        "github": GithubAccess("github-token", f"{base}/github"),
        "google": GoogleAccess("google-key", f"{base}/google"),
        "telegram": TelegramAccess(TELEGRAM_TOKEN, f"{base}/telegram"),
        "spotify": SpotifyAccess("me", "secret", True, f"{base}/spotify", f"{base}/token/spotify"),
        "instagram": InstagramAccess(OUR_INSTAGRAM, "instagram-token", f"{base}/instagram"),
        "tiktok": TiktokAccess("me", "secret", f"{base}/tiktok"),
        "first_pause_seconds": 0.01,
        "rate_limit_pause_seconds": 0.02,
    }
    return AccountLookupPolicy(**policy | changes)


def difference(
    actual: Json, documented: Json, free: tuple[str, ...], place: str = ""
) -> str | None:
    """Returns the first place where a body lacks a documented value, or None.

    Of a `free` field only the type is compared.
    """
    if isinstance(documented, Mapping):
        if not isinstance(actual, Mapping):
            return f"{place}: {actual!r} is no object"
        for name, value in documented.items():
            where = f"{place}.{name}"
            if name not in actual:
                return f"{where} is missing"
            if name in free and isinstance(value, str):
                if not isinstance(actual[name], str | None):
                    return f"{where}: {actual[name]!r} is no text"
                continue
            fault = difference(actual[name], value, free, where)
            if fault is not None:
                return fault
        return None
    if isinstance(documented, list):
        if not isinstance(actual, list) or len(actual) != len(documented):
            return f"{place}: {actual!r} is not such a list"
        pairs = enumerate(zip(actual, documented, strict=True))
        faults = (
            difference(item, expected, free, f"{place}[{at}]") for at, (item, expected) in pairs
        )
        return next((fault for fault in faults if fault is not None), None)
    same = type(actual) is type(documented) and actual == documented
    return None if same else f"{place}: {actual!r} is not {documented!r}"
