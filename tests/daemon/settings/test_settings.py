"""Settings come from a file and the environment; faults come together and without secrets."""

import os
import re
import shutil
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from ltzd.daemon.main import warn_of_unbounded_gas
from ltzd.daemon.settings.identity import OidcIdentitySettings, VendorIdentitySettings
from ltzd.daemon.settings.settings import RelaySettings, Settings, read_node, read_settings
from ltzd.errors import FileRejected, Misconfigured
from ltzd.rules.database_connections import PoolPolicy
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.operator.top_ups import TopUpPolicy
from ltzd.rules.relayer.gas_budgets import NO_BUDGETS, GasBudgets
from tests.support.secret_files import write_secret

EXAMPLE = Path(__file__).parents[3] / "config" / "ltzd.example.toml"
SHORT = """\
database_url = "postgresql://ltzd:hunter2@db.internal/ltzd"
master_key_file = "{folder}/secret"
[node]
rpc_url = "https://node.example/hunter2"
[contracts]
ltz = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
perk_nft = "0xe7f1725e7734ce288f8367e1bb143e90bb3f0512"
points_sale = "0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0"
business_escrow = "0xcf7ed3acca5a467e9e704c703e8d87f634fb0fc9"
first_block = 7
[operator]
minter_key_file = "{folder}/secret"
relay_key_file = "{folder}/secret"
[identity]
base_url = "https://identity.example/"
app_id = "app"
app_secret = "hunter2"
"""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("LTZD_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_secret(tmp_path / "secret", "hunter2\n")
    return tmp_path


def a_file(folder: Path, text: str = SHORT) -> Path:
    path = folder / "ltzd.toml"
    write_secret(path, text.replace("{folder}", str(folder)))
    return path


def in_http(lines: str) -> str:
    """A short file with these lines in its section [http]."""
    return SHORT.replace("[identity]", f"[http]\n{lines}\n[identity]")


def vendor_of(settings: Settings) -> VendorIdentitySettings:
    assert isinstance(settings.identity, VendorIdentitySettings)
    return settings.identity


def faults_of(path: Path, roles: str | None = None) -> list[str]:
    with pytest.raises(FileRejected) as caught:
        read_settings(path, roles)
    return caught.value.faults


def test_a_short_file_has_the_defaults(folder: Path) -> None:
    settings = read_settings(a_file(folder))

    assert settings.roles == ("http", "operator", "indexer", "deliveries")
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 8000)
    assert settings.admin.port == 9464
    assert settings.admin.token() is None
    assert settings.operator.max_in_flight == 64
    assert settings.operator.max_fee_wei == 100 * 10**9
    assert settings.contracts.ltz.hex() == "5fbdb2315678afecb367f032d93f642f64180aa3"
    assert settings.redis_url is None
    assert settings.old_master_key_files == ()
    vendor = vendor_of(settings)
    assert vendor.kind == "vendor"
    assert vendor.base_url == "https://identity.example"
    assert vendor.secret().get_secret_value() == "hunter2"


def test_files_of_an_editor_on_windows_are_read_as_any_other(folder: Path) -> None:
    """A byte-order mark, and CRLF."""
    write_secret(folder / "secret", "\ufeffhunter2\r\n")
    text = SHORT.replace('app_secret = "hunter2"', 'app_secret_file = "{folder}/secret"')
    file = a_file(folder, text)
    write_secret(file, "\ufeff" + file.read_text().replace("\n", "\r\n"))

    settings = read_settings(file)

    assert settings.http.port == 8000
    assert vendor_of(settings).secret().get_secret_value() == "hunter2"


def test_the_example_is_right(folder: Path) -> None:
    keys = ("master.key", "minter.json", "minter.password", "relay.json", "relay.password")
    for name in (*keys, "identity.secret"):
        shutil.copy(folder / "secret", folder / name)
    text = EXAMPLE.read_text().replace("/etc/ltzd", str(folder))

    settings = read_settings(a_file(folder, text))

    assert settings.http.own_origins == ("https://app.example",)
    assert vendor_of(settings).secret().get_secret_value() == "hunter2"
    settings.refuse_dev_providers()


def test_a_database_may_be_on_several_servers(folder: Path) -> None:
    servers = "one.internal:5432,[::1]:5433/ltzd?target_session_attrs=primary"
    settings = read_settings(a_file(folder, SHORT.replace("db.internal/ltzd", servers)))
    assert settings.database_url.get_secret_value().endswith(servers)


def test_each_role_has_a_bound_of_its_own_for_database_connections(folder: Path) -> None:
    assert read_settings(a_file(folder)).database.policy() == PoolPolicy()
    section = "[database]\nhttp_connections = 30\nhttp_wait_seconds = 2.5\n"
    settings = read_settings(a_file(folder, SHORT.replace("[identity]", f"{section}[identity]")))
    assert settings.database.policy() == PoolPolicy(http=30, http_wait_seconds=2.5)
    for name in ("http", "operator", "indexer", "deliveries"):
        wrong = SHORT.replace("[identity]", f"[database]\n{name}_connections = 1\n[identity]")
        (fault,) = faults_of(a_file(folder, wrong))
        assert f"database.{name}_connections" in fault


