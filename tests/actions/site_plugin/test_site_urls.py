"""Where the site of a brand is, as its file declares it."""

import pytest
from pydantic import ValidationError

from ltzd.actions.site_plugin.members import SitePolicy
from ltzd.rules.brands.configuration import Site
from tests.support.surfaces.event_action import a_brand

POLICY = SitePolicy("https://{host}", "wp-json")
FOLDER = "https://Shop.example/blog/"


def a_site(**given: object) -> Site:
    return Site.model_validate({"hosts": ["shop.example", "other.example"], **given})


def test_a_site_in_a_folder_is_asked_there_and_another_host_at_its_root() -> None:
    brand = a_brand(site=a_site(url=FOLDER, rest_prefix="api/rest"))
    assert POLICY.base_url_of(brand, "shop.example") == "https://Shop.example/blog"
    assert POLICY.base_url_of(brand, "other.example") == "https://other.example"
    assert POLICY.rest_prefix_of(brand) == "api/rest"


def test_a_site_is_served_under_its_own_path_with_and_without_the_folder() -> None:
    brand = a_brand(site=a_site(url=FOLDER, rest_prefix="api/rest", namespace="points"))
    assert POLICY.api_paths_of(brand, "shop.example") == (
        "/blog/api/rest/points/v1",
        "/api/rest/points/v1",
    )
    assert POLICY.api_paths_of(brand, "other.example") == ("/api/rest/points/v1",)
    assert POLICY.api_paths_of(a_brand(site=a_site()), "other.example") == ("/wp-json/loyalty/v1",)
    assert POLICY.api_paths_of(a_brand(), "other.example") == ()


def test_without_a_url_of_its_own_the_settings_decide() -> None:
    brand = a_brand(site=a_site())
    assert POLICY.base_url_of(brand, "shop.example") == "https://shop.example"
    assert POLICY.rest_prefix_of(brand) == "wp-json"


@pytest.mark.parametrize(
    "url",
    [
        "http://shop.example",
        "https://attacker.example/shop.example",
        "https://www.shop.example",
        "https://shop.example@attacker.example",
        "https://user@shop.example",
        "https://shop.example/blog?x=1",
        "https://shop.example/blog#top",
        "https://shop.example/../blog",
        "https://shop.example//blog",
        "https://shop.example\\@attacker.example",
        "https://",
        "",
    ],
)
def test_log_ins_are_sent_to_a_host_of_the_brand_by_https_or_to_nobody(url: str) -> None:
    with pytest.raises(ValidationError):
        a_site(url=url)


@pytest.mark.parametrize("prefix", ["", "/wp-json", "wp-json/", "a//b", "..", "a?b", "a b"])
def test_a_rest_prefix_is_a_path_and_nothing_else(prefix: str) -> None:
    with pytest.raises(ValidationError):
        a_site(rest_prefix=prefix)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "a?"])
def test_a_namespace_is_a_name_and_nothing_else(name: str) -> None:
    with pytest.raises(ValidationError):
        a_site(namespace=name)
