"""Every file with a secret or a key is refused if users other than its owner can read it."""

import json
import os
import stat
import struct
import subprocess
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from eth_keyfile.keyfile import create_keyfile_json
from pydantic import BaseModel

from ltzd import secret_files
from ltzd.cli import dev_json
from ltzd.daemon.keys import read_key
from ltzd.daemon.settings.section import secret_from_file
from ltzd.daemon.settings.settings import Settings
from ltzd.daemon.settings.value_types import SecretFile
from ltzd.errors import Misconfigured
from ltzd.secret_files import (
    create_private,
    grants_only,
    make_private,
    open_secret,
    read_checked,
    read_descriptor,
    read_secret,
    write_private,
)
from ltzd.store.encryption.sealing import Sealer
from tests.support.commands import ltzd
from tests.support.secret_files import write_secret

KEY = "11" * 32
EVERYBODY = 0xFFFFFFFF
ME = 1234


def fault_of(read: Callable[[], object]) -> str:
    with pytest.raises(Misconfigured) as caught:
        read()
    return caught.value.message


def test_a_device_is_no_secret_file_and_keeps_its_mode() -> None:
    fault = "/dev/null is a device: name a file"
    assert fault_of(lambda: read_secret(Path("/dev/null"))) == fault
    checked = read_checked(Path("/dev/null"))
    assert (checked.exposed, checked.changeable) == (fault, fault)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o602, 0o610, 0o601, 0o666, 0o777])
def test_a_secret_that_others_can_reach_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, mode: int
) -> None:
    path = write_secret(tmp_path / "the key", "hunter2")
    path.chmod(mode)

    fault = fault_of(lambda: read_secret(path))
    assert fault == f"{path} can be read by others; run: chmod 600 '{path}'"

    command = fault.partition("run: ")[2]
    subprocess.run(["sh", "-c", command], check=True)
    assert read_secret(path) == b"hunter2"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700, 0o500])
def test_a_secret_that_its_owner_alone_can_reach_is_read(tmp_path: Path, mode: int) -> None:
    path = write_secret(tmp_path / "key", "hunter2")
    path.chmod(mode)

    assert read_secret(path) == b"hunter2"


def given_to_a_stranger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        stranger = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: stranger)


def test_a_secret_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_secret(tmp_path / "key", "hunter2")
    given_to_a_stranger(path, monkeypatch)

    fault = fault_of(lambda: read_secret(path))
    assert fault.startswith(f"{path} belongs to the user ")
    assert f"chown {secret_files._user_name(os.geteuid())} {path} && chmod 600 {path}" in fault


