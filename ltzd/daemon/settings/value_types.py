"""The types of the settings' values, with their checks.

Every check raises ValueError with the end of a sentence such as "must be a valid URL", which never
holds the value of a secret.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from ltzd.errors import Misconfigured
from ltzd.providers.chat import validate_levels_url
from ltzd.providers.oidc.policy import Algorithm
from ltzd.rules.database_urls import each_server
from ltzd.rules.domains.names import is_ip_address
from ltzd.rules.oauth.accounts import OAuthProvider
from ltzd.secret_files import read_checked, read_secret
from ltzd.values import Address, address_of, has_right_case

Role = Literal["http", "operator", "indexer", "deliveries"]
ROLES: tuple[Role, ...] = ("http", "operator", "indexer", "deliveries")

_PATH_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _split(value: object) -> object:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _url(schemes: tuple[str, ...], needs_host: bool = True) -> AfterValidator:
    def check(secret: SecretStr) -> SecretStr:
        _check_url(secret.get_secret_value(), schemes, needs_host)
        return secret

    return AfterValidator(check)


def _check_url(text: str, schemes: tuple[str, ...], needs_host: bool) -> None:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a valid URL") from None
    if parts.scheme not in schemes:
        raise ValueError(
            f"must be a URL that starts with {' or '.join(s + '://' for s in schemes)}"
        )
    if needs_host and not host:
        raise ValueError("must be a URL with a host")


def _database_url(secret: SecretStr) -> SecretStr:
    """Takes several servers, `host:port,host:port`, of which `target_session_attrs` chooses."""
    try:
        servers = each_server(secret.get_secret_value())
    except ValueError:
        raise ValueError("must be a valid URL") from None
    for url in servers:
        _check_url(url, ("postgresql", "postgres"), needs_host=len(servers) > 1)
    return secret


def _redis_url(secret: SecretStr) -> SecretStr:
    """Refuse a URL that the client would read differently and so use another database."""
    parts = urlsplit(secret.get_secret_value())
    if parts.scheme == "unix" and len(parts.path) < 2:
        raise ValueError("must name a socket, such as unix:///run/redis.sock?db=0")
    if parts.scheme != "unix" and not re.fullmatch(r"/?[0-9]*", parts.path):
        raise ValueError(
            "may have only a database number as its path, such as redis://cache.internal/0"
        )
    return secret


def _web_url(text: str) -> str:
    _check_url(text, ("https", "http"), needs_host=True)
    return text.rstrip("/")


def _signer_url(text: str) -> str:
    _check_url(text, ("https", "http"), needs_host=True)
    parts = urlsplit(text)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must be a URL such as https://signer.internal:9000, without a query")
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError("must be an https URL, or an http URL of a loopback address")
    return text.rstrip("/")


def _issuer_url(text: str) -> str:
    """Return the URL unchanged, because it must equal the tokens' `iss` exactly."""
    _check_url(text, ("https", "http"), needs_host=True)
    parts = urlsplit(text)
    if parts.query or parts.fragment or "@" in parts.netloc or not text.isprintable():
        raise ValueError("must be an issuer such as https://login.example, without a query")
    return text


def _levels_url(text: str) -> str:
    _check_url(text, ("https", "http"), needs_host=True)
    return validate_levels_url(text)


def _site_url(text: str) -> str:
    _check_url(text.replace("{host}", "site.example"), ("https", "http"), needs_host=True)
    if urlsplit(text).query or "{" in text.replace("{host}", ""):
        raise ValueError("must be a URL such as https://{host}, without a query")
    return text.rstrip("/")


def _path_name(text: str) -> str:
    if not _PATH_NAME.fullmatch(text):
        raise ValueError("must be one part of a path: letters, digits, _ and -")
    return text


def _origin(text: str) -> str:
    _check_url(text, ("https", "http"), needs_host=True)
    parts = urlsplit(text)
    if parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must be an origin such as https://app.example, without a path")
    return text.lower()


