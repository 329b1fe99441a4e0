"""Domains: the normal form, and matches of whole labels only."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.domains.names import event_domain, is_authorized, normal_domain, url_host

LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True).filter(
    lambda label: not label.startswith("xn--")
)
DOMAINS = st.builds(lambda labels: ".".join([*labels, "example"]), st.lists(LABELS, max_size=4))


@pytest.mark.parametrize(
    ("given_text", "normal"),
    [
        ("shop.example", "shop.example"),
        ("SHOP.Example", "shop.example"),
        ("shop.example.", "shop.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("shop。example", "shop.example"),
        ("localhost", "localhost"),
        ("a" * 63 + ".example", "a" * 63 + ".example"),
        ("r4---sn.example", "r4---sn.example"),
        (f"{'abcdefg.' * 31}abcde", f"{'abcdefg.' * 31}abcde"),  # 253 characters
    ],
)
def test_a_domain_has_one_normal_form(given_text: str, normal: str) -> None:
    assert normal_domain(given_text) == normal


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("https://shop.example", "scheme"),
        ("shop.example/path", "path"),
        ("shop.example?x", "path"),
        ("user@shop.example", "user name"),
        ("shop.example\\x", "path"),
        ("shop.example:443", "port"),
        ("*.shop.example", "wildcard"),
        ("127.0.0.1", "IP address"),
        ("127.1", "IP address"),
        ("0x7f000001", "IP address"),
        ("2130706433", "IP address"),
        ("\uff11\uff12\uff17.0.0.1", "IP address"),
        ("::1", "IP address"),
        ("[::1]", "IP address"),
        (" shop.example", "valid domain"),
        ("shop..example", "valid domain"),
        (".example", "valid domain"),
        ("-shop.example", "valid domain"),
        ("shop-.example", "valid domain"),
        ("my_shop.example", "valid domain"),
        ("a" * 64 + ".example", "valid domain"),
        ("xn--.example", "valid"),
        ("xn--a-ecp.ru--\u00fc", "international"),
        ("\u0378.example", "international"),
        (".".join(["abcdefg"] * 32), "253"),
        (f"{'abcdefg.' * 31}abcdef", "253"),
        ("xn--0.example", "international"),
        ("xn--ls8h.example", "international"),
        ("ü" * 60 + "." + ".".join(["übcdefg"] * 20) + ".example", "international"),
        ("shop.example\x00", "valid domain"),
    ],
)
def test_a_malformed_domain_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        normal_domain(text)


@given(st.text(max_size=300))
def test_any_text_is_a_normal_domain_or_a_value_error(text: str) -> None:
    try:
        name = normal_domain(text)
    except ValueError:
        return
    assert normal_domain(name) == name
    assert name.isascii()
    assert name == name.lower()
    assert len(name) <= 253


@given(DOMAINS, DOMAINS)
def test_only_the_domain_and_its_subdomains_are_authorized(domain: str, other: str) -> None:
    assert is_authorized(domain, (domain,))
    assert is_authorized(f"sub.{domain}", ("else.test", domain))
    assert not is_authorized(f"evil{domain}", (domain,))
    assert not is_authorized(f"{domain}.test", (domain,))
    naive = domain == other or domain.endswith("." + other)
    assert is_authorized(domain, (other,)) == naive
    assert is_authorized(domain, frozenset((other,))) == naive


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://shop.example/welcome?x=1#y", "shop.example"),
        ("http://SHOP.example:8443", "shop.example"),
        ("https://bücher.example/", "xn--bcher-kva.example"),
        ("http://127.0.0.1:8000/", "127.0.0.1"),
        ("http://[::1]:8000/", "::1"),
        ("https://shop.example/".ljust(2048, "x"), "shop.example"),
    ],
)
def test_a_url_has_its_host(url: str, host: str) -> None:
    assert url_host(url) == host


@pytest.mark.parametrize(
    "url",
    [
        "",
        "null",
        "shop.example",
        "//shop.example",
        "ftp://shop.example",
        "javascript:alert(1)",
        "https://",
        "https:///path",
        "https://user@shop.example",
        "https://evil.test\\@shop.example",
        "https://shop.example:99999",
        "https://[::1",
        "https://shop.example/a b",
        "https://shop.example/\n",
        "https://%73hop.example",
        "https://shop.example/".ljust(2049, "x"),
    ],
)
def test_a_url_that_is_not_http_or_has_no_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        url_host(url)


@pytest.mark.parametrize(
    ("sources", "domain"),
    [
        (("a.example", "https://b.example", "https://c.example"), "a.example"),
        ((None, "https://b.example", "https://c.example"), "b.example"),
        ((None, None, "https://c.example"), "c.example"),
        ((None, None, None), None),
        (("", "https://b.example", "https://c.example"), None),
        ((None, "nonsense", "https://c.example"), None),
        ((None, None, "null"), None),
    ],
)
def test_the_first_source_that_is_present_names_the_domain(
    sources: tuple[str | None, str | None, str | None], domain: str | None
) -> None:
    assert event_domain(*sources) == domain


def test_an_ip_address_in_a_source_url_is_no_subdomain() -> None:
    host = event_domain(None, "https://10.0.0.1/", None)

    assert host == "10.0.0.1"
    assert not is_authorized(host, ("shop.example",))


def test_long_urls_are_not_kept() -> None:
    """A stranger sends as many as there is room for: each has up to 8 KB."""
    tracemalloc.start()
    try:
        for number in range(1_000):
            url_host(f"https://shop.example/{number}/" + "\U0001f600" * 2_000)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 4e6  # `urlsplit` keeps 128