def test_a_secret_of_roots_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service manager, running as root, may have written the file."""
    path = write_secret(tmp_path / "key", "hunter2")
    facts = path.stat()
    of_root = os.stat_result((stat.S_IFREG | 0o400, *facts[1:4], 0, *facts[5:]))
    monkeypatch.setattr(os, "fstat", lambda _descriptor: of_root)
    monkeypatch.setattr(os, "geteuid", lambda: ME)

    assert read_secret(path) == b"hunter2"


def test_a_link_counts_as_its_target(tmp_path: Path) -> None:
    path, link = write_secret(tmp_path / "key", "hunter2"), tmp_path / "link"
    link.symlink_to(path)
    assert read_secret(link) == b"hunter2"

    path.chmod(0o644)
    assert "link can be read by others; run: chmod 600" in fault_of(lambda: read_secret(link))


def test_what_was_judged_is_what_is_read(tmp_path: Path) -> None:
    """A file that replaces the checked file under its name is not read."""
    path, other = write_secret(tmp_path / "key", "judged"), tmp_path / "other"
    other.write_text("swapped")

    with open_secret(path) as descriptor:
        other.replace(path)
        assert read_descriptor(descriptor, path) == b"judged"
    assert "can be read by others" in fault_of(lambda: read_secret(path))


def test_a_secret_that_kubernetes_mounts_names_its_volumes_mode(tmp_path: Path) -> None:
    """A file as the kubelet mounts it: a link through `..data` into a folder named by the time."""
    folder = tmp_path / "..2026_05_09_07_35_25.123"
    folder.mkdir()
    write_secret(folder / "key", "hunter2").chmod(0o644)
    (tmp_path / "..data").symlink_to(folder.name)
    (tmp_path / "key").symlink_to("..data/key")

    fault = fault_of(lambda: read_secret(tmp_path / "key"))
    assert fault.endswith(
        "key can be read by others; set defaultMode: 0400 on its Kubernetes volume"
    )


def access_list(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


FOR_ME = (
    (1, 4, EVERYBODY),
    (2, 4, ME),
    (4, 0, EVERYBODY),
    (0x10, 4, EVERYBODY),
    (0x20, 0, EVERYBODY),
)


@pytest.mark.parametrize(
    ("entries", "is_for_me"),
    [
        (FOR_ME, True),
        ((*FOR_ME, (2, 4, ME + 1)), False),
        ((*FOR_ME, (2, 0, ME + 1)), True),
        ((*FOR_ME, (8, 4, ME)), False),
        ((*FOR_ME[:2], (4, 4, EVERYBODY), *FOR_ME[3:]), False),
        (FOR_ME[:3], False),
        ((), False),
    ],
)
def test_an_access_list_may_name_this_user_alone(
    entries: tuple[tuple[int, int, int], ...], is_for_me: bool
) -> None:
    assert grants_only(access_list(*entries), ME) is is_for_me


def test_a_credential_that_systemd_opens_to_this_user_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of root with mode 0440, whose group bits are the bound of an access list."""
    path = write_secret(tmp_path / "key", "hunter2")
    path.chmod(0o440)
    assert "can be read by others" in fault_of(lambda: read_secret(path))

    mine = [(tag, bits, os.geteuid() if tag == 2 else holder) for tag, bits, holder in FOR_ME]
    given = access_list(*mine)
    monkeypatch.setattr(os, "getxattr", lambda _descriptor, _name: given, raising=False)
    assert read_secret(path) == b"hunter2"


def test_what_is_no_readable_file_is_a_sentence(tmp_path: Path) -> None:
    assert fault_of(lambda: read_secret(tmp_path / "none")).endswith(
        "none cannot be read: No such file or directory"
    )
    assert fault_of(lambda: read_secret(tmp_path)).endswith("cannot be read: it is a folder")
    large = write_secret(tmp_path / "large", "x" * (secret_files.MAX_BYTES + 1))
    assert fault_of(lambda: read_secret(large)).endswith("it is larger than 1 MiB")


# --- each reader --------------------------------------------------------------------------------


def keystore(folder: Path) -> tuple[Path, Path]:
    key = create_keyfile_json(bytes.fromhex(KEY), b"right", kdf="pbkdf2", iterations=10)
    return (
        write_secret(folder / "key.json", json.dumps(key)),
        write_secret(folder / "password", "right"),
    )


