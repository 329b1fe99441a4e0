"""The TXT record by which a domain names its brand, and the domains that can have one (spec 5).

    _ltz.shop.example  TXT  "brand_id=0x…;api_key=…"

Fields may come in any order, with or without spaces around them, and only the key's letter case
counts. Further fields are ignored. The key is the brand's API key or, better, its verification
token, since a TXT record is public.
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from publicsuffixlist import PublicSuffixList

from ltzd.values import BRAND_ID, Address, address_of

LABEL: Final = "_ltz"


@dataclass(frozen=True, slots=True)
class DomainRecord:
    """The content of a record; `is_key_among` checks its key."""

    brand: Address
    key: str = field(repr=False)


def record_name(domain: str) -> str:
    """The name of the domain's record, which may be too long for a name."""
    return f"{LABEL}.{domain}"


def parse_record(text: str) -> DomainRecord | None:
    """Return None for another kind of record, and for a record with a repeated field."""
    fields: dict[str, str] = {}
    for part in text.split(";"):
        name, _, value = part.partition("=")
        name = name.strip().lower()
        if name in fields:
            return None
        if name:
            fields[name] = value.strip()
    brand, key = fields.get("brand_id", "").lower(), fields.get("api_key", "")
    if not key or not BRAND_ID.fullmatch(brand):
        return None
    return DomainRecord(address_of(brand), key)


def digest_of(key: str) -> bytes:
    """The digest by which keys are compared: only the digests of API keys are stored."""
    return hashlib.sha256(key.encode()).digest()


def is_key_among(key: str, digests: Iterable[bytes]) -> bool:
    """Whether one of the digests is this key's, in constant time for each."""
    given = digest_of(key)
    is_there = False
    for digest in digests:
        is_there |= hmac.compare_digest(given, digest)
    return is_there


def refuse_public_suffix(domain: str) -> None:
    """Raises ValueError for a public suffix, such as co.uk, com or localhost.

    An unknown last label, such as `example`, counts as a public suffix.
    """
    if _suffixes().is_public(domain):
        raise ValueError("must be a name below a public suffix, such as shop.example")


@cache
def _suffixes() -> PublicSuffixList:
    """Cached, since reading the package's list takes a moment."""
    return PublicSuffixList()
