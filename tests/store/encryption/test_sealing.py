"""Sealed values open only with their key, for their brand and column."""

import stat
from pathlib import Path

import pytest

from ltzd.errors import Misconfigured
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import Address

BRAND = Address(b"\xaa" * 20)
OTHER = Address(b"\xbb" * 20)
SECRET = "ltzsk_0123456789"


def a_key_file(folder: Path, *keys: str) -> Path:
    path = folder / "master.key"
    path.write_text("\n".join(keys) + "\n")
    path.chmod(0o600)
    return path


def test_a_created_key_file_is_private_and_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "master.key"

    first = Sealer.from_file(path, create=True)
    second = Sealer.from_file(path, create=True)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["master.key"]
    assert second.open(first.seal(SECRET, BRAND, "x"), first.key_id, BRAND, "x") == SECRET


def test_equal_secrets_look_different(tmp_path: Path) -> None:
    sealer = Sealer.from_file(tmp_path / "master.key", create=True)

    assert sealer.seal(SECRET, BRAND, "x") != sealer.seal(SECRET, BRAND, "x")


@pytest.mark.parametrize(("brand", "name"), [(OTHER, "security_key"), (BRAND, "webhook_secret")])
def test_a_sealed_value_opens_only_for_its_own_brand_and_column(
    tmp_path: Path, brand: Address, name: str
) -> None:
    sealer = Sealer.from_file(tmp_path / "master.key", create=True)
    sealed = sealer.seal(SECRET, BRAND, "security_key")

    with pytest.raises(Misconfigured, match="changed or moved"):
        sealer.open(sealed, sealer.key_id, brand, name)


@pytest.mark.parametrize("harm", [lambda raw: raw[:-1], lambda raw: b"", lambda raw: raw + b"x"])
def test_a_corrupted_value_does_not_open(tmp_path: Path, harm: object) -> None:
    assert callable(harm)
    sealer = Sealer.from_file(tmp_path / "master.key", create=True)
    sealed = harm(sealer.seal(SECRET, BRAND, "security_key"))

    with pytest.raises(Misconfigured, match="changed or moved"):
        sealer.open(sealed, sealer.key_id, BRAND, "security_key")


def test_a_new_key_seals_and_the_old_one_still_opens(tmp_path: Path) -> None:
    old = Sealer.from_file(a_key_file(tmp_path, "11" * 32))
    sealed = old.seal(SECRET, BRAND, "x")

    both = Sealer.from_file(a_key_file(tmp_path, "22" * 32, "11" * 32))
    new = Sealer.from_file(a_key_file(tmp_path, "22" * 32))

    assert both.key_id == new.key_id != old.key_id
    assert both.open(sealed, old.key_id, BRAND, "x") == SECRET
    with pytest.raises(Misconfigured, match=f"sealed with master key {old.key_id}"):
        new.open(sealed, old.key_id, BRAND, "x")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622, 0o644])
def test_a_key_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = a_key_file(tmp_path, "11" * 32)
    path.chmod(mode)

    with pytest.raises(Misconfigured, match="chmod 600"):
        Sealer.from_file(path)


@pytest.mark.parametrize("content", ["", "11" * 31, "11" * 33, "zz" * 32, "11" * 32 + "\nx"])
def test_a_malformed_key_file_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    path = a_key_file(tmp_path, content)

    with pytest.raises(Misconfigured, match="64 hex digits") as caught:
        Sealer.from_file(path)
    assert "1111" not in caught.value.message


def test_a_missing_or_binary_key_file_gives_a_readable_error(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be read"):
        Sealer.from_file(tmp_path / "none")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    binary.chmod(0o600)
    with pytest.raises(Misconfigured, match="it is not UTF-8 text"):
        Sealer.from_file(binary)
    with pytest.raises(Misconfigured, match="cannot be created"):
        Sealer.from_file(tmp_path / "no such folder" / "master.key", create=True)


def test_a_keyed_hash_can_be_recomputed_only_with_its_key() -> None:
    old, new = Sealer([b"\x01" * 32]), Sealer([b"\x02" * 32, b"\x01" * 32])
    assert old.keyed_hash(b"a code") == Sealer([b"\x01" * 32]).keyed_hash(b"a code")
    assert old.keyed_hash(b"a code") != old.keyed_hash(b"another")
    assert new.keyed_hash(b"a code") != old.keyed_hash(b"a code")
    assert new.keyed_hashes(b"a code") == [new.keyed_hash(b"a code"), old.keyed_hash(b"a code")]
    assert old.keyed_hashes(b"a code") == [old.keyed_hash(b"a code")]
