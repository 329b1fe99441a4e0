"""The certificate of a server that speaks TLS itself, and its renewal while requests run.

A listener keeps one SSLContext for its whole life. The SNI callback, which OpenSSL also calls for
clients that name no server, hands the newest certificate to each handshake. A connection keeps what
it was handed, so no open connection notices a renewal. Certificate and key are loaded together into
a context of their own, and come into force together or not at all.

TLS 1.2 at least, HTTP/1.1 alone, no renegotiation.
"""

import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import structlog
from cryptography import x509

from ltzd import telemetry
from ltzd.errors import Misconfigured
from ltzd.secret_files import open_file, open_secret, read_descriptor
from ltzd.values import iso

log = structlog.get_logger()

SOON_SECONDS = 14 * 86_400
"""Within this time of its end a certificate is warned of: its renewal does not work."""


class ServerCertificate:
    """Of one of our servers, `public` or `admin`."""

    def __init__(self, server: str, certificate_file: Path, key_file: Path) -> None:
        """Raises Misconfigured unless the certificate is in force and the key is its own."""
        self._server = server
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._newest = self.context = self._loaded()
        self.context.sni_callback = self._hand_over

    def renew(self) -> None:
        """Serve new connections with what the files hold now, or as before if that cannot be."""
        try:
            self._newest = self._loaded()
        except Misconfigured as error:
            telemetry.CERTIFICATE_RENEWALS.labels(self._server, "refused").inc()
            log.error("tls.not_renewed", server=self._server, reason=error.message)
        else:
            telemetry.CERTIFICATE_RENEWALS.labels(self._server, "renewed").inc()

    def _hand_over(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self._newest

    def _loaded(self) -> ssl.SSLContext:
        context = _new_context()
        # The kernel's names of the open files: what was judged and read is what is loaded.
        with open_file(self._certificate_file) as public, open_secret(self._key_file) as key:
            expires_at = _expiry(
                read_descriptor(public, self._certificate_file), self._certificate_file
            )
            os.lseek(public, 0, os.SEEK_SET)
            try:
                context.load_cert_chain(
                    f"/dev/fd/{public}", f"/dev/fd/{key}", self._refuse_password
                )
            except (ssl.SSLError, OSError) as error:
                raise self._refusal(error) from error
        self._tell(expires_at)
        return context

    def _refuse_password(self) -> NoReturn:
        raise Misconfigured(
            f"The key in {self._key_file} is encrypted: ltzd needs it without a password, "
            "readable by its owner alone."
        )

    def _refusal(self, error: OSError) -> Misconfigured:
        reason = getattr(error, "reason", None) or error.strerror or "unreadable"
        if reason == "KEY_VALUES_MISMATCH":
            return Misconfigured(
                f"The key in {self._key_file} is not that of the certificate in "
                f"{self._certificate_file}."
            )
        return Misconfigured(
            f"The certificate in {self._certificate_file} and the key in {self._key_file} "
            f"cannot be used: {str(reason).replace('_', ' ').lower()}."
        )

    def _tell(self, expires_at: datetime) -> None:
        telemetry.CERTIFICATE_EXPIRY.labels(self._server).set(expires_at.timestamp())
        facts = {"server": self._server, "expires_at": iso(expires_at)}
        if (expires_at - datetime.now(UTC)).total_seconds() < SOON_SECONDS:
            log.warning("tls.certificate_expires_soon", **facts)
        else:
            log.info("tls.certificate_loaded", **facts)


def _new_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _expiry(pem: bytes, path: Path) -> datetime:
    """Of the first certificate, the server's. Raises Misconfigured if it is not in force."""
    try:
        certificate = x509.load_pem_x509_certificates(pem)[0]
    except ValueError as error:
        raise Misconfigured(f"{path} holds no certificate in PEM.") from error
    now = datetime.now(UTC)
    begins_at, expires_at = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= expires_at:
        raise Misconfigured(f"The certificate in {path} expired at {iso(expires_at)}: renew it.")
    if now < begins_at:
        raise Misconfigured(f"The certificate in {path} is valid only from {iso(begins_at)} on.")
    return expires_at
