"""The sandbox's identity provider for tests of its clients: log-ins, forgeries, request counts."""

import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from jwt.algorithms import ECAlgorithm, get_default_algorithms

from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.faults import Fault
from ltzd.dev.sandbox.identity.limits import CONTROL_PATH as LIMIT_PATH
from ltzd.dev.sandbox.identity.wallet_rpc import app_signer
from ltzd.providers.identity.client import IdentityPolicy
from tests.support.services.web_servers import served_at

EMAIL = "ann@shop.example"
_MANY = 100_000


class Provider:
    """The sandbox's identity provider, with the actions that only a test may take."""

    def __init__(self, sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        signer = app_signer(sandbox._credentials())
        self.policy = replace(
            sandbox.identity_policy(), signer_id=signer.id, signer_key=signer.key_text
        )
        self._session = session

    async def log_in(self, email: str = EMAIL, **order: object) -> dict[str, Any]:
        return await self._logged_in({"email": email, **order})

    async def log_in_with(self, provider: str, account_id: str, **order: object) -> dict[str, Any]:
        return await self._logged_in({"provider": provider, "id": account_id, **order})

    async def _logged_in(self, body: dict[str, object]) -> dict[str, Any]:
        url = self.sandbox.control_endpoints()["identityTokenUrl"]
        async with self._session.post(url, json=body) as answer:
            assert answer.status == 200, await answer.text()
            log_in: dict[str, Any] = await answer.json()
            return log_in

    async def add_wallet(self, subject: str) -> None:
        body = {"wallets": [{"chain_type": "ethereum"}]}
        status, _ = await self.ask("POST", f"/v1/users/{subject}/wallets", body)
        assert status == 200

    async def make(self, *accounts: object, wallets: int = 1) -> dict[str, Any]:
        """Imports a user as another program of the operator would."""
        body = {"linked_accounts": accounts, "wallets": [{"chain_type": "ethereum"}] * wallets}
        status, user = await self.ask("POST", "/v1/users", body)
        assert status == 200, user
        return user

    async def users(self) -> list[dict[str, Any]]:
        users: list[dict[str, Any]] = (await self.ask("GET", "/v1/users"))[1]["data"]
        return users

    async def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Sends a request with the credentials of the operator's application."""
        password = aiohttp.encode_basic_auth(self.policy.app_id, self.policy.app_secret)
        credentials = {"Authorization": password, "privy-app-id": self.policy.app_id}
        further = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(
            method, self.policy.base_url + path, json=body, headers=credentials | further
        ) as answer:
            return answer.status, await answer.json()

    async def limit_users(self, per_minute: int) -> None:
        body = {"usersPerMinute": per_minute}
        async with self._session.post(self.sandbox.url + LIMIT_PATH, json=body) as answer:
            assert await answer.json() == body

    def break_down(self, **fault: Any) -> None:
        """Fails every request until `count_requests` or another fault."""
        self.sandbox.faults.order("identity", Fault(times=_MANY, **(fault or {"status": 500})))

    def count_requests(self) -> None:
        """Counts requests from here on; the provider answers them."""
        self.sandbox.faults.order("identity", Fault(times=_MANY, delay_seconds=0.001))

    @property
    def requests(self) -> int:
        return _MANY - self.sandbox.faults.left("identity")

    @property
    def key(self) -> EllipticCurvePrivateKey:
        assert self.sandbox._keys is not None
        return self.sandbox._keys.newest

    def public_pem(self) -> bytes:
        return self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def public_jwk(self) -> bytes:
        return json.dumps(ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)).encode()

    def header(self, **changes: object) -> dict[str, object]:
        assert self.sandbox._keys is not None
        kid = self.sandbox._keys.key_id
        return changed({"alg": "ES256", "typ": "JWT", "kid": kid}, changes)

    def claims(self, **changes: object) -> dict[str, object]:
        now = int(time.time())
        honest = {
            "iss": "privy.io",
            "aud": self.policy.app_id,
            "sub": "did:privy:cann",
            "sid": "csession",
            "iat": now,
            "exp": now + 3600,
        }
        return changed(honest, changes)

    def token(self, **changes: object) -> str:
        return self.signed(as_json(self.claims(**changes)))

    def signed(
        self,
        payload: bytes,
        header: Mapping[str, object] | bytes | None = None,
        key: Any = None,
        algorithm: str = "ES256",
    ) -> str:
        """Signs with any header, without the checks of a library that makes tokens."""
        head = header if isinstance(header, bytes) else as_json(header or self.header())
        signing_input = as_base64(head) + b"." + as_base64(payload)
        signer = get_default_algorithms()[algorithm]
        signature = signer.sign(signing_input, key or self.key)
        return (signing_input + b"." + as_base64(signature)).decode()


def changed(honest: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Applies the changes; a change to None removes the member."""
    return {name: value for name, value in {**honest, **changes}.items() if value is not None}


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def as_base64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


@asynccontextmanager
async def a_provider(data_dir: Path) -> AsyncIterator[Provider]:
    sandbox = Sandbox(data_dir, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Provider(sandbox, session)
    finally:
        await sandbox.stop()


@asynccontextmanager
async def served(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], policy: IdentityPolicy
) -> AsyncIterator[IdentityPolicy]:
    """A provider that answers every request with `answer`; clients repeat after a short pause."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with served_at(application) as base_url:
        yield replace(policy, base_url=base_url, first_pause_seconds=0.01)
