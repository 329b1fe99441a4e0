"""The identity provider's documented protocol, compared with both programs that speak it here.

Every request that the client sends and every answer that the sandbox gives must have a documented
shape. The shapes come from the vendor's documents, not from either program. They are exact: an
undocumented field fails, as does an undocumented endpoint, status or header.
"""

import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web
from msgspec import structs

from ltzd.actions.users.identity_provider import IdentityProvider, TokenVerifier
from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import AccountRefused, IdentityUnavailable, InvalidFields
from ltzd.providers.identity.client import IdentityClient, IdentityPolicy
from ltzd.providers.identity.tokens import IdentityTokens
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount
from ltzd.values import Address
from tests.support.services.identity import EMAIL, Provider, a_provider
from tests.support.services.web_servers import served_at

QUICK: dict[str, Any] = {"first_pause_seconds": 0.01, "rate_limit_pause_seconds": 0.01}

# --- shapes --------------------------------------------------------------------------------------

Shape = Any
"""A type, a value, a pattern, a list of one shape, `OneOf`, `Fields`, or a predicate."""


@dataclass(frozen=True)
class Fields:
    required: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict)


class OneOf(tuple[Shape, ...]):
    pass


def faults(shape: Shape, value: object, place: str = "") -> list[str]:
    """Returns the places where `value` does not have the shape."""
    match shape:
        case Fields():
            return _field_faults(shape, value, place)
        case OneOf():
            tried = [faults(each, value, place) for each in shape]
            return [] if [] in tried else min(tried, key=len)
        case [each]:
            if not isinstance(value, list):
                return [f"{place}: no list"]
            return [f for n, item in enumerate(value) for f in faults(each, item, f"{place}.{n}")]
        case re.Pattern():
            is_good = isinstance(value, str) and shape.fullmatch(value) is not None
        case type():
            is_good = type(value) is shape
        case _ if callable(shape):
            is_good = shape(value)
        case _:
            is_good = type(value) is type(shape) and value == shape
    return [] if is_good else [f"{place}: {value!r}"]


def _field_faults(shape: Fields, value: object, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place}: no object"]
    known = {**shape.required, **shape.optional}
    problems = [f"{place}.{name}: missing" for name in shape.required if name not in value]
    problems += [f"{place}.{name}: unknown" for name in value if name not in known]
    for name, each in known.items():
        if name in value:
            problems += faults(each, value[name], f"{place}.{name}")
    return problems


