"""The settings of an address that ltzd listens on.

An address that other machines can reach needs TLS, or `plain_http` as an explicit choice.
"""

from typing import Self

from pydantic import model_validator

from ltzd.daemon.settings.section import Section
from ltzd.daemon.settings.value_types import Port, ReadableFile, SecretFile, is_loopback


class ListenerSettings(Section):
    host: str = "127.0.0.1"
    port: Port
    tls_certificate_file: ReadableFile | None = None
    """PEM, the server's own certificate first. With its key the address speaks TLS."""
    tls_key_file: SecretFile | None = None
    plain_http: bool = False
    """Allow unencrypted HTTP on an address that is not a loopback address."""

    @model_validator(mode="after")
    def _has_a_whole_certificate_or_none(self) -> Self:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("give both tls_certificate_file and tls_key_file, or neither")
        if self.has_tls and self.plain_http:
            raise ValueError("give either plain_http or tls_certificate_file and tls_key_file")
        return self

    @property
    def has_tls(self) -> bool:
        return self.tls_certificate_file is not None

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines could read the traffic of this address."""
        return not is_loopback(self.host) and not self.has_tls
