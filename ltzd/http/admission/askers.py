"""Finds the brand, the caller and the urgency of a request, from its head and its body's beginning.

Nothing is verified here: a caller may name another caller's brand, and then uses that brand's
share, in turns by address. A brand that does not exist counts as none.
"""

import re
from collections.abc import Callable, Mapping

import msgspec

from ltzd.errors import SiteUnknown
from ltzd.http.admission.gate import Asker
from ltzd.http.constraints import handlers as constraints
from ltzd.http.event_handler import domain_verification
from ltzd.http.payments import handlers as payments
from ltzd.http.perk_charges import handlers as perk_charges
from ltzd.http.pregeneration import handlers as pregeneration
from ltzd.http.relayer import handlers as relayer
from ltzd.http.services import HttpPolicy, Services
from ltzd.http.site_plugin import errors as site_endpoints
from ltzd.http.site_plugin import links as site_links
from ltzd.http.site_plugin.handlers import host_name
from ltzd.http.surface import API_PREFIX
from ltzd.rules.admission import Urgency

BODY_BYTES = 2_048
"""The part of a body in which its brand is looked for."""

_BRAND = r"(0x[0-9a-f]{40})"
_IN_BODY: Mapping[str, "re.Pattern[bytes]"] = {
    name: re.compile(rf'"{name}"\s*:\s*"{_BRAND}"'.encode()) for name in ("brandId", "brand_id")
}
_IN_QUERY = re.compile(rf"(?:\A|&)brandId={_BRAND}(?=&|\Z)")
_BRAND_ID = re.compile(_BRAND)
_NAMELESS = "other"

Header = Callable[[str], str | None]
"""The header of this name, in lower case, or None."""
_Brand = Callable[[str, Header, bytes], str | None]
"""The brand that a request names in its query, headers or body."""


class _Endpoint(msgspec.Struct, frozen=True):
    """An endpoint. `surface` is the party of its callers who name no brand."""

    surface: str
    urgency: Urgency
    brand: _Brand


class Askers:
    def __init__(self, services: Services, policy: HttpPolicy) -> None:
        self._is_known_brand = services.is_known_brand
        self._members = services.site.members
        self._endpoints = self._all_endpoints(policy)

    def _all_endpoints(self, policy: HttpPolicy) -> Mapping[str, _Endpoint]:
        quick, patient, first = Urgency.QUICK, Urgency.PATIENT, Urgency.FIRST
        events, in_brand_id = "event_handler", _in_body("brandId")
        always = _Endpoint(events, Urgency.ALWAYS, _nowhere)
        signed = _Endpoint("perk_charges", quick, _in_header)
        invalidation = _Endpoint("constraints", quick, _nowhere)
        endpoints = {
            f"{API_PREFIX}/manual-event": _Endpoint(events, quick, in_brand_id),
            f"{API_PREFIX}/bulk-events": _Endpoint(events, quick, in_brand_id),
            f"{API_PREFIX}/event-config": _Endpoint(events, quick, _in_query),
            f"{API_PREFIX}/health": always,
            f"{API_PREFIX}/diagnostic": always,
            f"{API_PREFIX}/debug": always,
            domain_verification.PATH: _Endpoint(events, quick, _nowhere),
            payments.CREATE_CHECKOUT: _Endpoint("payments", quick, in_brand_id),
            payments.PAYMENT_MINT: _Endpoint("payments", first, _nowhere),
            payments.PAYMENT_WEBHOOK: _Endpoint("payments", first, _nowhere),
            pregeneration.PATH: _Endpoint("pregeneration", quick, _in_body("brand_id")),
            relayer.PATH: _Endpoint("relayer", patient, _nowhere),
            site_links.PATH: _Endpoint("site_links", quick, _nowhere),
            perk_charges.REDEEM: _Endpoint("perk_charges", patient, _in_header),
            perk_charges.STATUS: signed,
            perk_charges.HOLDERS: signed,
            constraints.PATH: invalidation,
            constraints.KEYED_PATH: invalidation,
        }
        site = _Endpoint("site_plugin", quick, self._of_site)
        for name in site_endpoints.ENDPOINT_ERRORS:
            endpoints[f"{policy.site_base}/{name}"] = site
        redeem = _Endpoint("site_plugin", patient, self._of_site)
        return endpoints | {f"{policy.site_base}/{site_endpoints.REDEEM}": redeem}

    def is_static(self, path: str) -> bool:
        """Whether this is the whole path of an endpoint."""
        return path in self._endpoints

    def of(
        self, method: str, path: str, query: str, header: Header, body: bytes, address: str
    ) -> Asker:
        """`body` is the beginning of the body, `address` the limit key of the client."""
        endpoint = self._endpoints.get(path) or _outcome(method, path)
        if method == "OPTIONS":
            return Asker(Urgency.ALWAYS, _NAMELESS, address)
        brand = endpoint.brand(query, header, body)
        if brand is None or not self._is_known_brand(brand):
            return Asker(endpoint.urgency, endpoint.surface, address)
        return Asker(endpoint.urgency, brand, address)

    def _of_site(self, _query: str, header: Header, _body: bytes) -> str | None:
        try:
            return self._members.brand_of(host_name(header("host") or "")).id
        except SiteUnknown:
            return None


def _outcome(method: str, path: str) -> _Endpoint:
    """The reads of outcomes name what they ask for in their paths."""
    if method in {"GET", "HEAD"}:
        if path.startswith(f"{relayer.PATH}/"):
            return _Endpoint("relayer", Urgency.FIRST, _nowhere)
        if path.startswith(f"{API_PREFIX}/events/"):
            return _Endpoint("event_handler", Urgency.FIRST, _nowhere)
    return _Endpoint(_NAMELESS, Urgency.QUICK, _nowhere)


def _nowhere(_query: str, _header: Header, _body: bytes) -> str | None:
    return None


def _in_body(name: str) -> _Brand:
    pattern = _IN_BODY[name]

    def brand(_query: str, _header: Header, body: bytes) -> str | None:
        match = pattern.search(body)
        return None if match is None else match[1].decode()

    return brand


def _in_header(_query: str, header: Header, _body: bytes) -> str | None:
    brand = header("x-ltz-brand-id")
    return brand if brand is not None and _BRAND_ID.fullmatch(brand) else None


def _in_query(query: str, _header: Header, _body: bytes) -> str | None:
    match = _IN_QUERY.search(query)
    return None if match is None else match[1]
