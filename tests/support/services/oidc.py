"""An OpenID Connect issuer on loopback, with real keys, documents over HTTP, and failures."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, get_default_algorithms

from ltzd.providers.oidc.policy import Algorithm, OidcPolicy
from tests.support.services.identity import as_base64, as_json, changed
from tests.support.services.web_servers import served_at

AUDIENCE = "ltzd"
# Made once: it takes longer than a whole test.
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)

_WRITERS: dict[type, Any] = {
    rsa.RSAPublicKey: RSAAlgorithm.to_jwk,
    ec.EllipticCurvePublicKey: ECAlgorithm.to_jwk,
    ed25519.Ed25519PublicKey: OKPAlgorithm.to_jwk,
}


def a_p256_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_row(kid: str, key: Any, **members: object) -> dict[str, object]:
    public = key.public_key()
    write = next(writer for kind, writer in _WRITERS.items() if isinstance(public, kind))
    return changed({**write(public, as_dict=True), "kid": kid, "use": "sig"}, members)


class Issuer:
    """`keys` are the current keys by their ids; the first key of an algorithm's kind signs."""

    def __init__(self) -> None:
        self.base = ""
        self.keys: dict[str, Any] = {
            "r1": RSA_KEY,
            "e1": a_p256_key(),
            "o1": ed25519.Ed25519PrivateKey.generate(),
        }
        self.document: dict[str, object] = {}
        self.rows: list[dict[str, object]] | None = None
        self.requests: list[str] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    @property
    def issuer(self) -> str:
        return f"{self.base}/realm/"

    def policy(self, **changes: Any) -> OidcPolicy:
        quick = {"timeout_seconds": 1.0, "attempt_seconds": 0.4, "pause_seconds": 0.01}
        return OidcPolicy(**{"issuer": self.issuer, "audiences": (AUDIENCE,), **quick, **changes})

    async def discovery(self, request: web.Request) -> web.Response:
        document = {"issuer": self.issuer, "jwks_uri": f"{self.base}/keys"}
        return await self._answer(request, changed(document, self.document))

    async def key_set(self, request: web.Request) -> web.Response:
        rows = [public_row(kid, key) for kid, key in self.keys.items()]
        return await self._answer(request, {"keys": rows if self.rows is None else self.rows})

    async def _answer(self, request: web.Request, document: object) -> web.Response:
        self.requests.append(request.path)
        await self.may_answer.wait()
        return web.Response(status=self.status, headers=self.headers, body=as_json(document))

    def claims(self, **changes: object) -> dict[str, object]:
        now = int(time.time())
        honest = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "user-7",
            "iat": now,
            "exp": now + 600,
        }
        return changed(honest, changes)

    def token(self, algorithm: Algorithm = "ES256", **changes: object) -> str:
        return self.signed(as_json(self.claims(**changes)), algorithm)

    def signed(
        self,
        payload: bytes,
        algorithm: str = "ES256",
        key: Any = None,
        **header: object,
    ) -> str:
        """Signs with any header; `key` replaces the issuer's key."""
        kid = {"E": "e", "R": "r", "P": "r"}.get(algorithm[0], "r")
        kid = "o" if algorithm == "EdDSA" else kid
        kid = next(each for each in self.keys if each.startswith(kid))
        head = changed({"alg": algorithm, "typ": "JWT", "kid": kid}, header)
        text = as_base64(as_json(head)) + b"." + as_base64(payload)
        signature = get_default_algorithms()[algorithm].sign(text, key or self.keys[kid])
        return (text + b"." + as_base64(signature)).decode()


@asynccontextmanager
async def an_issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    application = web.Application()
    application.router.add_get("/realm/.well-known/openid-configuration", issuer.discovery)
    application.router.add_get("/elsewhere", issuer.discovery)
    application.router.add_get("/keys", issuer.key_set)
    async with served_at(application) as issuer.base:
        try:
            yield issuer
        finally:
            issuer.may_answer.set()
