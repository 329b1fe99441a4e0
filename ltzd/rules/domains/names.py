"""Names of hosts: their normal form, and whether a brand's configuration covers one.

The normal form is lower case, ASCII (IDNA A-labels), without a final dot.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

import idna

MAX_LENGTH = 253
MAX_URL_LENGTH = 2048
_MAX_CACHED_LENGTH = 256
"""Longer URLs are parsed at each call: a cache of them could grow to 128 MiB."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@lru_cache(maxsize=16_384)
def normal_domain(text: str) -> str:
    """The normal form of a domain. Raises ValueError, with the reason, for any other text."""
    _refuse_more_than_a_name(text)
    if len(text) > MAX_LENGTH:
        raise ValueError(f"must have at most {MAX_LENGTH} characters")
    name = _in_ascii(text).removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError("must be a name, not an IP address")
    for label in labels:
        _check_label(label)
    return name


def url_host(url: str) -> str:
    """The host of an http or https URL, IP addresses too. Raises ValueError with the reason."""
    if len(url) > MAX_URL_LENGTH:
        raise ValueError(f"must have at most {MAX_URL_LENGTH} characters")
    return _cached_host(url) if len(url) <= _MAX_CACHED_LENGTH else _host_of(url)


def _host_of(url: str) -> str:
    # Browsers and urlsplit read these differently, so the host would be ambiguous.
    if "\\" in url or " " in url or not url.isprintable():
        raise ValueError("must not hold spaces, control characters or backslashes")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a valid URL") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("must be an http or https URL")
    if not host or "@" in parts.netloc:
        raise ValueError("must be a URL with a host and without a user name")
    return host if is_ip_address(host) else normal_domain(host)


_cached_host = lru_cache(maxsize=16_384)(_host_of)


def is_ip_address(host: str) -> bool:
    """Also in the short forms that browsers understand, such as `127.1`."""
    return ":" in host or _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None


def event_domain(domain: str | None, source_url: str | None, origin: str | None) -> str | None:
    """Spec 4.1 rule 1: the domain field, else the source URL's host, else the Origin's.

    The first that is present counts. Returns None if it names no domain.
    """
    try:
        if domain is not None:
            return normal_domain(domain)
        if source_url is not None:
            return url_host(source_url)
        return None if origin is None else url_host(origin)
    except ValueError:
        return None


def is_authorized(domain: str, domains: Collection[str]) -> bool:
    """Whether `domain` is one of `domains` or a subdomain of one; all in normal form."""
    name = domain
    while name:
        if name in domains:
            return True
        name = name.partition(".")[2]
    return False


def _refuse_more_than_a_name(text: str) -> None:
    if not text:
        raise ValueError("must not be empty")
    if "://" in text:
        raise ValueError("must be a name without a scheme")
    if any(character in text for character in "/\\?#@"):
        raise ValueError("must be a name without a path or user name")
    if text.count(":") > 1:
        raise ValueError("must be a name, not an IP address")
    if ":" in text:
        raise ValueError("must be a name without a port")
    if "*" in text:
        raise ValueError("must be a name without a wildcard")


def _in_ascii(text: str) -> str:
    if text.isascii():
        return text.lower()
    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except idna.IDNAError:
        raise ValueError("must be a valid international domain name") from None


def _check_label(label: str) -> None:
    if not _LABEL.fullmatch(label):
        raise ValueError(
            "must be a valid domain: labels of 1 to 63 letters, digits and inner hyphens"
        )
    if label.startswith("xn--"):
        try:
            idna.ulabel(label)
        except UnicodeError:
            raise ValueError("must be a valid international domain name") from None
