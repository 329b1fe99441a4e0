"""The TLS certificates of this process's servers, loaded at start and renewed on SIGHUP."""

import ssl
from typing import Self

import msgspec
import structlog

from ltzd.daemon.settings.listener import ListenerSettings
from ltzd.daemon.settings.settings import Settings
from ltzd.http.tls import ServerCertificate

log = structlog.get_logger()


class Certificates(msgspec.Struct, frozen=True):
    """The certificates of both servers. A server of plain HTTP has no certificate."""

    public: ServerCertificate | None = None
    admin: ServerCertificate | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Raises Misconfigured."""
        is_public = "http" in settings.roles
        return cls(
            public=_certificate("public", settings.http) if is_public else None,
            admin=_certificate("admin", settings.admin),
        )

    def renew(self) -> None:
        """Read the files again. A failure is logged and keeps the old certificate; never raises."""
        certificates = [each for each in (self.public, self.admin) if each is not None]
        if not certificates:
            log.info("tls.nothing_to_renew")
        for certificate in certificates:
            certificate.renew()


def tls_context(certificate: ServerCertificate | None) -> ssl.SSLContext | None:
    return None if certificate is None else certificate.context


def _certificate(server: str, listener: ListenerSettings) -> ServerCertificate | None:
    if listener.tls_certificate_file is None or listener.tls_key_file is None:
        return None
    return ServerCertificate(server, listener.tls_certificate_file, listener.tls_key_file)


NO_CERTIFICATES = Certificates()