READERS: dict[str, Callable[[Path], object]] = {
    "secret_from_file": secret_from_file,
    "read_key": read_key,
    "the first master key": Sealer.from_file,
    "dev.json": lambda path: dev_json.read(path.parent),
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_of_secrets_refuses_what_others_can_read(tmp_path: Path, name: str) -> None:
    path = write_secret(tmp_path / "dev.json", KEY)
    path.chmod(0o644)

    fault = fault_of(lambda: READERS[name](path))
    assert fault == f"{path} can be read by others; run: chmod 600 {path}"
    assert KEY not in fault


def test_an_old_master_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    new, old = write_secret(tmp_path / "new", KEY), write_secret(tmp_path / "old", "22" * 32)
    old.chmod(0o640)

    assert "old can be read by others" in fault_of(lambda: Sealer.from_file(new, old))


def test_a_keystore_and_its_password_are_both_judged(tmp_path: Path) -> None:
    key, password = keystore(tmp_path)
    assert read_key(key, password).hex() == KEY

    password.chmod(0o644)
    assert "password can be read by others" in fault_of(lambda: read_key(key, password))
    password.chmod(0o600)
    key.chmod(0o644)
    assert "key.json can be read by others" in fault_of(lambda: read_key(key, password))


@pytest.mark.parametrize(
    "command",
    [
        ["sign", "GET", "/x", "--brand-id", "0x" + "ab" * 20, "--key-file", "{file}"],
        ["status", "--admin-url", "http://127.0.0.1:1", "--admin-token-file", "{file}"],
        ["deploy", "--config", "none.toml", "--chain-id", "1", "--key", "{file}"],
    ],
    ids=["sign", "status", "deploy"],
)
async def test_commands_refuse_a_key_that_others_can_read(
    tmp_path: Path, command: list[str]
) -> None:
    path = write_secret(tmp_path / "key", KEY)
    path.chmod(0o644)

    done = await ltzd(*(str(path) if part == "{file}" else part for part in command))
    assert done.code == 1
    assert done.err == f"ltzd: {path} can be read by others; run: chmod 600 {path}\n"


def _hints(annotation: Any) -> list[Any]:
    """The classes that an annotation allows, with their metadata."""
    if get_origin(annotation) in {Union, types.UnionType, tuple}:
        return [hint for part in get_args(annotation) for hint in _hints(part)]
    return [annotation]


def _files_of(section: type[BaseModel], at: str = "") -> dict[str, bool]:
    """Each setting that names a file, and whether that file holds a secret."""
    files: dict[str, bool] = {}
    for name, field in section.model_fields.items():
        hint = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        for kind in [hint, *_hints(field.annotation)]:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                files |= _files_of(kind, f"{at}{name}.")
            elif "Path" in str(kind):
                is_secret = get_args(SecretFile)[1] in getattr(kind, "__metadata__", ())
                files[f"{at}{name}"] = files.get(f"{at}{name}", False) or is_secret
    return files


def test_every_file_that_settings_name_is_a_secrets_but_for_certificates_and_addresses() -> None:
    files = _files_of(Settings)

    assert {"master_key_file", "old_master_key_files", "http.tls_key_file"} <= set(files)
    assert {"operator.minter_password_file", "accounts.discord.token_file"} <= set(files)
    assert {"identity.app_secret_file", "identity.signer_key_file"} <= set(files)
    public = {name for name, is_secret in files.items() if not is_secret}
    signers = ("operator.wallets.web3signer", "operator.treasury.web3signer")
    files_of_a_signer = ("ca_file", "certificate_file")
    certificates = {f"{signer}.{file}" for signer in signers for file in files_of_a_signer}
    certificates |= {"http.tls_certificate_file", "admin.tls_certificate_file"}
    assert public == {"contracts.file"} | certificates


# --- what ltzd writes ---------------------------------------------------------------------------


def test_what_ltzd_writes_is_its_owners_alone_whatever_lay_there(tmp_path: Path) -> None:
    path, mask = tmp_path / "key", os.umask(0)
    try:
        path.write_text("old")
        unfinished = tmp_path / "key.new"
        unfinished.write_text("of a run that was killed")
        watched = unfinished.open()
        write_private(path, "new")
        made = tmp_path / "made"
        create_private(made, "made")
        Sealer.from_file(tmp_path / "master.key", create=True)
    finally:
        os.umask(mask)

    assert read_secret(path) == b"new"
    assert read_secret(made) == b"made"
    assert len(read_secret(tmp_path / "master.key")) == 65
    assert watched.read() == "of a run that was killed", "not the file that others had open"
    watched.close()
    with pytest.raises(FileExistsError):
        create_private(made, "another")


def test_a_link_that_others_have_put_there_is_not_written_through(tmp_path: Path) -> None:
    theirs, path = tmp_path / "theirs", tmp_path / "key"
    path.with_name("key.new").symlink_to(theirs)
    write_private(path, KEY)
    path.with_name("made").symlink_to(theirs)
    with pytest.raises(FileExistsError):
        create_private(path.with_name("made"), KEY)

    assert not theirs.exists()


def test_a_file_that_is_written_to_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with path.open("w") as file:
        path.chmod(0o644)
        assert make_private(file.fileno())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not make_private(file.fileno())
    with Path(os.devnull).open("w") as nowhere:
        assert not make_private(nowhere.fileno())


def test_a_file_that_is_no_secret_is_read_and_judged(tmp_path: Path) -> None:
    path = tmp_path / "ltzd.toml"
    path.write_text("text")
    for mode, is_exposed, is_changeable in (
        (0o600, False, False),
        (0o644, True, False),
        (0o664, True, True),
        (0o602, True, True),
    ):
        path.chmod(mode)
        judged = read_checked(path)
        assert judged.content == b"text"
        assert (judged.exposed is not None, judged.changeable is not None) == (
            is_exposed,
            is_changeable,
        )
    assert judged.changeable == f"{path} can be changed by others; run: chmod go-w {path}"