def test_gas_budgets_are_told_in_wei(folder: Path) -> None:
    assert read_settings(a_file(folder)).relay.budgets() == NO_BUDGETS
    names = (
        "gas_budget_wei_per_day",
        "total_gas_budget_wei_per_day",
        "brand_gas_budget_wei_per_day",
    )
    section = "[relay]\n" + "".join(f"{name} = {wei}\n" for wei, name in enumerate(names, 5))
    settings = read_settings(a_file(folder, SHORT.replace("[identity]", f"{section}[identity]")))
    assert settings.relay.budgets() == GasBudgets(identity_wei=5, total_wei=6, brand_wei=7)
    for name in names:
        wrong = SHORT.replace("[identity]", f"[relay]\n{name} = -1\n[identity]")
        (fault,) = faults_of(a_file(folder, wrong))
        assert f"relay.{name}" in fault


@pytest.mark.parametrize(
    ("budgets", "warned"),
    [
        ({}, ["relay.gas_budget_wei_per_day", "relay.total_gas_budget_wei_per_day"]),
        ({"gas_budget_wei_per_day": 5}, ["relay.total_gas_budget_wei_per_day"]),
        (
            {"gas_budget_wei_per_day": 5, "total_gas_budget_wei_per_day": 7},
            ["relay.brand_gas_budget_wei_per_day"],
        ),
        (
            {
                "gas_budget_wei_per_day": 5,
                "total_gas_budget_wei_per_day": 7,
                "brand_gas_budget_wei_per_day": 6,
            },
            [],
        ),
    ],
)
def test_a_start_without_a_gas_budget_says_what_that_may_cost(
    folder: Path, budgets: dict[str, int], warned: list[str]
) -> None:
    settings = read_settings(a_file(folder)).model_copy(update={"relay": RelaySettings(**budgets)})
    with capture_logs() as logs:
        warn_of_unbounded_gas(settings)
        warn_of_unbounded_gas(settings.model_copy(update={"roles": ("operator",)}))
    assert [entry["reason"].split(" ")[0] for entry in logs] == warned
    assert all("ether" in entry["reason"] for entry in logs)


def test_nothing_secret_shows(folder: Path) -> None:
    settings = read_settings(a_file(folder))

    assert "hunter2" not in repr(settings) + str(settings)


def test_variables_win_over_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LTZD_HTTP__PORT", "9000")
    monkeypatch.setenv("LTZD_HTTP__OWN_ORIGINS", "https://a.example, https://b.example:8443")
    monkeypatch.setenv("LTZD_ROLES", "http,indexer")
    monkeypatch.setenv("LTZD_REDIS_URL", "redis://cache.internal")
    monkeypatch.setenv("LTZD_IDENTITY__APP_ID", "another")

    settings = read_settings(a_file(folder))

    assert settings.http.port == 9000
    assert settings.http.own_origins == ("https://a.example", "https://b.example:8443")
    assert settings.roles == ("http", "indexer")
    assert settings.redis_url is not None
    vendor = vendor_of(settings)
    assert vendor.app_id == "another"
    assert vendor.base_url == "https://identity.example"


def test_roles_of_the_command_line_win_over_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LTZD_ROLES", "http,indexer")

    assert read_settings(a_file(folder), "indexer").roles == ("indexer",)
    assert faults_of(a_file(folder), "http,nonsense") == [
        "--roles: must be 'http', 'operator', 'indexer' or 'deliveries'"
    ]


def test_settings_made_in_code_read_no_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumped = read_settings(a_file(folder)).model_dump()
    monkeypatch.setenv("LTZD_HTTP__PORT", "9000")

    assert Settings(**dumped).http.port == 8000


def test_settings_survive_being_dumped(folder: Path) -> None:
    text = in_http('proxies_count = 1\ntrusted_proxies = ["10.1.0.0/16"]')
    settings = read_settings(a_file(folder, text))

    assert Settings(**settings.model_dump()).http == settings.http