def _network(value: object) -> object:
    if isinstance(value, _Network):
        return value
    try:
        # str: a number would be an address to ip_network.
        network = ipaddress.ip_network(str(value).strip())
    except ValueError:
        raise ValueError("must be an address, or a network such as 10.1.0.0/16") from None
    network = _unmapped(network)
    if network.prefixlen == 0:
        raise ValueError("contains every address: name the networks that contain only your proxies")
    return network


def _ip_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        raise ValueError("must be an IP address, such as 10.0.0.53") from None


def _unmapped(network: _Network) -> _Network:
    """The IPv4 network of an IPv4-mapped one, as peers appear on a socket for both families."""
    first = network.network_address
    if isinstance(first, ipaddress.IPv4Address) or first.ipv4_mapped is None:
        return network
    return ipaddress.IPv4Network((first.ipv4_mapped, max(0, network.prefixlen - 96)))


def _address(value: object) -> object:
    if not isinstance(value, str):
        return value
    address = address_of(value)
    if not has_right_case(value):
        raise ValueError("must be an address whose checksum (the letters' case) is right")
    return address


def _readable(path: Path) -> Path:
    """Check a file such as a certificate, which must be private only if it also holds a key."""

    def read() -> bytes:
        file = read_checked(path)
        if b"PRIVATE KEY-----" in file.content and file.exposed is not None:
            raise Misconfigured(file.exposed)
        return file.content

    return _not_empty(path, read)


def _secret(path: Path) -> Path:
    """Check a file that holds a secret or a key: only its owner can read it."""
    return _not_empty(path, lambda: read_secret(path))


def _not_empty(path: Path, read: Callable[[], bytes]) -> Path:
    try:
        content = read()
    except Misconfigured as error:
        raise ValueError(error.message) from None
    if not content.strip():
        raise ValueError(f"{path} is empty")
    return path


def is_loopback(host: str) -> bool:
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def may_reach_this_machine(host: str) -> bool:
    """Whether a host is, or may resolve to, this machine; also for forms such as `127.1`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return is_loopback(host) or is_ip_address(host)
    return address.is_loopback or address.is_unspecified


ReadableFile = Annotated[Path, AfterValidator(_readable)]
SecretFile = Annotated[Path, AfterValidator(_secret)]
Port = Annotated[int, Field(ge=0, le=65_535)]
WebUrl = Annotated[str, AfterValidator(_web_url)]
SignerUrl = Annotated[str, AfterValidator(_signer_url)]
LevelsUrl = Annotated[str, AfterValidator(_levels_url)]
SiteUrl = Annotated[str, AfterValidator(_site_url)]
PathName = Annotated[str, AfterValidator(_path_name)]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(_split)
]
IpAddresses = Annotated[
    tuple[Annotated[str, AfterValidator(_ip_address)], ...], NoDecode, BeforeValidator(_split)
]
Networks = Annotated[
    tuple[Annotated[_Network, BeforeValidator(_network)], ...], NoDecode, BeforeValidator(_split)
]
RedisUrl = Annotated[
    SecretStr, _url(("redis", "rediss", "unix"), needs_host=False), AfterValidator(_redis_url)
]
RpcUrl = Annotated[SecretStr, _url(("https", "http", "wss", "ws"))]
RpcUrls = Annotated[tuple[RpcUrl, ...], NoDecode, BeforeValidator(_split), Field(min_length=1)]
DatabaseUrl = Annotated[SecretStr, AfterValidator(_database_url)]
Roles = Annotated[tuple[Role, ...], NoDecode, BeforeValidator(_split), Field(min_length=1)]
ContractAddress = Annotated[Address, BeforeValidator(_address)]
IssuerUrl = Annotated[str, AfterValidator(_issuer_url)]
ClaimName = Annotated[str, Field(min_length=1)]
ClaimNames = Mapping[OAuthProvider, ClaimName]
Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    NoDecode,
    BeforeValidator(_split),
    Field(min_length=1),
]
Algorithms = Annotated[
    tuple[Algorithm, ...], NoDecode, BeforeValidator(_split), Field(min_length=1)
]
SecretFiles = Annotated[tuple[SecretFile, ...], NoDecode, BeforeValidator(_split)]
