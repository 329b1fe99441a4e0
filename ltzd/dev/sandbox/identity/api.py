"""The identity provider's server API and key set, in the vendor's wire format.

An import that names accounts of an existing user is answered as the vendor was observed to answer.
If all accounts belong to that user, and the user is not being created at this moment, the answer is
the user. Otherwise it is a conflict that names the user, in `cause` and text or in the text alone.
"""

import base64
import hmac
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from ltzd.dev.sandbox.identity.accounts import LOOKUPS, Account, identity_key, parse_account
from ltzd.dev.sandbox.identity.credentials import AppCredentials, TokenSigningKeys
from ltzd.dev.sandbox.identity.limits import CONTROL_PATH as LIMIT_PATH
from ltzd.dev.sandbox.identity.limits import UserLimit
from ltzd.dev.sandbox.identity.users import (
    AccountsConflictError,
    EmbeddedWallet,
    SandboxUser,
    UserStore,
    WalletRequest,
)
from ltzd.dev.sandbox.identity.wallet_rpc import WalletRpc
from ltzd.dev.sandbox.requests import BadInputError, Body, json_object, json_reply, list_in, text_in

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PREFIX = "/identity"

_MAX_PER_PAGE = 100
_MAX_ACCOUNTS = 20
_MAX_WALLETS = 10


