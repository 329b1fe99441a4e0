"""AWS KMS signs, and whatever else it does is a SignerUnavailable within bounded time."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from msgspec.structs import replace

from ltzd.chain.remote_signing import RemoteSigner, complete_signature, open_remote_signer
from ltzd.chain.signing import Signer
from ltzd.errors import Misconfigured, SignerUnavailable
from ltzd.providers.signers.calls import SignerCallPolicy
from ltzd.providers.signers.kms import KmsKey, KmsPolicy
from ltzd.values import keccak
from tests.support.chain.signers import a_transaction
from tests.support.services.kms import (
    ACCESS_KEY,
    HASTY,
    KEY_ID,
    REGION,
    SECRET_KEY,
    KmsServer,
    a_kms,
    answering,
    refusing,
    use_credentials,
    write_credentials,
)
from tests.support.services.web_servers import served_at
from tests.support.waiting import until

LOCAL = Signer(b"\x01" * 32)


@pytest_asyncio.fixture
async def kms() -> AsyncIterator[KmsServer]:
    async with a_kms() as server:
        yield server


@pytest.fixture(autouse=True)
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return use_credentials(tmp_path, monkeypatch)


async def opened(key: KmsKey) -> RemoteSigner:
    return await open_remote_signer(key)


async def failure(key: KmsKey) -> SignerUnavailable:
    with pytest.raises(SignerUnavailable) as raised:
        await key.sign(b"payload")
    return raised.value


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize("has_high_s", [False, True])
async def test_its_transactions_are_those_of_the_local_key(
    kms: KmsServer, has_high_s: bool, is_legacy: bool
) -> None:
    kms.has_high_s, kms.together = has_high_s, asyncio.Barrier(20)
    transactions = [a_transaction(nonce, is_legacy=is_legacy) for nonce in range(20)]
    async with KmsKey(kms.policy()) as key:
        signer = await opened(key)
        assert signer.address == LOCAL.address
        assert await signer.sign_all(transactions) == await LOCAL.sign_all(transactions)
    assert kms.operations == ["GetPublicKey"] + ["Sign"] * 20


async def test_the_digest_itself_is_signed(kms: KmsServer) -> None:
    async with KmsKey(kms.policy()) as key:
        r, s = await key.sign(b"payload")
    assert base64.b64decode(kms.messages[0]["Message"]) == keccak(b"payload")
    assert complete_signature(keccak(b"payload"), r, s, LOCAL.address) is not None


async def test_no_more_requests_than_allowed_are_open_at_once(kms: KmsServer) -> None:
    kms.together = asyncio.Barrier(3)
    async with KmsKey(kms.policy(replace(HASTY, max_concurrent=3))) as key:
        signer = RemoteSigner(key, LOCAL.address)
        await signer.sign_all([a_transaction(nonce) for nonce in range(12)])
    assert kms.most_at_once == 3


async def test_throttled_requests_are_repeated(kms: KmsServer) -> None:
    kms.next += [refusing("ThrottlingException"), refusing("KMSInternalException", 500)]
    async with KmsKey(kms.policy()) as key:
        await key.sign(b"payload")
    assert kms.operations == ["Sign"] * 3


async def test_a_throttled_batch_is_none_or_all(kms: KmsServer) -> None:
    kms.always = refusing("ThrottlingException")
    async with KmsKey(kms.policy(replace(HASTY, max_attempts=2))) as key:
        with pytest.raises(SignerUnavailable) as raised:
            await RemoteSigner(key, LOCAL.address).sign_all([a_transaction(), a_transaction(8)])
    assert raised.value.details == {"signer": "kms", "cause": "ThrottlingException"}


@pytest.mark.parametrize(
    "kind", ["DisabledException", "NotFoundException", "AccessDeniedException", "KMSInvalidState"]
)
async def test_a_refusal_is_not_repeated(kms: KmsServer, kind: str) -> None:
    kms.always = refusing(kind)
    async with KmsKey(kms.policy()) as key:
        error = await failure(key)
    assert error.details == {"signer": "kms", "cause": kind}
    assert kms.operations == ["Sign"]


@pytest.mark.parametrize(
    "signature", ["", "%%%", base64.b64encode(b"\x30\x06\x02\x01").decode(), None]
)
async def test_a_malformed_signature_is_refused(kms: KmsServer, signature: str | None) -> None:
    kms.always = answering({"Signature": signature})
    async with KmsKey(kms.policy()) as key:
        assert "malformed" in (await failure(key)).message


async def test_a_signature_of_another_key_or_of_other_bytes_is_refused(kms: KmsServer) -> None:
    other = KmsServer(type(kms.key)(b"\x02" * 32))
    digest = keccak(b"other bytes")
    for der in (other.der(keccak(b"")), kms.der(digest), other.der(digest)):
        kms.always = answering({"Signature": base64.b64encode(der).decode()})
        async with KmsKey(kms.policy()) as key:
            with pytest.raises(SignerUnavailable, match="not one of the wallet's key"):
                await RemoteSigner(key, LOCAL.address).sign_all([a_transaction()])


async def test_a_service_that_is_away_costs_bounded_time(kms: KmsServer) -> None:
    gone = KmsPolicy(KEY_ID, REGION, "http://127.0.0.1:9", replace(HASTY, max_attempts=2))
    async with KmsKey(gone) as key:
        assert (await failure(key)).message == "The signer cannot be reached"


async def test_a_service_that_hangs_costs_bounded_time(kms: KmsServer) -> None:
    hanging = asyncio.Event()

    async def hang(_request: web.Request) -> web.StreamResponse:
        await hanging.wait()
        return web.Response()

    kms.always = hang
    bounded = SignerCallPolicy(timeout_seconds=0.2, attempt_seconds=0.1)
    async with KmsKey(kms.policy(bounded)) as key:
        await failure(key)
    hanging.set()


async def test_expired_credentials_are_read_anew(kms: KmsServer, credentials: Path) -> None:
    async with KmsKey(kms.policy()) as key:
        await key.sign(b"payload")
        kms.secrets = {"AKIDNEWER": ("newer", "a session token")}
        assert (await failure(key)).details["cause"] == "UnrecognizedClientException"
        write_credentials(credentials, "AKIDNEWER", "newer", "a session token")
        await key.sign(b"payload")
        kms.next.append(refusing("ExpiredTokenException"))
        await key.sign(b"payload")


CREDENTIALS_PROGRAM = """\
import datetime, json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = int(count.read_text()) + 1
count.write_text(str(number))
end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=int(sys.argv[2]))
print(json.dumps({
    "Version": 1, "AccessKeyId": f"AKID{number}", "SecretAccessKey": "secret",
    "SessionToken": "token", "Expiration": end.isoformat(),
}))
"""


def use_program(folder: Path, monkeypatch: pytest.MonkeyPatch, minutes: int) -> Path:
    """Lets botocore's chain find temporary credentials; returns the file that counts them."""
    program, count = folder / "program.py", folder / "count"
    program.write_text(CREDENTIALS_PROGRAM)
    count.write_text("0")
    command = f"{sys.executable} {program} {count} {minutes}"
    (folder / "config").write_text(f"[default]\ncredential_process = {command}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    return count


async def test_temporary_credentials_are_renewed_before_they_expire(
    kms: KmsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore renews within a quarter of an hour before the end."""
    use_program(tmp_path, monkeypatch, minutes=12)
    kms.secrets = {f"AKID{number}": ("secret", "token") for number in range(200)}
    async with KmsKey(kms.policy()) as key:

        async def has_renewed() -> bool:
            await key.sign(b"payload")
            return len(kms.access_keys) > 2

        await until(has_renewed)


async def test_temporary_credentials_are_kept_while_they_last(
    kms: KmsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = use_program(tmp_path, monkeypatch, minutes=60)
    kms.secrets = {"AKID1": ("secret", "token")}
    async with KmsKey(kms.policy()) as key:
        await RemoteSigner(key, LOCAL.address).sign_all([a_transaction(n) for n in range(10)])
        await key.sign(b"payload")
    assert count.read_text() == "1"


async def test_a_wrong_secret_is_refused_by_the_service(kms: KmsServer, credentials: Path) -> None:
    write_credentials(credentials, ACCESS_KEY, SECRET_KEY[::-1])
    async with KmsKey(kms.policy()) as key:
        assert (await failure(key)).details["cause"] == "InvalidSignatureException"


async def test_without_credentials_nothing_is_sent(
    kms: KmsServer, credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    async with KmsKey(kms.policy(replace(HASTY, max_attempts=2))) as key:
        assert (await failure(key)).details["cause"] == "no credentials"
        assert kms.operations == []
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
        await key.sign(b"payload")


@asynccontextmanager
async def an_sts(answer: str, status: int) -> AsyncIterator[str]:
    """The URL of a security token service that answers all requests so."""

    async def reply(_request: web.Request) -> web.Response:
        return web.Response(text=answer, status=status, content_type="text/xml")

    application = web.Application()
    application.router.add_post("/", reply)
    async with served_at(application) as url:
        yield url


REFUSAL = (
    "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no</Message>"
    "</Error><RequestId>x</RequestId></ErrorResponse>"
)


@pytest.mark.parametrize(
    ("answer", "status", "cause"),
    [
        (REFUSAL, 403, "AccessDenied"),
        ("<html>a proxy's page", 200, "ResponseParserError"),
        ("<AssumeRoleWithWebIdentityResponse/>", 200, "KeyError"),
    ],
)
async def test_a_role_that_the_token_service_does_not_give_is_no_fault_of_the_lane(
    kms: KmsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    answer: str,
    status: int,
    cause: str,
) -> None:
    (tmp_path / "token").write_text("token")
    async with an_sts(answer, status) as url:
        use_web_identity(monkeypatch, tmp_path / "token", url)
        async with KmsKey(kms.policy(replace(HASTY, max_attempts=2))) as key:
            assert (await failure(key)).details["cause"] == cause


def use_web_identity(monkeypatch: pytest.MonkeyPatch, token: Path, url: str) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/ltzd")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)


async def test_a_token_whose_file_is_away_is_waited_for(
    kms: KmsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_web_identity(monkeypatch, tmp_path / "nothing", "http://127.0.0.1:9")
    async with KmsKey(kms.policy(replace(HASTY, max_attempts=2))) as key:
        assert (await failure(key)).details["cause"] == "FileNotFoundError"


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        ("print('Please log in')", "JSONDecodeError"),
        ("print('[]')", "AttributeError"),
        (None, "FileNotFoundError"),
    ],
)
async def test_a_program_that_gives_no_credentials_is_no_fault_of_the_lane(
    kms: KmsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str | None,
    cause: str,
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    (tmp_path / "program.py").write_text(program or "")
    command = f"{sys.executable} {tmp_path / 'program.py'}" if program else str(tmp_path / "none")
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {command}\n")
    async with KmsKey(kms.policy(replace(HASTY, max_attempts=2))) as key:
        assert (await failure(key)).details["cause"] == cause


async def test_a_key_of_another_type_is_a_fault_of_the_settings(kms: KmsServer) -> None:
    kms.spec = "ECC_NIST_P256"
    async with KmsKey(kms.policy()) as key:
        with pytest.raises(Misconfigured, match="ECC_SECG_P256K1"):
            await opened(key)


async def test_no_error_tells_a_secret(kms: KmsServer) -> None:
    kms.always = refusing("AccessDeniedException")
    async with KmsKey(kms.policy()) as key:
        error = await failure(key)
    for text in (str(error), repr(error.details)):
        assert SECRET_KEY not in text
        assert "arn:aws" not in text