def test_every_fault_is_told_at_once_with_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LTZD_DATABSE_URL", "postgresql://x")
    monkeypatch.setenv("LTZD_HTTP__PROT", "9000")
    monkeypatch.setenv("LTZD_ADMIN__PORT", "high")
    missing = folder / "none"
    text = (
        SHORT.replace("first_block = 7", "first_block = -7\nthird = 3")
        .replace("https://node", "ftp://node")
        .replace('app_id = "app"\n', "")
        .replace("{folder}/secret", "{folder}/none", 1)
    )

    assert sorted(faults_of(a_file(folder, text))) == sorted(
        [
            "LTZD_DATABSE_URL: unknown variable",
            "LTZD_HTTP__PROT: unknown key",
            "LTZD_ADMIN__PORT: must be a whole number",
            f"ltzd.toml:2: master_key_file: {missing} cannot be read: No such file or directory",
            (
                "ltzd.toml:4: node.rpc_url: must be a URL that starts with https:// or http:// or "
                "wss:// or ws://"
            ),
            "ltzd.toml:10: contracts.first_block: must be at least 0",
            "ltzd.toml:11: contracts.third: unknown key",
            "ltzd.toml:15: identity.app_id: is missing",
        ]
    )


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("[node]", "[nod]", "ltzd.toml:3: nod: unknown key"),
        ("[node]", "x = 1\n[node]", "ltzd.toml:3: x: unknown key"),
        ("postgresql://", "mysql://", "ltzd.toml:1: database_url: must be a URL that starts"),
        ("db.internal/", "a:5432,/", "ltzd.toml:1: database_url: must be a URL with a host"),
        ("db.internal/", "a:5432,b:c/", "ltzd.toml:1: database_url: must be a valid URL"),
        ("0x5FbD", "0x5Fbd", "ltzd.toml:6: contracts.ltz: must be an address whose checksum"),
        ("0x5FbDB2", "0x", "ltzd.toml:6: contracts.ltz: an address has 20 bytes"),
        ("0x5FbDB2", "0xzzzzz2", "ltzd.toml:6: contracts.ltz:"),
        ("points_sale =", "# points_sale =", "ltzd.toml:5: contracts.points_sale: is missing"),
        (
            "0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0",
            "0xe7f1725e7734ce288f8367e1bb143e90bb3f0512",
            "ltzd.toml:5: contracts: two contracts cannot have one address",
        ),
        ("[identity]", "max_fee_gwei = 101\n[identity]", "ltzd.toml:14: operator.max_fee_gwei:"),
        ("[identity]", "max_fee_gwei = nan\n[identity]", "ltzd.toml:14: operator.max_fee_gwei:"),
        ("[contracts]", "final_depth = 0\n[contracts]", "ltzd.toml:5: node.final_depth:"),
        ("[contracts]", "final_seconds = -1\n[contracts]", "ltzd.toml:5: node.final_seconds:"),
        ("[identity]", "min_tip_gwei = -1\n[identity]", "ltzd.toml:14: operator.min_tip_gwei:"),
        (
            "[identity]",
            "max_fee_gwei = 20\nmin_tip_gwei = 25\n[identity]",
            "ltzd.toml:11: operator: min_tip_gwei is above max_fee_gwei",
        ),
        ('app_secret = "hunter2"', "", "ltzd.toml:14: identity: give either app_secret or"),
        (
            'app_secret = "hunter2"',
            'app_secret = "hunter2"\napp_secret_file = "{folder}/secret"',
            "ltzd.toml:14: identity: give either app_secret or",
        ),
        (
            "[identity]",
            '[http]\nown_origins = ["https://a.example/x"]\n[identity]',
            "ltzd.toml:15: http.own_origins[0]: must be an origin",
        ),
        ('minter_key_file = "{folder}/secret"', "", "ltzd.toml: operator.minter_key_file is"),
        ('relay_key_file = "{folder}/secret"', "", "ltzd.toml: operator.relay_key_file is"),
        ("[node]", "[node", "ltzd.toml: no valid TOML:"),
        (
            "[identity]",
            '[http]\ntrusted_proxies = ["10.0.0.0/8"]\n[identity]',
            "ltzd.toml:14: http: trusted_proxies has no effect without proxies_count",
        ),
        (
            "[identity]",
            "[http]\nproxies_count = 1\n[identity]",
            "ltzd.toml:14: http: proxies_count has no effect without trusted_proxies",
        ),
        (
            "[identity]",
            "[http]\nproxies_count = -1\n[identity]",
            "ltzd.toml:15: http.proxies_count: must be at least",
        ),
        ("[node]", 'redis_url = "redis://h/zero"\n[node]', "ltzd.toml:3: redis_url: may have only"),
        ("[node]", 'redis_url = "redis://h/0/1"\n[node]', "ltzd.toml:3: redis_url: may have only"),
        ("[node]", 'redis_url = "unix://"\n[node]', "ltzd.toml:3: redis_url: must name a socket"),
        ("[node]", 'redis_url = "http://h"\n[node]', "ltzd.toml:3: redis_url: must be a URL"),
        ("[node]", 'redis_url = "redis://h:x"\n[node]', "ltzd.toml:3: redis_url: must be a valid"),
    ],
)
def test_a_fault_is_named(folder: Path, old: str, new: str, fault: str) -> None:
    faults = faults_of(a_file(folder, SHORT.replace(old, new)))

    assert [line for line in faults if line.startswith(fault)]
    assert "hunter2" not in "".join(faults)


