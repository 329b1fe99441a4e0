"""Self-signed TLS certificates in tests, and what a client saw of one."""

import asyncio
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.secret_files import write_secret

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: str
    key: str
    der: bytes

    def write(self, folder: Path) -> tuple[Path, Path]:
        """As `tls.crt`, which all may read, and `tls.key`."""
        certificate, key = folder / "tls.crt", folder / "tls.key"
        certificate.write_text(self.certificate)
        write_secret(key, self.key)
        return certificate, key


def a_pair(
    begins: timedelta = -DAY, ends: timedelta = 90 * DAY, password: bytes | None = None
) -> Pair:
    """For 127.0.0.1, signed with its own key; the times are counted from now."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, uuid4().hex)])
    local = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(local, critical=False)
        .sign(key, hashes.SHA256())
    )
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        pem.decode(),
        certificate.public_bytes(serialization.Encoding.DER),
    )


def trusting(*pairs: Pair) -> ssl.SSLContext:
    """A client that believes these certificates and no others."""
    return ssl.create_default_context(cadata="".join(pair.certificate for pair in pairs))


async def served_at(port: int, **changes: object) -> tuple[bytes, str, str | None]:
    """Certificate, TLS version and protocol that a new connection is served.

    `changes` are attributes of the client's context. Raises ssl.SSLError and OSError.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    for name, value in changes.items():
        setattr(context, name, value)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="")
    try:
        connection = writer.get_extra_info("ssl_object")
        return (
            connection.getpeercert(binary_form=True),
            connection.version(),
            connection.selected_alpn_protocol(),
        )
    finally:
        writer.close()
