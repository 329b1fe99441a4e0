"""The certificate of a server that serves TLS itself, and its renewal without a restart.

A listener keeps one SSLContext for its whole life. The SNI callback, which OpenSSL also calls for
clients that name no server, gives each handshake the newest context. An open connection keeps the
context of its handshake, so a renewal does not affect it. Certificate and key are loaded together
into a new context, which takes effect whole or not at all.

TLS 1.2 or newer, HTTP/1.1 only, no renegotiation.
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

EXPIRY_WARNING_SECONDS = 14 * 86_400
"""A certificate closer to its expiry than this is logged as a warning: its renewal has failed."""


class ServerCertificate:
    """The certificate of one server, `public` or `admin`."""

    def __init__(self, server: str, certificate_file: Path, key_file: Path) -> None:
        """Raises Misconfigured unless the certificate is valid now and the key belongs to it."""
        self._server = server
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._newest = self.context = self._load()
        self.context.sni_callback = self._select_newest

    @property
    def server(self) -> str:
        return self._server

    @property
    def expires_at(self) -> datetime:
        """The expiry of the certificate that new connections get."""
        return self._expires_at

    def renew(self) -> None:
        """Load the files for new connections. Keeps the old certificate if they are not usable."""
        try:
            self._newest = self._load()
        except Misconfigured as error:
            telemetry.CERTIFICATE_RENEWALS.labels(self._server, "refused").inc()
            log.error("tls.not_renewed", server=self._server, reason=error.message)
        else:
            telemetry.CERTIFICATE_RENEWALS.labels(self._server, "renewed").inc()

    def _select_newest(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self._newest

    def _load(self) -> ssl.SSLContext:
        context = _new_context()
        # /dev/fd names the open files, so that the files checked are the files loaded.
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
        self._expires_at = expires_at
        self._report(expires_at)
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
                f"The key in {self._key_file} does not belong to the certificate in "
                f"{self._certificate_file}."
            )
        return Misconfigured(
            f"The certificate in {self._certificate_file} and the key in {self._key_file} "
            f"cannot be used: {str(reason).replace('_', ' ').lower()}."
        )

    def _report(self, expires_at: datetime) -> None:
        telemetry.CERTIFICATE_EXPIRY.labels(self._server).set(expires_at.timestamp())
        facts = {"server": self._server, "expires_at": iso(expires_at)}
        if (expires_at - datetime.now(UTC)).total_seconds() < EXPIRY_WARNING_SECONDS:
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
    """Expiry of the first certificate, the server's. Raises Misconfigured unless it is valid."""
    try:
        certificate = x509.load_pem_x509_certificates(pem)[0]
    except ValueError as error:
        raise Misconfigured(f"{path} contains no certificate in PEM format.") from error
    now = datetime.now(UTC)
    begins_at, expires_at = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= expires_at:
        raise Misconfigured(f"The certificate in {path} expired at {iso(expires_at)}: renew it.")
    if now < begins_at:
        raise Misconfigured(f"The certificate in {path} is not valid before {iso(begins_at)}.")
    return expires_at
