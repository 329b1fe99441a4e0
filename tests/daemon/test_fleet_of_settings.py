"""The start opens the wallets of the settings: all but remote ones must open."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ltzd.chain.signing import Signer
from ltzd.daemon.operator import open_wallets
from ltzd.daemon.settings.settings import OperatorSettings
from ltzd.errors import Misconfigured
from ltzd.operator.fleet.fleet import SettingsWallet
from tests.support.secret_files import write_secret

KEY, OTHER_KEY = b"\x02" * 32, b"\x03" * 32


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_secret(tmp_path / "one", KEY.hex())


@pytest.fixture
def other_file(tmp_path: Path) -> Path:
    return write_secret(tmp_path / "other", OTHER_KEY.hex())


async def opened(**settings: Any) -> list[SettingsWallet]:
    async with AsyncExitStack() as stack:
        return await open_wallets(OperatorSettings(**settings), stack)


async def test_every_key_of_the_settings_is_opened(key_file: Path, other_file: Path) -> None:
    relay = {"kind": "relay", "key_file": other_file}
    wallets = await opened(minter_key_file=key_file, wallets=[relay])
    assert [(wallet.setting, wallet.kind, wallet.address) for wallet in wallets] == [
        ("operator.minter_key_file", "mint", Signer(KEY).address),
        ("operator.wallets[0]", "relay", Signer(OTHER_KEY).address),
    ]


@pytest.mark.parametrize(
    ("kind", "words"),
    [("mint", "name each wallet once"), ("relay", "relays users' calls must not mint")],
)
async def test_a_key_that_is_named_twice_is_refused_with_both_places(
    key_file: Path, other_file: Path, tmp_path: Path, kind: str, words: str
) -> None:
    copy = write_secret(tmp_path / "copy", "0x" + KEY.hex())
    double = {"kind": kind, "key_file": copy}
    with pytest.raises(Misconfigured, match=words) as caught:
        await opened(minter_key_file=key_file, relay_key_file=other_file, wallets=[double])
    message = caught.value.message
    assert message.startswith("operator.minter_key_file and operator.wallets[0] hold the same key")


async def test_a_key_that_does_not_open_is_refused_with_its_place(
    key_file: Path, tmp_path: Path
) -> None:
    broken = {"kind": "relay", "key_file": write_secret(tmp_path / "broken", "hunter2")}
    with pytest.raises(Misconfigured, match=r"^operator\.wallets\[0\]: The key file") as caught:
        await opened(minter_key_file=key_file, wallets=[broken])
    assert "hunter2" not in caught.value.message


async def test_a_remote_signer_that_is_away_is_opened_later(key_file: Path) -> None:
    away = {"kind": "relay", "web3signer": {"url": "http://127.0.0.1:1"}}
    first, second = await opened(minter_key_file=key_file, wallets=[away])
    assert first.address is not None
    assert (second.setting, second.address) == ("operator.wallets[0]", None)
