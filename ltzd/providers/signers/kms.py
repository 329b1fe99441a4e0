"""AWS Key Management Service: signatures by an asymmetric key of the type ECC_SECG_P256K1.

The service speaks JSON 1.1: `X-Amz-Target` names the operation, and botocore signs the request
(SigV4). The digest is sent as it is (`MessageType` DIGEST), though the algorithm is called
ECDSA_SHA_256: KMS signs any 32 bytes. The answer is DER, with a high s in half of the cases.
"""

import asyncio
import base64
import binascii

import botocore.session
import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256K1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

from ltzd.errors import Misconfigured
from ltzd.providers.outbound.http_client import (
    AsyncCloseable,
    HttpResponse,
    MalformedAnswerError,
    object_in,
)
from ltzd.providers.outbound.retries import TransientFailure
from ltzd.providers.signers.aws_credentials import AwsCredentials
from ltzd.providers.signers.calls import SignerCallPolicy, SignerCalls
from ltzd.values import keccak

_TRANSIENT = {
    "DependencyTimeoutException",
    "InternalFailure",
    "KMSInternalException",
    "KeyUnavailableException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_CREDENTIALS_REFUSED = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "RequestExpired",
    "UnrecognizedClientException",
}


class KmsPolicy(msgspec.Struct, frozen=True):
    """`key_id` is a key's id, ARN or alias. `endpoint` replaces the region's public one."""

    key_id: str
    region: str
    endpoint: str | None = None
    calls: SignerCallPolicy = msgspec.field(default_factory=SignerCallPolicy)


class KmsKey(AsyncCloseable):
    def __init__(self, policy: KmsPolicy) -> None:
        self._policy = policy
        self._calls = SignerCalls("kms", policy.calls)
        self._credentials = AwsCredentials()
        self._endpoint = policy.endpoint

    async def close(self) -> None:
        self._credentials.close()
        await self._calls.close()

    async def public_key(self) -> bytes:
        """Raises SignerUnavailable, and Misconfigured for a key of another type."""
        answer = await self._call("GetPublicKey", {"KeyId": self._policy.key_id})
        spec, usage = answer.get("KeySpec"), answer.get("KeyUsage")
        if spec != "ECC_SECG_P256K1" or usage != "SIGN_VERIFY":
            raise Misconfigured(
                f"The KMS key {self._policy.key_id} must be of the type ECC_SECG_P256K1 for "
                "SIGN_VERIFY."
            )
        try:
            return _point(_bytes_in(answer, "PublicKey"))
        except MalformedAnswerError as error:
            raise self._calls.unavailable("The signer's answer is malformed", str(error)) from error

    async def sign(self, payload: bytes) -> tuple[int, int]:
        """Raises SignerUnavailable."""
        answer = await self._call(
            "Sign",
            {
                "KeyId": self._policy.key_id,
                "Message": base64.b64encode(keccak(payload)).decode(),
                "MessageType": "DIGEST",
                "SigningAlgorithm": "ECDSA_SHA_256",
            },
        )
        try:
            return _numbers(_bytes_in(answer, "Signature"))
        except MalformedAnswerError as error:
            raise self._calls.unavailable("The signer's answer is malformed", str(error)) from error

    async def _call(self, operation: str, fields: dict[str, str]) -> dict[str, object]:
        body = msgspec.json.encode(fields)
        return await self._calls.repeat(lambda: self._attempt(operation, body))

    async def _attempt(self, operation: str, body: bytes) -> dict[str, object]:
        if self._endpoint is None:
            self._endpoint = await asyncio.to_thread(_public_endpoint, self._policy.region)
        credentials = await self._credentials.current()
        headers = self._signed_headers(operation, body, credentials)
        response = await self._calls.request("POST", self._endpoint, data=body, headers=headers)
        if response.is_success:
            return object_in(response)
        error = _error_type(response)
        if error in _CREDENTIALS_REFUSED:
            self._credentials.discard(credentials)
            raise TransientFailure("AWS refuses the credentials", error)
        if error in _TRANSIENT or response.is_transient:
            raise TransientFailure("KMS does not sign now", error)
        raise self._calls.unavailable("KMS refuses the request", error)

    def _signed_headers(
        self, operation: str, body: bytes, credentials: ReadOnlyCredentials
    ) -> dict[str, str]:
        request = AWSRequest(
            method="POST",
            url=self._endpoint,
            data=body,
            headers={
                "Content-Type": "application/x-amz-json-1.1",
                "X-Amz-Target": f"TrentService.{operation}",
            },
        )
        SigV4Auth(credentials, "kms", self._policy.region).add_auth(request)
        return dict(request.headers.items())


def _public_endpoint(region: str) -> str:
    """The region's endpoint, of its own partition (`.com`, `.com.cn`)."""
    resolver = botocore.session.Session().get_component("endpoint_resolver")
    endpoint = resolver.construct_endpoint("kms", region)
    host = endpoint["hostname"] if endpoint else f"kms.{region}.amazonaws.com"
    return f"https://{host}/"


def _error_type(response: HttpResponse) -> str:
    """The error's name without its namespace, or the status."""
    name = (response.json_object() or {}).get("__type")
    if not isinstance(name, str) or not name.rpartition("#")[2].isalnum():
        return f"status {response.status}"
    return name.rpartition("#")[2][:80]


def _bytes_in(answer: dict[str, object], name: str) -> bytes:
    value = answer.get(name)
    try:
        return base64.b64decode(value if isinstance(value, str) else "", validate=True)
    except binascii.Error as error:
        raise MalformedAnswerError(f"{name} is not in base64") from error


def _numbers(signature: bytes) -> tuple[int, int]:
    try:
        return decode_dss_signature(signature)
    except ValueError as error:
        raise MalformedAnswerError("the signature is not DER") from error


def _point(public_key: bytes) -> bytes:
    """The coordinates of the point in a SubjectPublicKeyInfo."""
    try:
        key = load_der_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise MalformedAnswerError("the public key is not DER") from error
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256K1):
        raise MalformedAnswerError("the public key is not one of secp256k1")
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]
