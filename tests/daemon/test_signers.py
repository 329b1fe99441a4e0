"""Signers are named in the settings, or in a wallet's row, and opened from there."""

import ssl
from pathlib import Path
from typing import Any

import coincurve
import pytest
from pydantic import ValidationError

from ltzd.chain.signing import Signer, UnsignedTransaction
from ltzd.daemon.settings.wallets import SignerSettings, signer_of
from ltzd.daemon.signers import open_signer
from ltzd.errors import Misconfigured, SignerUnavailable
from ltzd.values import Address
from tests.support.certificates import a_pair
from tests.support.secret_files import write_secret
from tests.support.services.kms import KEY_ID, REGION, a_kms, use_credentials
from tests.support.services.web3signer import a_web3signer, public_key_of

LOCAL = Signer(b"\x01" * 32)
TRANSACTION = UnsignedTransaction(1, 7, 1, 2, 60_000, Address(b"\x11" * 20), 0, b"\x01")
KMS = {"key_id": "alias/ltzd", "region": "eu-central-1"}
PUBLIC_KEY = public_key_of(coincurve.PrivateKey(b"\x01" * 32)).hex()


async def signs_as_the_local_key(settings: SignerSettings) -> None:
    async with open_signer(settings) as signer:
        assert signer.address == LOCAL.address
        assert await signer.sign_all([TRANSACTION]) == [LOCAL.sign(TRANSACTION)]


def fault_of(settings: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        SignerSettings.model_validate(settings)
    return str(caught.value)


async def test_a_key_file_signs(tmp_path: Path) -> None:
    write_secret(tmp_path / "key", "01" * 32)
    await signs_as_the_local_key(SignerSettings(key_file=tmp_path / "key"))


async def test_kms_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_credentials(tmp_path, monkeypatch)
    async with a_kms() as server:
        settings = {"kms": {"key_id": KEY_ID, "region": REGION, "endpoint": server.base}}
        await signs_as_the_local_key(signer_of(settings))


async def test_web3signer_signs() -> None:
    async with a_web3signer() as server:
        await signs_as_the_local_key(signer_of({"web3signer": {"url": server.base}}))


async def test_web3signer_may_know_its_callers_by_certificate(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    certificate, key = a_pair().write(ours)
    their_certificate, their_key = a_pair().write(theirs)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate)
    tls.load_cert_chain(their_certificate, their_key)
    tls.verify_mode = ssl.CERT_REQUIRED
    async with a_web3signer(tls=tls) as server:
        settings = {"url": server.base, "public_key": PUBLIC_KEY}
        trusting = settings | {"ca_file": their_certificate}
        known = trusting | {"certificate_file": certificate, "certificate_key_file": key}
        await signs_as_the_local_key(SignerSettings.model_validate({"web3signer": known}))
        for unknown in (settings, trusting):
            async with open_signer(
                SignerSettings.model_validate({"web3signer": unknown})
            ) as signer:
                with pytest.raises(SignerUnavailable, match="cannot be reached"):
                    await signer.sign_all([TRANSACTION])


async def test_a_certificate_that_cannot_be_read_is_a_fault_of_the_settings(
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    settings = {"url": "https://signer.example", "ca_file": tmp_path / "ca.pem"}
    with pytest.raises(Misconfigured, match="The certificates for"):
        async with open_signer(SignerSettings.model_validate({"web3signer": settings})):
            pass


def test_a_row_tells_the_same_signer(tmp_path: Path) -> None:
    write_secret(tmp_path / "key", "01" * 32)
    for settings in (
        {"key_file": str(tmp_path / "key")},
        {"kms": KMS},
        {"web3signer": {"url": "https://signer.example:9000", "public_key": "0x" + PUBLIC_KEY}},
    ):
        signer = SignerSettings.model_validate(settings)
        assert signer.reference() == settings
        assert signer_of(signer.reference()) == signer


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({}, "give one of key_file (the file with the wallet's key), kms and web3signer"),
        ({"kms": KMS, "web3signer": {"url": "https://a.example"}}, "give one of key_file"),
        ({"kms": {"key_id": "alias/ltzd"}}, "kms.region"),
        ({"kms": KMS | {"region": "Frankfurt"}}, "kms.region"),
        (
            {"kms": KMS | {"key_id": "arn:aws:kms:us-east-1:111122223333:key/1234"}},
            "another region",
        ),
        ({"kms": KMS | {"endpoint": "http://kms.example"}}, "https URL, or an http URL of a loop"),
        ({"kms": KMS | {"secret_access_key": "hunter2"}}, "Extra inputs are not permitted"),
        ({"web3signer": {"url": "http://signer.internal:9000"}}, "https URL, or an http URL of a"),
        ({"web3signer": {"url": "https://user:hunter2@signer.example"}}, "must be a URL such as"),
        ({"web3signer": {"url": "https://a.example", "public_key": "0x12"}}, "public key of secp"),
    ],
)
def test_a_signer_that_cannot_work_is_refused(settings: dict[str, Any], fault: str) -> None:
    shown = fault_of(settings)
    assert fault in shown
    assert "hunter2" not in shown


def test_a_client_certificate_needs_its_key(tmp_path: Path) -> None:
    certificate, _ = a_pair().write(tmp_path)
    settings = {"url": "https://signer.example", "certificate_file": certificate}
    assert "give both certificate_file" in fault_of({"web3signer": settings})


def test_a_password_is_for_a_keystore(tmp_path: Path) -> None:
    write_secret(tmp_path / "password", "open sesame")
    assert "password_file is for" in fault_of({"kms": KMS, "password_file": tmp_path / "password"})