def text(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


# --- what the vendor documents -------------------------------------------------------------------

DID = text(r"did:privy:[a-z0-9]+")
ADDRESS = text(r"0x[0-9a-fA-F]{40}")
NAMES = {
    "discord": text(r"(?!discord|everyone|here)[0-9a-zA-Z_.]{2,32}(?:#(?:[0-9]{4}|0))?"),
    "twitter": text(r"[0-9a-zA-Z|_]{1,15}"),
    "github": text(r"(?=.{1,39}\Z)[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*"),
    "instagram": text(r"(?!instagram|everyone|here)[0-9a-zA-Z._]{2,32}"),
    "tiktok": text(r"(?!tiktok|everyone|here)[0-9a-zA-Z]{2,32}"),
}
ASCII = text(r"[\x20-\x7e]{1,256}")

# The fields by which an account is imported. We send none of the optional ones.
IMPORTED = {
    "email": {"type": "email", "address": str},
    "discord": {
        "type": "discord_oauth",
        "subject": text(r"[0-9]{17,20}"),
        "username": NAMES["discord"],
    },
    "twitter": {
        "type": "twitter_oauth",
        "subject": str,
        "name": text(r".{1,50}"),
        "username": NAMES["twitter"],
    },
    "github": {"type": "github_oauth", "subject": str, "username": NAMES["github"]},
    "google": {"type": "google_oauth", "subject": ASCII, "email": str, "name": str},
    "telegram": {"type": "telegram", "telegram_user_id": text(r".{1,255}")},
    "spotify": {"type": "spotify_oauth", "subject": str},
    "instagram": {"type": "instagram_oauth", "subject": str, "username": NAMES["instagram"]},
    "tiktok": {"type": "tiktok_oauth", "subject": str, "username": NAMES["tiktok"]},
}
VERIFIED = dict.fromkeys(("verified_at", "first_verified_at", "latest_verified_at"), int)
EMBEDDED = Fields(
    {
        "type": "wallet",
        "id": text(r"[a-z0-9]{1,64}"),
        "address": ADDRESS,
        "chain_type": "ethereum",
        "chain_id": text(r"eip155:[0-9]+"),
        "wallet_client": "privy",
        "wallet_client_type": "privy",
        "connector_type": "embedded",
        "recovery_method": str,
        "wallet_index": int,
        "imported": bool,
        "delegated": bool,
        **VERIFIED,
    }
)
USER = Fields(
    {
        "id": DID,
        "created_at": lambda at: type(at) is int and 10**9 < at < 10**10,
        "linked_accounts": [
            OneOf((EMBEDDED, *(Fields({**row, **VERIFIED}) for row in IMPORTED.values())))
        ],
        "mfa_methods": [str],
        "has_accepted_terms": bool,
        "is_guest": bool,
    },
    {"custom_metadata": dict},
)
ERROR = Fields({"error": str, "code": text(r"[a-z_]+")}, {"field": str})
CONFLICT = Fields(
    {"error": text(r"Input conflict caused by an existing user: did:privy:[a-z0-9]+")},
    {"cause": DID},
)
ORDERS = [Fields({"chain_type": "ethereum"}, {"additional_signers": [Fields({"signer_id": str})]})]
TYPE = [Fields({"name": str, "type": str})]
TYPED_DATA = Fields(
    {
        "types": lambda types: not any(map(partial(faults, TYPE), types.values())),
        "primary_type": str,
        "domain": dict,
        "message": dict,
    }
)
METHOD = "eth_signTypedData_v4"
COORDINATE = text(r"[A-Za-z0-9_-]{43}")
KEY = Fields(
    {
        "kty": "EC",
        "crv": "P-256",
        "alg": "ES256",
        "use": "sig",
        "x": COORDINATE,
        "y": COORDINATE,
        "kid": str,
    }
)
REFUSALS = {400: ERROR, 401: ERROR, 403: ERROR, 404: ERROR, 429: ERROR, 503: ERROR}
NOTHING = None


@dataclass(frozen=True)
class Endpoint:
    """`headers` are the vendor's own headers that are allowed besides the app's id."""

    method: str
    path: re.Pattern[str]
    body: Shape
    answer: Shape
    also: Mapping[int, Shape] = field(default_factory=dict)
    headers: frozenset[str] = frozenset()
    is_open: bool = False


def look_up(path: str, name: str) -> Endpoint:
    return Endpoint("POST", text(f"/v1/users/{path}"), Fields({name: str}), USER)


IDEMPOTENT = frozenset({"privy-idempotency-key"})
DOCUMENTED = {
    "create": Endpoint(
        "POST",
        text("/v1/users"),
        Fields({"linked_accounts": [OneOf(map(Fields, IMPORTED.values()))]}, {"wallets": ORDERS}),
        USER,
        {422: CONFLICT},
    ),
    "list": Endpoint(
        "GET",
        text(r"/v1/users\?limit=(?:[1-9][0-9]?|100)"),
        NOTHING,
        Fields({"data": [USER], "next_cursor": OneOf((str, type(None)))}),
    ),
    "read": Endpoint("GET", text(r"/v1/users/did:privy:[a-z0-9]+"), NOTHING, USER),
    "wallets": Endpoint(
        "POST",
        text(r"/v1/users/did:privy:[a-z0-9]+/wallets"),
        Fields({"wallets": ORDERS}),
        USER,
        headers=IDEMPOTENT,
    ),
    "email": look_up("email/address", "address"),
    "discord": look_up("discord/username", "username"),
    "github": look_up("github/username", "username"),
    "twitter": look_up("twitter/subject", "subject"),
    "telegram": look_up("telegram/telegram_user_id", "telegram_user_id"),
    "instagram": look_up("instagram/username", "username"),
    "spotify": look_up("spotify/subject", "subject"),
    "wallet": look_up("wallet/address", "address"),
    "rpc": Endpoint(
        "POST",
        text(r"/v1/wallets/[A-Za-z0-9_-]+/rpc"),
        Fields({"method": METHOD, "params": Fields({"typed_data": TYPED_DATA})}),
        Fields(
            {
                "method": METHOD,
                "data": Fields({"signature": text(r"0x[0-9a-f]{130}"), "encoding": "hex"}),
            }
        ),
        headers=IDEMPOTENT | {"privy-authorization-signature"},
    ),
    "keys": Endpoint(
        "GET",
        text(r"/v1/apps/[a-z0-9]+/jwks\.json"),
        NOTHING,
        Fields({"keys": [KEY]}),
        is_open=True,
    ),
}

# --- recording -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exchange:
    method: str
    path: str
    headers: Mapping[str, str]
    sent: bytes
    status: int
    answer_body: bytes
    answer_type: str


class RecordingProxy:
    """Stands between the client and the sandbox: forwards and records every exchange."""

    def __init__(self, session: aiohttp.ClientSession, behind: str) -> None:
        self._session = session
        self._behind = behind
        self.exchanges: list[Exchange] = []

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        sent = await request.read()
        url = self._behind + request.path_qs
        # Forwards the Host header as well: a request's signature covers the address.
        async with self._session.request(
            request.method, url, data=sent, headers=request.headers
        ) as answer:
            answer_body = await answer.read()
        self.exchanges.append(
            Exchange(
                request.method,
                request.path_qs.removeprefix("/identity"),
                {name.lower(): value for name, value in request.headers.items()},
                sent,
                answer.status,
                answer_body,
                answer.content_type,
            )
        )
        headers = {
            name: answer.headers[name] for name in ("Retry-After",) if name in answer.headers
        }
        return web.Response(
            body=answer_body,
            status=answer.status,
            content_type=answer.content_type,
            headers=headers,
        )

    @property
    def calls(self) -> set[tuple[str, int]]:
        """The endpoints and statuses that were recorded. Fails for an undocumented endpoint."""
        return {(named(exchange), exchange.status) for exchange in self.exchanges}


def named(exchange: Exchange) -> str:
    for name, endpoint in DOCUMENTED.items():
        if exchange.method == endpoint.method and endpoint.path.fullmatch(exchange.path):
            return name
    raise AssertionError(f"undocumented: {exchange.method} {exchange.path}")


def undocumented(exchange: Exchange, policy: IdentityPolicy) -> list[str]:
    name = named(exchange)
    endpoint = DOCUMENTED[name]
    problems = faults(
        endpoint.body, json.loads(exchange.sent) if exchange.sent else None, "request"
    )
    problems += _header_faults(exchange.headers, endpoint, policy)
    answers = {200: endpoint.answer, **REFUSALS, **endpoint.also}
    if exchange.status not in answers:
        problems.append(f"status {exchange.status}")
    elif exchange.answer_type != "application/json":
        problems.append(f"content type {exchange.answer_type}")
    else:
        problems += faults(answers[exchange.status], json.loads(exchange.answer_body), "answer")
    return [f"{name} {each}" for each in problems]


def _header_faults(
    headers: Mapping[str, str], endpoint: Endpoint, policy: IdentityPolicy
) -> list[str]:
    password = base64.b64encode(f"{policy.app_id}:{policy.app_secret}".encode()).decode()
    demanded = {
        "authorization": f"Basic {password}",
        "privy-app-id": policy.app_id,
        "content-type": "application/json",
    }
    problems = [
        f"header {name}: {headers.get(name)}"
        for name, value in demanded.items()
        if headers.get(name) != value and not endpoint.is_open
    ]
    own = {name for name in headers if name.startswith("privy-")} - {"privy-app-id"}
    return problems + [f"header {name}: unknown here" for name in own - endpoint.headers]


@dataclass(frozen=True)
class Conversation:
    provider: Provider
    proxy: RecordingProxy
    policy: IdentityPolicy

    def assert_documented(self) -> None:
        assert self.proxy.exchanges
        assert [f for each in self.proxy.exchanges for f in undocumented(each, self.policy)] == []


@pytest.fixture
async def conversation(tmp_path: Path) -> AsyncIterator[Conversation]:
    async with a_provider(tmp_path) as provider, recorded(provider) as conversation:
        yield conversation


@asynccontextmanager
async def recorded(provider: Provider) -> AsyncIterator[Conversation]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        proxy = RecordingProxy(session, provider.sandbox.url)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", proxy.pass_on)
        async with served_at(application) as base:
            policy = replace(provider.policy, base_url=f"{base}/identity", **QUICK)
            yield Conversation(provider, proxy, policy)


# --- the client and the sandbox ------------------------------------------------------------------

ACCOUNTS = {
    "discord": OAuthAccount("discord", "175928847299117063", "ann.b#0"),
    "twitter": OAuthAccount("twitter", "9", "ann_b", "Ann ☕"),
    "github": OAuthAccount("github", "583231", "ann-b"),
    "google": OAuthAccount("google", "107", "ann", "Ann", "ann@mail.example"),
    "telegram": OAuthAccount("telegram", "77", "ann77", "Ann", "ann@mail.example"),
    "spotify": OAuthAccount("spotify", "Ann31", "ann", "Ann", "ann@mail.example"),
    "instagram": OAuthAccount("instagram", "5", "ann.b_", "Ann", "ann@mail.example"),
    "tiktok": OAuthAccount("tiktok", "f9dce9a7-01bf", "annb", "Ann", "ann@mail.example"),
}
MAIL: dict[str, Any] = {
    "types": {"Mail": [{"name": "contents", "type": "string"}, {"name": "n", "type": "uint256"}]},
    "primaryType": "Mail",
    "domain": {"name": "A", "chainId": 31337},
    "message": {"contents": "café", "n": 2**255},
}
WITHOUT_LOOK_UP = {"google", "tiktok"}


def test_there_is_an_account_here_of_every_provider() -> None:
    assert tuple(ACCOUNTS) == PROVIDERS


async def test_an_address_is_looked_up_and_imported_as_documented(
    conversation: Conversation,
) -> None:
    async with IdentityClient(conversation.policy) as client:
        await client.wallet_of_email(EMAIL)
        await client.wallet_of_email(EMAIL)

    conversation.assert_documented()
    assert conversation.proxy.calls == {("email", 404), ("create", 200), ("email", 200)}


@pytest.mark.parametrize("name", ACCOUNTS)
async def test_an_account_is_looked_up_and_imported_with_the_fields_its_type_demands(
    conversation: Conversation, name: str
) -> None:
    async with IdentityClient(conversation.policy) as client:
        user = await client.wallet_of_account(ACCOUNTS[name])
        assert await client.wallet_of_account(ACCOUNTS[name]) == user
        assert [account.provider for account in await client.accounts_of(user.subject)] == [name]

    conversation.assert_documented()
    looked_up = set() if name in WITHOUT_LOOK_UP else {(name, 404), (name, 200)}
    assert conversation.proxy.calls == {("create", 200), ("read", 200), *looked_up}
    imports = [each for each in conversation.proxy.exchanges if named(each) == "create"]
    rows = [row for each in imports for row in json.loads(each.sent)["linked_accounts"]]
    assert [faults(Fields(IMPORTED[name]), row) for row in rows] == [[]] * len(imports)


async def test_a_wallet_is_added_and_signs_as_documented(conversation: Conversation) -> None:
    await conversation.provider.make({"type": "email", "address": EMAIL}, wallets=0)
    async with IdentityClient(conversation.policy) as client:
        user = await client.wallet_of_email(EMAIL)
        await client.sign_typed_data(user.wallet, MAIL)
        assert await client.ping()

    conversation.assert_documented()
    assert conversation.proxy.calls == {
        *(("email", 200), ("read", 200), ("wallets", 200)),
        *(("wallet", 200), ("rpc", 200), ("list", 200)),
    }


async def test_tokens_keys_are_asked_for_and_told_as_documented(
    conversation: Conversation,
) -> None:
    given = await conversation.provider.log_in()
    async with IdentityTokens(conversation.policy) as tokens:
        await tokens.user_of(given["identityToken"])

    conversation.assert_documented()
    assert conversation.proxy.calls == {("keys", 200)}


# --- refusals ------------------------------------------------------------------------------------


async def test_refusals_are_told_as_documented(conversation: Conversation) -> None:
    provider, policy = conversation.provider, replace(conversation.policy, max_attempts=1)
    google = ACCOUNTS["google"]
    async with IdentityClient(policy) as client:
        await client.wallet_of_email("ann@mail.example")
        with pytest.raises(AccountRefused):
            await client.wallet_of_account(google)
        with pytest.raises(InvalidFields):
            await client.wallet_of_email("no address")
        assert await client.wallets_of("did:privy:cnobody") == ()
        with pytest.raises(IdentityUnavailable):
            await client.sign_typed_data(Address(b"\x11" * 20), MAIL)
        provider.sandbox.faults.order("identity", Fault(times=1, status=503))
        with pytest.raises(IdentityUnavailable):
            await client.wallet_of_email("bob@shop.example")
        await provider.limit_users(1)
        await client.wallet_of_email("bob@shop.example")
        with pytest.raises(IdentityUnavailable):
            await client.wallet_of_email("cid@shop.example")

    conversation.assert_documented()
    assert conversation.proxy.calls >= {
        *(("create", 422), ("create", 400), ("read", 404), ("wallet", 404)),
        *(("email", 503), ("create", 429)),
    }


async def test_both_forms_of_a_conflict_are_told_as_documented(conversation: Conversation) -> None:
    email = {"type": "email", "address": "ann@mail.example"}
    google = {"type": "google_oauth", "subject": "107", "email": email["address"], "name": "Ann"}
    provider = conversation.provider
    await provider.make(email)

    _, split = await provider.ask("POST", "/v1/users", {"linked_accounts": [email, google]})
    _, claimed = await provider.ask("POST", "/v1/users", {"linked_accounts": [google]})

    assert faults(CONFLICT, split) == faults(CONFLICT, claimed) == []
    assert ("cause" in split, "cause" in claimed) == (True, False)


CHANGES: Mapping[str, Callable[[IdentityPolicy], IdentityPolicy]] = {
    "secret": lambda policy: replace(policy, app_secret="wrong"),
    "app": lambda policy: replace(policy, app_id="cwrong"),
    "signer": lambda policy: replace(policy, signer_key=None),
}


@pytest.mark.parametrize(
    ("change", "call"),
    [("secret", ("email", 401)), ("app", ("email", 403)), ("signer", ("rpc", 401))],
)
async def test_credentials_that_do_not_do_are_refused_as_documented(
    conversation: Conversation, change: str, call: tuple[str, int]
) -> None:
    policy = CHANGES[change](conversation.policy)
    async with IdentityClient(policy) as client:
        with suppress(IdentityUnavailable):
            await client.sign_typed_data((await client.wallet_of_email(EMAIL)).wallet, MAIL)

    spoken = [undocumented(exchange, policy) for exchange in conversation.proxy.exchanges]
    assert spoken == [[]] * len(spoken)
    assert call in conversation.proxy.calls


# --- tokens --------------------------------------------------------------------------------------

COMMON = {"iss": "privy.io", "aud": text(r"c[a-z0-9]+"), "sub": DID, "iat": int, "exp": int}
ACCESS_TOKEN = Fields({**COMMON, "sid": str})
IDENTITY_TOKEN = Fields(
    {**COMMON, "cr": text(r"[0-9]+"), "linked_accounts": str, "custom_metadata": str}
)
SHORT_ROWS = [
    OneOf(
        (
            Fields({"type": "email", "address": str, "lv": int}),
            *(
                Fields({"type": f"{kind}_oauth", "subject": str, "username": str, "lv": int})
                for kind in ("discord", "github", "instagram", "tiktok")
            ),
            Fields({"type": "google_oauth", "subject": str, "email": str, "name": str, "lv": int}),
            Fields(
                {"type": "twitter_oauth", "subject": str, "username": str, "name": str, "lv": int},
                {"pfp": str},
            ),
            Fields({"type": "spotify_oauth", "subject": str, "lv": int}),
            Fields({"type": "telegram", "telegram_user_id": str, "lv": int}, {"username": str}),
            Fields(
                {
                    "type": "wallet",
                    "address": ADDRESS,
                    "chain_type": "ethereum",
                    "wallet_client_type": "privy",
                    "id": str,
                    "lv": int,
                }
            ),
        )
    )
]


async def test_tokens_have_the_documented_header_claims_and_rows(
    conversation: Conversation,
) -> None:
    provider = conversation.provider
    rows: list[dict[str, object]] = [{"type": "email", "address": EMAIL}]
    async with IdentityClient(conversation.policy) as client:
        for account in ACCOUNTS.values():
            await client.wallet_of_account(
                structs.replace(account, user_id="9" + account.user_id[1:])
            )
    for exchange in conversation.proxy.exchanges:
        if named(exchange) == "create":
            row = json.loads(exchange.sent)["linked_accounts"][0]
            key = "telegram_user_id" if row["type"] == "telegram" else "subject"
            rows.append({**row, key: "8" + row[key][1:]})
    await provider.make(*rows)

    given = await provider.log_in()

    for name, shape in (("accessToken", ACCESS_TOKEN), ("identityToken", IDENTITY_TOKEN)):
        header = jwt.get_unverified_header(given[name])
        assert faults(Fields({"alg": "ES256", "typ": "JWT", "kid": str}), header) == []
        claims = jwt.decode(given[name], options={"verify_signature": False})
        assert faults(shape, claims) == []
    listed_rows = json.loads(claims["linked_accounts"])
    assert faults(SHORT_ROWS, listed_rows) == []
    assert len(listed_rows) == len(rows) + 1
    async with IdentityTokens(provider.policy) as tokens:
        user = await tokens.user_of(given["identityToken"])
    assert {account.provider for account in user.accounts} == set(PROVIDERS)
    assert user.wallets is not None
    assert len(user.wallets) == 1


# --- the parts that ltzd uses ---------------------------------------------------------------------


async def test_the_client_answers_all_that_is_asked_of_who_keeps_the_wallets(
    conversation: Conversation,
) -> None:
    async with (
        IdentityClient(conversation.policy) as client,
        IdentityTokens(conversation.policy) as keys,
    ):
        identities: IdentityProvider = client
        tokens: TokenVerifier = keys
        used_methods = [
            name
            for kind in (IdentityProvider, TokenVerifier)
            for name in vars(kind)
            if name[0] != "_"
        ]

        assert sorted(used_methods) == sorted(
            name for name in used_methods if hasattr(identities, name) or hasattr(tokens, name)
        )


@pytest.mark.parametrize(
    ("shape", "value", "place"),
    [
        (USER, [], ""),
        (Fields({"a": int}), {"a": True}, ".a"),
        (Fields({"a": int}), {"a": 1, "b": 2}, ".b"),
        (Fields({"a": int}), {}, ".a"),
        ([str], ["a", 1], ".1"),
        ([str], {}, ""),
        (OneOf((int, str)), 1.5, ""),
        ("privy", "Privy", ""),
        (text("[0-9]+"), "1\n", ""),
        (text("[0-9]+"), 1, ""),
        (None, {}, ""),
    ],
    ids=range(11),
)
def test_a_shape_that_is_not_kept_is_noticed(shape: Shape, value: object, place: str) -> None:
    assert [fault.partition(":")[0] for fault in faults(shape, value)] == [place]
