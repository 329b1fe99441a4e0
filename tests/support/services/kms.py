"""AWS KMS on loopback: JSON 1.1 with SigV4 checked, and the faults that its callers meet.

The check of the request's signature is written from AWS's description and shares no code with
botocore.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import coincurve
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ltzd.chain.signing import CURVE_ORDER
from ltzd.providers.signers.calls import SignerCallPolicy
from ltzd.providers.signers.kms import KmsPolicy
from tests.support.services.web_servers import served_at

REGION = "eu-central-1"
KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"
ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
HASTY = SignerCallPolicy(timeout_seconds=5.0, attempt_seconds=2.0, first_pause_seconds=0.01)

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


def refusing(kind: str, status: int = 400) -> Behaviour:
    """Answers with this error of KMS, whose name has a namespace now and then."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return _json({"__type": f"com.amazonaws.kms#{kind}", "message": "arn:aws:kms:…"}, status)

    return answer


def answering(fields: dict[str, Any]) -> Behaviour:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return _json(fields, 200)

    return answer


@dataclass
class KmsServer:
    """Holds one key. Behaviours in `next`, then `always`, replace its true answers.

    `secrets` has the secret and the session token of each access key. `operations` lists what was
    asked by requests with a true signature, `access_keys` by whom.
    """

    key: coincurve.PrivateKey
    base: str = ""
    has_high_s: bool = False
    spec: str = "ECC_SECG_P256K1"
    secrets: dict[str, tuple[str, str | None]] = field(
        default_factory=lambda: {ACCESS_KEY: (SECRET_KEY, None)}
    )
    next: deque[Behaviour] = field(default_factory=deque)
    always: Behaviour | None = None
    operations: list[str] = field(default_factory=list)
    access_keys: set[str] = field(default_factory=set)
    messages: list[dict[str, str]] = field(default_factory=list)
    together: asyncio.Barrier | None = None
    """A signature is answered once so many are asked for."""
    at_once: int = 0
    most_at_once: int = 0

    def policy(self, calls: SignerCallPolicy = HASTY) -> KmsPolicy:
        return KmsPolicy(KEY_ID, REGION, self.base, calls)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            body = await request.read()
            fault = self._fault(request, body)
            if fault is not None:
                return _json({"__type": fault, "message": "…"}, 400)
            self.access_keys.add(request.headers["Authorization"].split("/")[0].split("=")[1])
            operation = request.headers["X-Amz-Target"].removeprefix("TrentService.")
            self.operations.append(operation)
            if operation == "Sign" and self.together is not None:
                await self.together.wait()
            behaviour = self.next.popleft() if self.next else self.always
            if behaviour is not None:
                return await behaviour(request)
            return self._result(operation, json.loads(body))
        finally:
            self.at_once -= 1

    def _result(self, operation: str, fields: dict[str, str]) -> web.Response:
        if fields["KeyId"] != KEY_ID:
            return _json({"__type": "NotFoundException", "message": "…"}, 400)
        match operation:
            case "GetPublicKey":
                return _json(self.public_key_answer(), 200)
            case "Sign":
                self.messages.append(fields)
                assert fields["MessageType"] == "DIGEST"
                assert fields["SigningAlgorithm"] == "ECDSA_SHA_256"
                signature = self.der(base64.b64decode(fields["Message"]))
                return _json({"KeyId": KEY_ID, "Signature": _base64(signature)}, 200)
        return _json({"__type": "UnknownOperationException"}, 400)

    def public_key_answer(self) -> dict[str, Any]:
        point = ec.EllipticCurvePublicKey.from_encoded_point(
            ec.SECP256K1(), self.key.public_key.format(compressed=False)
        )
        der = point.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return {
            "KeyId": f"arn:aws:kms:{REGION}:111122223333:key/{KEY_ID}",
            "KeySpec": self.spec,
            "KeyUsage": "SIGN_VERIFY",
            "PublicKey": _base64(der),
            "SigningAlgorithms": ["ECDSA_SHA_256"],
        }

    def der(self, digest: bytes) -> bytes:
        assert len(digest) == 32
        signature = self.key.sign_recoverable(digest, hasher=None)
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
        return encode_dss_signature(r, CURVE_ORDER - s if self.has_high_s else s)

    def _fault(self, request: web.Request, body: bytes) -> str | None:
        """KMS's error for a request that is not signed as AWS demands."""
        scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
        if scheme != "AWS4-HMAC-SHA256":
            return "MissingAuthenticationTokenException"
        parts = dict(part.strip().split("=", 1) for part in rest.split(","))
        access_key, date, region, service, end = parts["Credential"].split("/")
        if access_key not in self.secrets:
            return "UnrecognizedClientException"
        secret, token = self.secrets[access_key]
        time = request.headers["X-Amz-Date"]
        age = datetime.now(UTC) - datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        names = parts["SignedHeaders"].split(";")
        is_right = (
            (region, service, end) == (REGION, "kms", "aws4_request")
            and time.startswith(date)
            and abs(age) < timedelta(minutes=5)
            and {"host", "x-amz-date", "x-amz-target"} <= set(names)
            and request.headers.get("X-Amz-Security-Token") == token
            and (token is None or "x-amz-security-token" in names)
        )
        canonical = "\n".join(
            (
                request.method,
                request.path,
                "",
                *(f"{name}:{' '.join(request.headers[name].split())}" for name in names),
                "",
                parts["SignedHeaders"],
                hashlib.sha256(body).hexdigest(),
            )
        )
        scope = f"{date}/{region}/{service}/{end}"
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"AWS4{secret}".encode()
        for word in (date, region, service, end):
            key = hmac.digest(key, word.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}".encode()
        signature = hmac.digest(key, text, "sha256").hex()
        return None if is_right and signature == parts["Signature"] else "InvalidSignatureException"


@asynccontextmanager
async def a_kms(secret: bytes = b"\x01" * 32) -> AsyncIterator[KmsServer]:
    server = KmsServer(coincurve.PrivateKey(secret))
    application = web.Application()
    application.router.add_post("/", server.answer)
    async with served_at(application) as base:
        server.base = base
        yield server


def write_credentials(
    path: Path, access_key: str = ACCESS_KEY, secret: str = SECRET_KEY, token: str | None = None
) -> None:
    """A shared credentials file, as `AWS_SHARED_CREDENTIALS_FILE` names it."""
    lines = ["[default]", f"aws_access_key_id = {access_key}", f"aws_secret_access_key = {secret}"]
    if token is not None:
        lines.append(f"aws_session_token = {token}")
    path.write_text("\n".join(lines) + "\n")


def use_credentials(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the credentials file that botocore's chain finds, and lets it find nothing else."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    path = folder / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    write_credentials(path)
    return path


def _json(fields: dict[str, Any], status: int) -> web.Response:
    return web.json_response(fields, status=status, content_type="application/x-amz-json-1.1")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
