"""The settings of account look-ups: the providers, their secrets and their URLs."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ltzd.daemon.assembly import _account_lookups
from ltzd.daemon.settings.settings import Settings, read_settings
from ltzd.errors import FileRejected, Misconfigured
from ltzd.providers.oauth.policy import AccountLookupPolicy
from ltzd.rules.oauth.accounts import PROVIDERS
from tests.support.secret_files import write_secret

SHORT = """\
database_url = "postgresql://ltzd@db.internal/ltzd"
master_key_file = "{folder}/secret"
roles = ["http"]
[node]
rpc_url = "https://node.example"
[contracts]
ltz = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
perk_nft = "0xe7f1725e7734ce288f8367e1bb143e90bb3f0512"
points_sale = "0x9fe46736679d2d9a65f0992f2272de9f3c7fa6e0"
business_escrow = "0xcf7ed3acca5a467e9e704c703e8d87f634fb0fc9"
first_block = 7
[identity]
base_url = "https://identity.example/"
app_id = "app"
app_secret = "hunter2"
"""
ALL = """\
[accounts]
missing_seconds = 5
[accounts.discord]
token = "hunter2"
[accounts.twitter]
token_file = "{folder}/secret"
[accounts.github]
[accounts.google]
api_key = "hunter2"
[accounts.telegram]
token = "1:hunter2"
[accounts.spotify]
client_id = "me"
client_secret_file = "{folder}/secret"
[accounts.instagram]
user_id = "17841405822304914"
token = "hunter2"
[accounts.tiktok]
client_key = "me"
client_secret = "hunter2"
"""


def settings_of(folder: Path, lines: str = "") -> Settings:
    write_secret(folder / "secret", "hunter2\n")
    file = folder / "ltzd.toml"
    write_secret(file, (SHORT + lines).replace("{folder}", str(folder)))
    return read_settings(file)


def fault_of(folder: Path, lines: str) -> str:
    with pytest.raises(FileRejected) as caught:
        settings_of(folder, lines)
    assert "hunter2" not in str(caught.value)
    (fault,) = caught.value.faults
    return fault


def test_without_sections_nobody_is_asked(tmp_path: Path) -> None:
    assert settings_of(tmp_path).accounts.policy() == AccountLookupPolicy()


def test_at_its_start_ltzd_names_the_providers_that_it_does_not_ask(tmp_path: Path) -> None:
    two_sections = '[accounts.discord]\ntoken = "hunter2"\n[accounts.github]\n'
    for lines, names in ((two_sections, PROVIDERS[1:2] + PROVIDERS[3:]), (ALL, ())):
        with capture_logs() as logs:
            _account_lookups(settings_of(tmp_path, lines), AsyncExitStack())
        providers = [line["providers"] for line in logs if line["event"] == "accounts.unchecked"]
        assert providers == ([list(names)] if names else [])


def test_each_section_makes_its_provider_asked_at_its_own_address(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, ALL)
    policy = settings.accounts.policy()

    assert policy.discord is not None
    assert (policy.discord.token, policy.discord.base_url) == (
        "hunter2",
        "https://discord.com/api/v10",
    )
    assert policy.twitter is not None
    assert policy.twitter.token == "hunter2"
    assert policy.github is not None
    assert policy.github.token is None
    assert policy.spotify is not None
    assert not policy.spotify.extended_quota
    assert policy.missing_seconds == 5
    assert "hunter2" not in repr(settings) + repr(policy)
    settings.refuse_dev_providers()


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("[accounts.discord]", "give either token or token_file"),
        ('[accounts.discord]\ntoken = "a"\ntoken_file = "{folder}/secret"', "give either token"),
        ('[accounts.github]\ntoken = "a"\ntoken_file = "{folder}/secret"', "give either token"),
        ("[accounts.google]", "give either api_key or api_key_file"),
        ('[accounts.spotify]\nclient_id = "me"', "give either client_secret"),
        ('[accounts.tiktok]\nclient_secret = "hunter2"', "client_key"),
        ('[accounts.instagram]\nuser_id = "me"\ntoken = "hunter2"', "user_id"),
        ('[accounts.myspace]\ntoken = "hunter2"', "myspace"),
        ("[accounts]\nexists_seconds = -1", "exists_seconds"),
    ],
)
def test_a_section_without_its_secret_or_with_another_fault_is_refused(
    lines: str, name: str, tmp_path: Path
) -> None:
    assert name in fault_of(tmp_path, lines)


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ('[accounts.github]\nbase_url = "http://api.example"', "accounts.github.base_url"),
        ('[accounts.github]\nbase_url = "https://127.0.0.1"', "accounts.github.base_url"),
        (
            '[accounts.spotify]\nclient_id="me"\nclient_secret="s"\ntoken_url="https://localhost/t"',
            "accounts.spotify.token_url",
        ),
    ],
)
def test_a_daemon_in_production_sends_no_secret_to_this_machine_or_by_plain_http(
    lines: str, name: str, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, lines)

    with pytest.raises(Misconfigured, match=name):
        settings.refuse_dev_providers()


def test_variables_win_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LTZD_ACCOUNTS__DISCORD__TOKEN", "from the environment")

    policy = settings_of(tmp_path).accounts.policy()

    assert policy.discord is not None
    assert policy.discord.token == "from the environment"
