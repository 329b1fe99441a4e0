"""The TXT record by which a domain says whose it is, and which domains can have one (spec 5).

    _ltz.shop.example  TXT  "brand_id=0x…;api_key=…"

Fields stand in any order, in any letter case but the key's, with or without spaces around them;
further fields are of no concern here. The key is the brand's API key or, since a TXT record is
public, better its verification token.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from publicsuffixlist import PublicSuffixList

from ltzd.values import Address, address_of

LABEL: Final = "_ltz"

_BRAND_ID = re.compile(r"0x[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class DomainRecord:
    """What a record claims; whether it is true, `is_key_among` tells."""

    brand: Address
    key: str = field(repr=False)


def record_name(domain: str) -> str:
    """Where the record of a domain stands; it may be longer than a name can be."""
    return f"{LABEL}.{domain}"


def parse_record(text: str) -> DomainRecord | None:
    """None for what is no record of ours, such as one that says a field twice."""
    fields: dict[str, str] = {}
    for part in text.split(";"):
        name, _, value = part.partition("=")
        name = name.strip().lower()
        if name in fields:
            return None
        if name:
            fields[name] = value.strip()
    brand, key = fields.get("brand_id", "").lower(), fields.get("api_key", "")
    if not key or not _BRAND_ID.fullmatch(brand):
        return None
    return DomainRecord(address_of(brand), key)


def digest_of(key: str) -> bytes:
    """What is compared of a key: of API keys nothing else is known."""
    return hashlib.sha256(key.encode()).digest()


def is_key_among(key: str, digests: Iterable[bytes]) -> bool:
    """Whether one of the digests is this key's; takes the same time for each."""
    given = digest_of(key)
    is_there = False
    for digest in digests:
        is_there |= hmac.compare_digest(given, digest)
    return is_there


def refuse_public_suffix(domain: str) -> None:
    """Raises ValueError for a name that nobody registers, such as co.uk, com or localhost.

    A last label that the list does not know, such as example's, counts as one.
    """
    if _suffixes().is_public(domain):
        raise ValueError("must be a name below a public suffix, such as shop.example")


@cache
def _suffixes() -> PublicSuffixList:
    """Reading the list that the package brings takes a moment."""
    return PublicSuffixList()