class IdentityApi:
    def __init__(self, users: UserStore, app: AppCredentials, keys: TokenSigningKeys) -> None:
        self._users = users
        self._app = app
        self._keys = keys
        self._rpc = WalletRpc(users, app)
        self._limit = UserLimit()
        pair = f"{app.app_id}:{app.app_secret}".encode()
        self._authorization = b"Basic " + base64.b64encode(pair)

    def routes(self) -> list[web.RouteDef]:
        users = f"{PREFIX}/v1/users"
        user = users + "/{subject:did:privy:[a-z0-9]+}"
        return [
            web.get(f"{PREFIX}/v1/apps/{{app_id}}/jwks.json", self._jwks),
            web.post(users, self._authenticated(self._create)),
            web.get(users, self._authenticated(self._list)),
            web.get(user, self._authenticated(self._read)),
            web.post(user + "/wallets", self._authenticated(self._add_wallets)),
            web.post(
                f"{PREFIX}/v1/wallets/{{wallet_id}}/rpc", self._authenticated(self._rpc.answer)
            ),
            web.post(LIMIT_PATH, self._limit.handle_control),
            *(
                web.post(f"{users}/{name}", self._authenticated(self._lookup(name)))
                for name in LOOKUPS
            ),
        ]

    def _authenticated(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            return self._refusal(request) or await handler(request)

        return guarded

    def _refusal(self, request: web.Request) -> web.Response | None:
        if request.headers.get("privy-app-id") != self._app.app_id:
            return _error(403, "Missing or invalid Privy app ID", "missing_or_invalid_privy_app_id")
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not given:
            return _error(401, "Missing auth token", "missing_or_invalid_token")
        if not hmac.compare_digest(given, self._authorization):
            return _error(401, "Invalid app ID or app secret", "invalid_credentials")
        return None

    async def _jwks(self, request: web.Request) -> web.Response:
        if request.match_info["app_id"] != self._app.app_id:
            return _error(404, "App not found", "missing_or_invalid_privy_app_id")
        return json_reply(self._keys.key_set())

    async def _create(self, request: web.Request) -> web.Response:
        body = await json_object(request)
        accounts = _accounts_in(body)
        wallets = _wallets_in(body) if "wallets" in body else []
        metadata = _metadata_in(body)
        if refusal := self._limit.refusal():
            return refusal
        try:
            owner = self._users.owner_of(accounts)
        except AccountsConflictError as conflict:
            return await self._conflict(conflict.owner)
        if owner is not None:
            # A repeated import gets the user; one of two concurrent imports gets the conflict.
            return await (self._answer if self._users.is_saved(owner) else self._conflict)(owner)
        if email_user := self._users.owner_of_email(accounts):
            return await self._conflict(email_user, has_cause=False)
        return await self._answer(self._users.create(accounts, wallets, metadata))

    async def _list(self, request: web.Request) -> web.Response:
        limit = _limit_in(request.query)
        try:
            users = self._users.page(request.query.get("cursor"), limit)
        except KeyError:
            raise BadInputError("cursor", "is unknown") from None
        for user in users:
            await self._users.saved(user)
        cursor = users[-1].subject if len(users) == limit else None
        return json_reply({"data": [user_as_json(user) for user in users], "next_cursor": cursor})

    async def _read(self, request: web.Request) -> web.Response:
        return await self._answer_or_404(self._users.user(request.match_info["subject"]))

    async def _add_wallets(self, request: web.Request) -> web.Response:
        wallets = _wallets_in(await json_object(request))
        user = self._users.user(request.match_info["subject"])
        if user is not None:
            self._users.add_wallets(user, wallets, request.headers.get("privy-idempotency-key"))
        return await self._answer_or_404(user)

    def _lookup(self, name: str) -> Handler:
        kind, body_field, account_field = LOOKUPS[name]

        async def handle_lookup(request: web.Request) -> web.Response:
            value = text_in(await json_object(request), body_field)
            return await self._answer_or_404(self._users.find(kind, account_field, value))

        return handle_lookup

    async def _answer_or_404(self, user: SandboxUser | None) -> web.Response:
        return (
            _error(404, "User not found", "not_found") if user is None else await self._answer(user)
        )

    async def _answer(self, user: SandboxUser) -> web.Response:
        return json_reply(user_as_json(await self._users.saved(user)))

    async def _conflict(self, owner: SandboxUser, *, has_cause: bool = True) -> web.Response:
        await self._users.saved(owner)
        answer = {"error": f"Input conflict caused by an existing user: {owner.subject}"}
        return json_reply(answer | ({"cause": owner.subject} if has_cause else {}), 422)


def user_as_json(user: SandboxUser) -> dict[str, object]:
    verified = dict.fromkeys(
        ("verified_at", "first_verified_at", "latest_verified_at"), user.created_at
    )
    accounts: list[object] = [{**account, **verified} for account in user.accounts]
    return {
        "id": user.subject,
        "created_at": user.created_at,
        "linked_accounts": [*accounts, *map(_wallet_as_json, user.wallets)],
        "mfa_methods": [],
        "has_accepted_terms": False,
        "is_guest": False,
        "custom_metadata": user.custom_metadata,
    }


def _wallet_as_json(wallet: EmbeddedWallet) -> dict[str, object]:
    return {
        "type": "wallet",
        "id": wallet.id,
        "address": wallet.address,
        "chain_type": "ethereum",
        "chain_id": "eip155:1",
        "wallet_client": "privy",
        "wallet_client_type": "privy",
        "connector_type": "embedded",
        "recovery_method": "privy-v2",
        "wallet_index": wallet.index,
        "imported": False,
        "delegated": False,
        "verified_at": wallet.created_at,
        "first_verified_at": wallet.created_at,
        "latest_verified_at": wallet.created_at,
    }


def _accounts_in(body: Body) -> list[Account]:
    rows = list_in(body, "linked_accounts", _MAX_ACCOUNTS)
    if not rows:
        raise BadInputError("linked_accounts", "must not be empty")
    accounts = [parse_account(row, f"linked_accounts.{place}") for place, row in enumerate(rows)]
    if len({identity_key(account) for account in accounts}) < len(accounts):
        raise BadInputError("linked_accounts", "names one account twice")
    return accounts


def _wallets_in(body: Body) -> list[WalletRequest]:
    """The sandbox creates ethereum wallets only."""
    rows = list_in(body, "wallets", _MAX_WALLETS)
    return [_wallet_in(row, f"wallets.{place}") for place, row in enumerate(rows)]


def _wallet_in(row: object, place: str) -> WalletRequest:
    if not isinstance(row, dict) or row.get("chain_type") != "ethereum":
        raise BadInputError(f"{place}.chain_type", "must be ethereum")
    signers = list_in(row, "additional_signers", 1) if "additional_signers" in row else []
    for signer in signers:
        if not isinstance(signer, dict) or not isinstance(signer.get("signer_id"), str):
            raise BadInputError(f"{place}.additional_signers", "must name a signer_id")
        return WalletRequest(signer["signer_id"])
    return WalletRequest()


def _metadata_in(body: Body) -> Mapping[str, object]:
    metadata = body.get("custom_metadata", {})
    if not isinstance(metadata, dict):
        raise BadInputError("custom_metadata", "must be a JSON object")
    for name, value in metadata.items():
        if not isinstance(value, str | int | float | bool):
            raise BadInputError(
                f"custom_metadata.{name[:64]}", "must be text, a number or a boolean"
            )
    return metadata


def _limit_in(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(_MAX_PER_PAGE))
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise BadInputError("limit", f"must be a whole number from 1 to {_MAX_PER_PAGE}")
    limit = int(text)
    if not 1 <= limit <= _MAX_PER_PAGE:
        raise BadInputError("limit", f"must be a whole number from 1 to {_MAX_PER_PAGE}")
    return limit


def _error(status: int, text: str, code: str) -> web.Response:
    return json_reply({"error": text, "code": code}, status)
