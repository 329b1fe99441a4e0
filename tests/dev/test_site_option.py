"""`ltzd dev --site-url` takes a site on this machine, and no other."""

import pytest

from ltzd.dev.main import check_site_url
from ltzd.errors import Misconfigured


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080",
        "http://127.0.0.1:8080/blog",
        "http://localhost/",
        "http://[::1]:81",
    ],
)
def test_a_site_on_this_machine_is_taken(url: str) -> None:
    check_site_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example",
        "http://10.0.0.1",
        "http://127.0.0.1@shop.example",
        "http://127.0.0.1:99999",
        "http://127.0.0.1/?x=1",
        "http://127.0.0.1/#x",
        "http://127.0.0.1/{host}",
        "ftp://127.0.0.1",
        "127.0.0.1:8080",
        "",
    ],
)
def test_a_site_elsewhere_or_no_site_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="--site-url must be the URL of a site on this machine"):
        check_site_url(url)