def test_tips_and_finality_have_defaults_and_can_be_set(folder: Path) -> None:
    settings = read_settings(a_file(folder, SHORT))
    assert settings.operator.fees() == FeePolicy(cap=100 * GWEI, min_tip=GWEI // 10)
    assert (settings.node.final_depth, settings.node.final_seconds) == (64, 60)
    text = SHORT.replace("[node]", "[node]\nfinal_depth = 256\nfinal_seconds = 600")
    settings = read_settings(
        a_file(folder, text.replace("[identity]", "min_tip_gwei = 0\nmax_fee_gwei = 1\n[identity]"))
    )
    assert settings.operator.fees() == FeePolicy(cap=GWEI, min_tip=0)
    assert (settings.node.final_depth, settings.node.final_seconds) == (256, 600)


def test_proxies_are_networks_or_addresses_of_both_families(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = in_http('proxies_count = 2\ntrusted_proxies = ["10.1.0.0/16", "192.0.2.7", "::1"]')
    http = read_settings(a_file(folder, text)).http
    assert http.proxies_count == 2
    assert http.trusted_proxies == tuple(
        map(ip_network, ("10.1.0.0/16", "192.0.2.7/32", "::1/128"))
    )

    monkeypatch.setenv("LTZD_HTTP__PROXIES_COUNT", "1")
    monkeypatch.setenv("LTZD_HTTP__TRUSTED_PROXIES", "10.2.0.0/16, ::ffff:10.3.0.0/112")
    http = read_settings(a_file(folder, text)).http
    assert http.proxies_count == 1
    assert http.trusted_proxies == (ip_network("10.2.0.0/16"), ip_network("10.3.0.0/16"))


@pytest.mark.parametrize(
    ("network", "fault"),
    [
        ("10.1.0.1/16", "must be an address, or a network such as 10.1.0.0/16"),
        ("proxy.internal", "must be an address, or a network such as 10.1.0.0/16"),
        ("10.1.0.0/33", "must be an address, or a network such as 10.1.0.0/16"),
        ("", "must be an address, or a network such as 10.1.0.0/16"),
        ("16777217", "must be an address, or a network such as 10.1.0.0/16"),
        ("0.0.0.0/0", "contains every address: name the networks that contain only your proxies"),
        ("::/0", "contains every address: name the networks that contain only your proxies"),
        (
            "::ffff:0.0.0.0/96",
            "contains every address: name the networks that contain only your proxies",
        ),
    ],
)
def test_what_is_no_network_of_proxies_is_a_fault(folder: Path, network: str, fault: str) -> None:
    text = in_http(f'proxies_count = 1\ntrusted_proxies = ["192.0.2.7", "{network}"]')

    assert faults_of(a_file(folder, text)) == [f"ltzd.toml:16: http.trusted_proxies[1]: {fault}"]


def test_a_number_is_no_network_of_proxies(folder: Path) -> None:
    text = in_http("proxies_count = 1\ntrusted_proxies = [16777217]")

    [fault] = faults_of(a_file(folder, text))
    assert fault.startswith("ltzd.toml:16: http.trusted_proxies[0]: must be an address")


def test_a_fault_of_a_variable_names_the_variable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LTZD_HTTP__PROXIES_COUNT", "1")
    monkeypatch.setenv("LTZD_HTTP__TRUSTED_PROXIES", "10.0.0.0/8,rubbish")

    [fault] = faults_of(a_file(folder))
    assert fault.startswith("LTZD_HTTP__TRUSTED_PROXIES")
    assert "must be an address" in fault

    monkeypatch.delenv("LTZD_HTTP__TRUSTED_PROXIES")
    [fault] = faults_of(a_file(folder))
    assert "proxies_count has no effect without trusted_proxies" in fault


@pytest.mark.parametrize(
    "url",
    [
        "redis://cache.internal",
        "redis://cache.internal:6379/0",
        "redis://user:pass@cache.internal/15",
        "rediss://cache.internal:6380/?ssl_ca_certs=/etc/ltzd/ca.pem",
        "unix:///run/redis.sock?db=2",
    ],
)
def test_redis_is_reached_over_tcp_tls_or_a_socket(folder: Path, url: str) -> None:
    text = SHORT.replace("[node]", f'redis_url = "{url}"\n[node]')

    redis_url = read_settings(a_file(folder, text)).redis_url
    assert redis_url is not None
    assert redis_url.get_secret_value() == url


def test_an_empty_secret_file_is_a_fault(folder: Path) -> None:
    write_secret(folder / "empty", "\n")
    text = SHORT.replace("[identity]", '[admin]\ntoken_file = "{folder}/empty"\n[identity]')

    assert faults_of(a_file(folder, text)) == [
        f"ltzd.toml:15: admin.token_file: {folder / 'empty'} is empty"
    ]


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"none\.toml cannot be read: No such file"):
        read_settings(tmp_path / "none.toml")


def test_a_variable_for_a_whole_section_must_be_json(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LTZD_HTTP", "nonsense")
    [fault] = faults_of(a_file(folder))
    assert "http" in fault

    monkeypatch.setenv("LTZD_HTTP", '{"port": 9000}')
    assert read_settings(a_file(folder)).http.port == 9000


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_an_admin_server_on_loopback_needs_no_token(folder: Path, host: str) -> None:
    text = SHORT.replace("[identity]", f'[admin]\nhost = "{host}"\n[identity]')

    assert read_settings(a_file(folder, text)).admin.host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "admin.example", ""])
def test_an_admin_server_elsewhere_needs_a_token(folder: Path, host: str) -> None:
    section = f'[admin]\nhost = "{host}"\n'
    with_token = section + 'token_file = "{folder}/secret"\nplain_http = true\n'

    [fault] = faults_of(a_file(folder, SHORT.replace("[identity]", section + "[identity]")))
    settings = read_settings(a_file(folder, SHORT.replace("[identity]", with_token + "[identity]")))

    assert fault.startswith("ltzd.toml:14: admin: token_file is needed")
    token = settings.admin.token()
    assert token is not None
    assert token.get_secret_value() == "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        "http://identity.example",
        "https://127.0.0.1:9000",
        "https://127.1",
        "https://2130706433",
        "https://[::1]",
        "https://localhost",
        "https://localhost.",
        "https://x.localhost",
        "https://0.0.0.0",
    ],
)
def test_providers_of_dev_mode_are_refused_when_asked(folder: Path, url: str) -> None:
    settings = read_settings(a_file(folder, SHORT.replace("https://identity.example/", url)))

    with pytest.raises(Misconfigured, match=r"identity\.base_url must be an https URL"):
        settings.refuse_dev_providers()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000", "https://localhost", "https://a.example"])
