"""web3signer on loopback, in its eth1 mode, and the faults that its callers meet."""

import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import coincurve
from aiohttp import web

from ltzd.providers.signers.calls import SignerCallPolicy
from ltzd.providers.signers.web3signer import Web3SignerPolicy
from ltzd.values import keccak
from tests.support.services.web_servers import served_at

HASTY = SignerCallPolicy(timeout_seconds=5.0, attempt_seconds=2.0, first_pause_seconds=0.01)

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answering(text: str, status: int = 200) -> Behaviour:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status)

    return answer


@dataclass
class Web3SignerServer:
    """Behaviours in `next`, then `always`, replace its true answers. `signed` lists the data."""

    keys: list[coincurve.PrivateKey]
    base: str = ""
    next: deque[Behaviour] = field(default_factory=deque)
    always: Behaviour | None = None
    is_away: bool = False
    signed: list[bytes] = field(default_factory=list)

    def policy(self, calls: SignerCallPolicy = HASTY, **changed: Any) -> Web3SignerPolicy:
        return Web3SignerPolicy(self.base, calls=calls, **changed)

    def by_identifier(self) -> dict[str, coincurve.PrivateKey]:
        return {_identifier(key): key for key in self.keys}

    async def list_keys(self, _request: web.Request) -> web.Response:
        if self.is_away:
            raise web.HTTPServiceUnavailable
        return web.json_response(list(self.by_identifier()))

    async def sign(self, request: web.Request) -> web.StreamResponse:
        if self.is_away:
            raise web.HTTPServiceUnavailable
        behaviour = self.next.popleft() if self.next else self.always
        if behaviour is not None:
            return await behaviour(request)
        key = self.by_identifier().get(request.match_info["identifier"].lower())
        if key is None:
            raise web.HTTPNotFound
        data = bytes.fromhex((await request.json())["data"].removeprefix("0x"))
        self.signed.append(data)
        return web.Response(text=sign(key, data))


def sign(key: coincurve.PrivateKey, data: bytes) -> str:
    signature = key.sign_recoverable(keccak(data), hasher=None)
    return "0x" + (signature[:64] + bytes((27 + signature[64],))).hex()


def public_key_of(key: coincurve.PrivateKey) -> bytes:
    return key.public_key.format(compressed=False)[1:]


def _identifier(key: coincurve.PrivateKey) -> str:
    return "0x" + public_key_of(key).hex()


@asynccontextmanager
async def a_web3signer(
    *secrets: bytes, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Web3SignerServer]:
    server = Web3SignerServer([coincurve.PrivateKey(each) for each in secrets or (b"\x01" * 32,)])
    application = web.Application()
    application.router.add_get("/api/v1/eth1/publicKeys", server.list_keys)
    application.router.add_post("/api/v1/eth1/sign/{identifier}", server.sign)
    async with served_at(application, tls) as base:
        server.base = base
        yield server
