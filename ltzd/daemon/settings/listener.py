"""The settings of an address that ltzd listens on.

An address that other machines can reach needs TLS, or `plain_http` as an explicit choice.
"""

from typing import Final, Self

from pydantic import model_validator

from ltzd.daemon.settings.section import Section
from ltzd.daemon.settings.value_types import Port, ReadableFile, SecretFile, is_loopback

_ANY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened on


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

    def shares_its_port_with(self, other: "ListenerSettings") -> bool:
        """Whether both cannot listen at once. A port 0 is any free one."""
        hosts = {self.host, other.host}
        return self.port == other.port != 0 and (len(hosts) == 1 or not hosts.isdisjoint(_ANY_HOST))

    @property
    def has_tls(self) -> bool:
        return self.tls_certificate_file is not None

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines could read the traffic of this address."""
        return not is_loopback(self.host) and not self.has_tls