def test_for_staging_providers_may_be_on_this_machine(folder: Path, url: str) -> None:
    staging = "staging = true\n" + SHORT.replace("https://identity.example/", url)

    settings = read_settings(a_file(folder, staging))

    assert settings.staging
    settings.refuse_dev_providers()


def test_every_provider_of_dev_mode_and_every_missing_key_is_named(folder: Path) -> None:
    services = '[payments]\nbase_url = "http://127.0.0.1:9001"\nsecret_key = "s"\n'
    services += 'signing_secret = "w"\n[site]\nbase_url = "http://a.example"\n'
    here = SHORT.replace("https://identity.example/", "http://127.0.0.1:9000") + services
    with pytest.raises(FileRejected) as refused:
        read_settings(a_file(folder, here)).refuse_dev_providers()
    names = [fault.partition(" ")[0] for fault in refused.value.faults]
    assert names == ["identity.base_url", "payments.base_url", "site.base_url"]

    keyless = re.sub(r"^(minter|relay)_\w+ = .*\n", "", SHORT, flags=re.MULTILINE)
    with pytest.raises(FileRejected, match=r"minter_key_file and .*relay_key_file are need"):
        read_settings(a_file(folder, keyless))


def test_staging_sends_no_secret_to_another_machine_unencrypted(folder: Path) -> None:
    staging = "staging = true\n" + SHORT.replace("https://identity.example/", "http://a.example")
    settings = read_settings(a_file(folder, staging))

    with pytest.raises(Misconfigured, match=r"identity\.base_url must be an https URL: secrets"):
        settings.refuse_dev_providers()


# --- an OpenID Connect issuer -------------------------------------------------------------------

OIDC = (
    SHORT.partition("[identity]")[0]
    + """\
[identity]
kind = "oidc"
issuer = "https://login.example/"
audience = "ltzd"
"""
)


def oidc_of(path: Path) -> OidcIdentitySettings:
    identity = read_settings(path).identity
    assert isinstance(identity, OidcIdentitySettings)
    return identity


def test_an_issuer_and_an_audience_are_enough(folder: Path) -> None:
    policy = oidc_of(a_file(folder, OIDC)).policy()

    assert policy.issuer == "https://login.example/", "letter by letter, with its slash"
    assert policy.audiences == ("ltzd",)
    assert policy.algorithms == ("RS256", "ES256")
    assert (policy.subject_claim, policy.email_claim) == ("sub", "email")
    assert policy.email_verified_claim == "email_verified"
    assert policy.account_claims == {}
    assert policy.discovery_url is None


def test_everything_about_an_issuer_may_be_said(folder: Path) -> None:
    text = OIDC.replace('"ltzd"', '["ltzd", "shop"]') + (
        'subject_claim = "oid"\n'
        'email_claim = "https://shop.example/mail"\n'
        'email_verified_claim = "mail_ok"\n'
        'algorithms = ["EdDSA", "PS256"]\n'
        'discovery_url = "https://login.internal.example/discover"\n'
        'account_claims = { discord = "discord_id", telegram = "tg" }\n'
    )
    policy = oidc_of(a_file(folder, text)).policy()

    assert policy.audiences == ("ltzd", "shop")
    assert (policy.subject_claim, policy.email_claim) == ("oid", "https://shop.example/mail")
    assert policy.email_verified_claim == "mail_ok"
    assert policy.algorithms == ("EdDSA", "PS256")
    assert policy.discovery_url == "https://login.internal.example/discover"
    assert policy.account_claims == {"discord": "discord_id", "telegram": "tg"}


def test_variables_tell_of_an_issuer_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LTZD_IDENTITY__AUDIENCE", "one, two")
    monkeypatch.setenv("LTZD_IDENTITY__ALGORITHMS", "ES256")
    monkeypatch.setenv("LTZD_IDENTITY__SUBJECT_CLAIM", "oid")
    monkeypatch.setenv("LTZD_IDENTITY__ACCOUNT_CLAIMS", '{"discord": "discord_id"}')

    policy = oidc_of(a_file(folder, OIDC)).policy()

    assert policy.audiences == ("one", "two")
    assert policy.algorithms == ("ES256",)
    assert policy.subject_claim == "oid"
    assert policy.account_claims == {"discord": "discord_id"}


def test_settings_of_an_issuer_survive_being_dumped(folder: Path) -> None:
    settings = read_settings(a_file(folder, OIDC + 'account_claims = { github = "gh" }\n'))

    assert Settings(**settings.model_dump()).identity == settings.identity


