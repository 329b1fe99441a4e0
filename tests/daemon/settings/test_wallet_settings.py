"""The settings of the operator's wallets: two key files, any number of sections, or none."""

from pathlib import Path

import pytest

from ltzd.daemon.settings.settings import read_settings
from tests.daemon.settings.test_settings import SHORT, a_file, faults_of
from tests.support.secret_files import write_secret

KEY_FILES = 'minter_key_file = "{folder}/secret"\nrelay_key_file = "{folder}/secret"\n'
SECTION = """\
[[operator.wallets]]
kind = "relay"
key_file = "{folder}/secret"
[[operator.wallets]]
kind = "mint"
password_file = "{folder}/secret"
key_file = "{folder}/secret"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_secret(tmp_path / "secret", "hunter2\n")
    return tmp_path


def with_operator(folder: Path, lines: str) -> Path:
    """A short file with these lines at the end of its section [operator]."""
    return a_file(folder, SHORT.replace("[identity]", f"{lines}[identity]"))


def instead_of_key_files(folder: Path, lines: str) -> Path:
    return a_file(folder, SHORT.replace(KEY_FILES, lines))


def places(path: Path) -> list[tuple[str, str]]:
    named = read_settings(path).operator.named_wallets()
    return [(wallet.setting, wallet.kind) for wallet in named]


KEY_FILE_PLACES = [("operator.minter_key_file", "mint"), ("operator.relay_key_file", "relay")]
SECTION_PLACES = [("operator.wallets[0]", "relay"), ("operator.wallets[1]", "mint")]


def test_the_two_key_files_are_one_wallet_each(folder: Path) -> None:
    assert places(a_file(folder)) == KEY_FILE_PLACES


def test_sections_name_more_wallets(folder: Path) -> None:
    path = with_operator(folder, SECTION)
    assert places(path) == KEY_FILE_PLACES + SECTION_PLACES
    (*_, last) = read_settings(path).operator.named_wallets()
    secret = str(folder / "secret")
    assert last.signer.reference() == {"key_file": secret, "password_file": secret}


def test_sections_make_the_key_files_optional(folder: Path) -> None:
    assert places(instead_of_key_files(folder, SECTION)) == SECTION_PLACES
    assert places(instead_of_key_files(folder, "wallets = []\n")) == []


def test_a_variable_may_name_wallets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = folder / "secret"
    monkeypatch.setenv("LTZD_OPERATOR__WALLETS", f'[{{"kind": "mint", "key_file": "{key}"}}]')
    assert places(a_file(folder)) == [*KEY_FILE_PLACES, ("operator.wallets[0]", "mint")]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('kind = "relay"', 'kind = "both"', "ltzd.toml:15: operator.wallets[0].kind: must be"),
        ('kind = "relay"\n', "", "ltzd.toml:14: operator.wallets[0].kind: is missing"),
        ('kind = "relay"', 'kid = "relay"', "ltzd.toml:15: operator.wallets[0].kid: unknown key"),
        ("secret", "gone", "ltzd.toml:16: operator.wallets[0].key_file: "),
        (
            'key_file = "{folder}/secret"\n[',
            "[",
            "ltzd.toml:14: operator.wallets[0]: give one of key_file",
        ),
    ],
)
def test_a_fault_of_a_wallet_is_told_with_its_line(
    folder: Path, old: str, new: str, fault: str
) -> None:
    faults = faults_of(with_operator(folder, SECTION.replace(old, new, 1)))
    assert faults[-1].startswith(fault), faults


def test_the_lines_of_a_section_below_a_wallet_are_its_own(folder: Path) -> None:
    lines = f'{SECTION}[[operator.wallets]]\nkind = "mint"\n[operator.wallets.kms]\nregion = "x"\n'
    missing, region = sorted(faults_of(with_operator(folder, lines)))
    assert missing == "ltzd.toml:23: operator.wallets[2].kms.key_id: is missing"
    assert region.startswith("ltzd.toml:24: operator.wallets[2].kms.region: must match")