def test_keys_of_the_other_kind_are_faults_with_all_the_rest(folder: Path) -> None:
    vendors = OIDC.replace('issuer = "https://login.example/"\n', "") + (
        'app_id = "app"\napp_secret = "hunter2"\nalgorithms = ["none"]\n'
    )
    assert sorted(faults_of(a_file(folder, vendors))) == [
        "ltzd.toml:14: identity.issuer: is missing",
        "ltzd.toml:17: identity.app_id: unknown key",
        "ltzd.toml:18: identity.app_secret: unknown key",
        "ltzd.toml:19: identity.algorithms[0]: must be 'RS256', 'ES256', 'PS256' or 'EdDSA'",
    ]
    issuers = SHORT + 'audience = "ltzd"\nemail_claim = "mail"\n[nod]\n'
    assert sorted(faults_of(a_file(folder, issuers))) == [
        "ltzd.toml:18: identity.audience: unknown key",
        "ltzd.toml:19: identity.email_claim: unknown key",
        "ltzd.toml:20: nod: unknown key",
    ]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"oidc"', '"saml"', "15: identity.kind: must be 'vendor' or 'oidc'"),
        ('"oidc"', "7", "15: identity.kind: must be 'vendor' or 'oidc'"),
        ("https://login.example/", "ftp://x", "16: identity.issuer: must be a URL that starts"),
        ("https://login.example/", "https://", "16: identity.issuer: must be a URL with a host"),
        ("example/", "example/?a=b", "16: identity.issuer: must be an issuer such as"),
        ("example/", "example/#a", "16: identity.issuer: must be an issuer such as"),
        ("login.", "me:hunter2@login.", "16: identity.issuer: must be an issuer such as"),
        (
            'audience = "ltzd"',
            "audience = []",
            "17: identity.audience: must hold at least 1",
        ),
        ('audience = "ltzd"', 'audience = [""]', "17: identity.audience[0]: must have at least"),
        ('audience = "ltzd"', "audience = 7", "17: identity.audience: must be a list"),
        ('audience = "ltzd"\n', "", "14: identity.audience: is missing"),
        ('"ltzd"', '"ltzd"\nalgorithms = ["HS256"]', "18: identity.algorithms[0]: must be 'RS256'"),
        (
            '"ltzd"',
            '"ltzd"\nalgorithms = []',
            "18: identity.algorithms: must hold at least 1",
        ),
        ('"ltzd"', '"ltzd"\nsubject_claim = ""', "18: identity.subject_claim: must have"),
        ('"ltzd"', '"ltzd"\naccount_claims = { myspace = "x" }', "18: identity.account_claims"),
        ('"ltzd"', '"ltzd"\naccount_claims = { discord = "" }', "18: identity.account_claims"),
        ('"ltzd"', '"ltzd"\ndiscovery_url = "x"', "18: identity.discovery_url: must be a URL"),
    ],
)
def test_a_fault_about_the_issuer_is_named(folder: Path, old: str, new: str, fault: str) -> None:
    assert old in OIDC
    [line] = faults_of(a_file(folder, OIDC.replace(old, new)))

    assert line.startswith(f"ltzd.toml:{fault}")
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("https://login", "http://login"),
        ("login.example", "127.0.0.1"),
        ("login.example", "localhost"),
        ('"ltzd"', '"ltzd"\ndiscovery_url = "https://127.0.0.1:9/"'),
        ('"ltzd"', '"ltzd"\ndiscovery_url = "http://login.example/"'),
    ],
)
def test_an_issuer_of_this_machine_or_without_tls_is_refused_when_asked(
    folder: Path, old: str, new: str
) -> None:
    read_settings(a_file(folder, OIDC)).refuse_dev_providers()
    settings = read_settings(a_file(folder, OIDC.replace(old, new)))

    with pytest.raises(Misconfigured, match=r"identity\.\w+ must be an https URL"):
        settings.refuse_dev_providers()


def test_the_example_of_an_issuer_is_right(folder: Path) -> None:
    lines = EXAMPLE.read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("# [identity]"))
    section = [line.removeprefix("# ") for line in lines[first : lines.index("", first)]]

    settings = read_settings(a_file(folder, OIDC.partition("[identity]")[0] + "\n".join(section)))

    assert isinstance(settings.identity, OidcIdentitySettings)
    assert settings.identity.policy().account_claims == {"discord": "discord_id"}
    assert set(OidcIdentitySettings.model_fields) == settings.identity.model_fields_set
    settings.refuse_dev_providers()


def _keys(section: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every key; a list or an optional section counts as the section."""
    for name, field in section.model_fields.items():
        kinds = [field.annotation, *get_args(field.annotation)]
        kinds += [inner for kind in kinds for inner in get_args(kind)]
        sections = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        if not sections:
            yield (*path, name)
        for inner in sections:
            yield from _keys(inner, (*path, name))


def test_the_example_has_every_key_or_the_key_of_its_file() -> None:
    words = set(re.findall(r"\w+", EXAMPLE.read_text()))
    keys = list(_keys(Settings))
    assert len(keys) > 100
    lacking = [key for key in keys if words.isdisjoint((key[-1], f"{key[-1]}_file"))]
    assert lacking == []


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("[http]\nport = true", "ltzd.toml:19: http.port: must be a number, not true or false"),
        (
            "[node2]\nurls = []",
            "ltzd.toml:18: node2: unknown key",
        ),
        ('[site]\nbase_url = "https://"', "ltzd.toml:19: site.base_url: must be a URL with a host"),
        (
            "[admin]\nport = 8000",
            "ltzd.toml: admin.port is that of http: give each server a port of its own",
        ),
        (
            '[http]\nhost = "0.0.0.0"\nplain_http = true\nport = 9464',
            "ltzd.toml: admin.port is that of http: give each server a port of its own",
        ),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_rule(
    folder: Path, section: str, fault: str
) -> None:
    assert faults_of(a_file(folder, SHORT + section)) == [fault]


def test_a_process_without_the_role_http_may_have_any_admin_port(folder: Path) -> None:
    text = 'roles = ["indexer"]\n' + SHORT + "[admin]\nport = 8000\n"
    assert read_settings(a_file(folder, text)).admin.port == 8000


# --- master keys --------------------------------------------------------------------------------


def test_old_master_keys_are_files_that_must_be_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SHORT.replace("[node]", 'old_master_key_files = ["{folder}/secret"]\n[node]', 1)
    assert read_settings(a_file(folder, text)).old_master_key_files == (folder / "secret",)

    missing = folder / "none"
    [fault] = faults_of(a_file(folder, text.replace('["{folder}/secret"]', f'["{missing}"]')))
    assert fault.startswith(f"ltzd.toml:3: old_master_key_files[0]: {missing} cannot be read")

    monkeypatch.setenv("LTZD_OLD_MASTER_KEY_FILES", f"{folder}/secret,{folder}/secret")
    assert len(read_settings(a_file(folder, text)).old_master_key_files) == 2


# --- who can read the files ---------------------------------------------------------------------

WITHOUT_SECRETS = (
    SHORT.replace(":hunter2@", "@")
    .replace("/hunter2", "")
    .replace('app_secret = "hunter2"', 'app_secret_file = "{folder}/secret"')
)


def opened(path: Path) -> Path:
    path.chmod(0o644)
    return path


def test_every_secret_file_that_others_can_read_is_told_at_once(folder: Path) -> None:
    path, secret = a_file(folder, WITHOUT_SECRETS + "nonsense = 1\n"), folder / "secret"
    opened(secret)
    sentence = f"{secret} can be read by others; run: chmod 600 {secret}"

    assert sorted(faults_of(path)) == sorted(
        [
            f"ltzd.toml:2: master_key_file: {sentence}",
            f"ltzd.toml:12: operator.minter_key_file: {sentence}",
            f"ltzd.toml:13: operator.relay_key_file: {sentence}",
            f"ltzd.toml:17: identity.app_secret_file: {sentence}",
            "ltzd.toml:18: identity.nonsense: unknown key",
        ]
    )


def test_settings_without_a_secret_may_be_read_by_others(folder: Path) -> None:
    read_settings(opened(a_file(folder, WITHOUT_SECRETS)))


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("//ltzd@", "//ltzd:hunter2@", "ltzd.toml:1: database_url"),
        ("ltzd@db.internal/ltzd", "db/ltzd?password=hunter2", "ltzd.toml:1: database_url"),
        ("[node]", 'redis_url = "redis://:hunter2@h"\n[node]', "ltzd.toml:3: redis_url"),
        ("https://node.example", "https://node.example/v2/hunter2", "ltzd.toml:4: node.rpc_url"),
        ("https://node.example", "https://node.example?key=hunter2", "ltzd.toml:4: node.rpc_url"),
        ("https://node.example", "https://me:hunter2@node", "ltzd.toml:4: node.rpc_url"),
        ("app_secret_file = ", 'app_secret = "hunter2" # ', "ltzd.toml:17: identity.app_secret"),
        (
            "[identity]",
            '[accounts.discord]\ntoken = "hunter2"\n[identity]',
            "ltzd.toml:15: accounts.d",
        ),
        (
            "[identity]",
            '[payments]\nsecret_key = "hunter2"\nsigning_secret = "hunter2"\n[identity]',
            "ltzd.toml:15: payments.secret_key",
        ),
    ],
)
def test_settings_that_hold_a_secret_themselves_are_a_secret_file(
    folder: Path, old: str, new: str, place: str
) -> None:
    assert old in WITHOUT_SECRETS
    path = a_file(folder, WITHOUT_SECRETS.replace(old, new))
    read_settings(path)

    [fault] = faults_of(opened(path))
    assert fault.startswith(place)
    assert fault.endswith(f"{path} can be read by others; run: chmod 600 {path}")
    assert "hunter2" not in fault


def test_settings_that_others_can_change_are_refused(folder: Path) -> None:
    path = a_file(folder, WITHOUT_SECRETS)
    path.chmod(0o664)

    assert faults_of(path) == [f"{path} can be changed by others; run: chmod go-w {path}"]
    with pytest.raises(FileRejected):
        read_node(path)


def test_the_section_node_alone_is_not_read_from_a_file_with_secrets_that_others_read(
    folder: Path,
) -> None:
    path = a_file(folder)
    assert read_node(path).poll_seconds == 1
    opened(path)

    with pytest.raises(FileRejected) as caught:
        read_node(path)
    assert "can be read by others; run: chmod 600" in caught.value.faults[0]


# --- plain HTTP ---------------------------------------------------------------------------------

ELSEWHERE = ["0.0.0.0", "::", "10.0.0.1", "203.0.113.7", "api.example", ""]


def tls_lines(folder: Path) -> str:
    (folder / "tls.crt").write_text("a certificate\n")
    return 'tls_certificate_file = "{folder}/tls.crt"\ntls_key_file = "{folder}/secret"\n'


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_plain_http_needs_no_word_on_a_loopback_address(folder: Path, host: str) -> None:
    http = read_settings(a_file(folder, in_http(f'host = "{host}"'))).http

    assert http.host == host
    assert not http.serves_others_plainly


@pytest.mark.parametrize("host", ELSEWHERE)
def test_plain_http_elsewhere_is_refused_with_the_settings_that_allow_it(
    folder: Path, host: str
) -> None:
    [fault] = faults_of(a_file(folder, in_http(f'host = "{host}"')))

    assert fault.startswith("ltzd.toml:14: http: host is not a loopback address, so others could")
    for name in ("tls_certificate_file", "tls_key_file", "trusted_proxies", "plain_http = true"):
        assert name in fault


@pytest.mark.parametrize("host", ELSEWHERE)
def test_tls_or_proxies_or_a_plain_word_open_another_address(folder: Path, host: str) -> None:
    proxies = 'proxies_count = 1\ntrusted_proxies = ["10.0.0.2"]\n'
    for lines, is_plain in (
        (tls_lines(folder), False),
        (proxies, False),
        ("plain_http = true\n", True),
        (tls_lines(folder) + proxies, False),
    ):
        http = read_settings(a_file(folder, in_http(f'host = "{host}"\n{lines}'))).http
        assert http.serves_others_plainly is is_plain


@pytest.mark.parametrize("section", ["http", "admin"])
def test_half_a_certificate_is_a_fault(folder: Path, section: str) -> None:
    for line in tls_lines(folder).splitlines():
        text = SHORT.replace("[identity]", f"[{section}]\n{line}\n[identity]")
        [fault] = faults_of(a_file(folder, text))
        assert fault.startswith(f"ltzd.toml:14: {section}: give both tls_certificate_file and")


@pytest.mark.parametrize("section", ["http", "admin"])
def test_tls_is_not_plain_http(folder: Path, section: str) -> None:
    lines = tls_lines(folder) + "plain_http = true\n"

    text = SHORT.replace("[identity]", f"[{section}]\n{lines}[identity]")
    [fault] = faults_of(a_file(folder, text))
    assert fault.startswith(f"ltzd.toml:14: {section}: give either plain_http or")


def test_a_certificates_file_is_public_and_its_keys_is_not(folder: Path) -> None:
    path = a_file(folder, in_http(tls_lines(folder)))
    opened(folder / "tls.crt")
    read_settings(path)

    (folder / "tls.crt").write_text("-----BEGIN PRIVATE KEY-----\n")
    [fault] = faults_of(path)
    assert fault.startswith("ltzd.toml:15: http.tls_certificate_file: ")
    assert fault.endswith(f"tls.crt can be read by others; run: chmod 600 {folder / 'tls.crt'}")


@pytest.mark.parametrize("host", ELSEWHERE)
def test_an_admin_token_goes_over_no_network_in_the_clear(folder: Path, host: str) -> None:
    def with_lines(lines: str) -> Path:
        section = f'[admin]\nhost = "{host}"\n{lines}'
        return a_file(folder, SHORT.replace("[identity]", section + "[identity]"))

    token = 'token_file = "{folder}/secret"\n'
    [fault] = faults_of(with_lines(token))
    assert "others could read the token: give tls_certificate_file and tls_key_file" in fault
    [fault] = faults_of(with_lines(""))
    assert "token_file is needed" in fault
    assert "others could read the token" in fault
    assert not read_settings(with_lines(token + tls_lines(folder))).admin.is_open_to_others
    assert read_settings(with_lines(token + "plain_http = true\n")).admin.plain_http


TREASURY = """\
relay_balance_floor_wei = 5
[operator.treasury]
key_file = "{folder}/secret"
top_up_wei = 20
max_wei_per_day = 40
"""


def with_operator(lines: str) -> str:
    """A short file with these lines at the end of its section [operator]."""
    return SHORT.replace("[identity]", f"{lines}[identity]")


def test_a_treasury_has_its_own_key_and_bounds(folder: Path) -> None:
    settings = read_settings(a_file(folder, with_operator(TREASURY))).operator

    assert settings.top_ups() == TopUpPolicy(20, 40, {"mint": 0, "relay": 5})
    assert [named.kind for named in settings.named_wallets()] == ["mint", "relay", "treasury"]
    assert read_settings(a_file(folder)).operator.top_ups() is None


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("relay_balance_floor_wei = 5\n", "", "no effect without mint_balance_floor_wei"),
        ("top_up_wei = 20", "top_up_wei = 41", "no top-up could be sent"),
        ('key_file = "{folder}/secret"\n', "", "key_file"),
    ],
    ids=["no floor", "day below one top-up", "no key"],
)
def test_a_treasury_that_could_send_nothing_is_refused(
    folder: Path, before: str, after: str, fault: str
) -> None:
    lines = TREASURY.replace(before, after)

    assert any(fault in line for line in faults_of(a_file(folder, with_operator(lines))))
