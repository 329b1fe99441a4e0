"""Reads files that hold secrets or keys, and refuses a file that other users can read.

The owner must be the user that runs ltzd, or root. The check examines the open file that is then
read, so the file cannot be exchanged in between; a symbolic link counts as its target. The folder's
permissions are not checked: another user who can write there can only put a file of their own in
its place, and its owner is refused.
"""

import os
import pwd
import shlex
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ltzd.errors import Misconfigured

MAX_BYTES = 2**20
"""The most that is read of any path; keys are much shorter."""

_ACL = "system.posix_acl_access"
_ACL_ENTRY = struct.Struct("<HHI")
_ACL_VERSION_BYTES = 4
_NAMED_USER, _OWNING_GROUP, _NAMED_GROUP, _MASK = 0x02, 0x04, 0x08, 0x10


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file's content, and a sentence for each permission that others have."""

    content: bytes = field(repr=False)
    exposed: str | None
    """The fault if the file holds a secret: others can read or change it."""
    changeable: str | None
    """The fault in any case: others can change the file."""


def read_secret(path: Path) -> bytes:
    """The whole file. Raises Misconfigured, with the command that fixes the permissions."""
    with open_secret(path) as descriptor:
        return read_descriptor(descriptor, path)


def read_secret_text(path: Path) -> str:
    """The file's text in UTF-8, stripped and without a byte-order mark.

    Raises Misconfigured like `read_secret`.
    """
    try:
        return read_secret(path).decode("utf-8-sig").strip()
    except UnicodeError:
        raise Misconfigured(f"{path} cannot be read: it is not UTF-8 text") from None


def read_checked(path: Path) -> CheckedFile:
    """Read a file that may hold a secret; the caller decides by its content.

    Raises Misconfigured if it cannot be read.
    """
    with open_file(path) as descriptor:
        exposed, changeable = _exposed(path, descriptor), _changeable(path, descriptor)
        return CheckedFile(read_descriptor(descriptor, path), exposed, changeable)


@contextmanager
def open_secret(path: Path) -> Iterator[int]:
    """Open a file that holds a secret. Raises Misconfigured like `read_secret`."""
    with open_file(path) as descriptor:
        exposed = _exposed(path, descriptor)
        if exposed is not None:
            raise Misconfigured(exposed)
        yield descriptor


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically and durably, with mode 0600. Raises OSError."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    create_private(unfinished, text)
    unfinished.replace(path)


def create_private(path: Path, text: str) -> None:
    """Create a file durably with mode 0600. An error leaves no file behind.

    Raises FileExistsError, OSError; the error names the file.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        error.filename = str(path)  # that of a full disk names none
        raise


def make_private(descriptor: int) -> bool:
    """Set the mode of an open regular file to 0600; return whether others could read it before."""
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or not facts.st_mode & 0o077:
        return False
    os.fchmod(descriptor, 0o600)
    return True


@contextmanager
def open_file(path: Path) -> Iterator[int]:
    """Open a file without a check of its permissions. Raises Misconfigured."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise Misconfigured(f"{path} cannot be read: it is a folder")
        yield descriptor
    finally:
        os.close(descriptor)


def read_descriptor(descriptor: int, path: Path) -> bytes:
    """Read an open file to its end; `path` is for messages. Raises Misconfigured."""
    content = b""
    try:
        while piece := os.read(descriptor, MAX_BYTES + 1 - len(content)):
            content += piece
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(content) > MAX_BYTES:
        raise Misconfigured(f"{path} cannot be read: it is larger than 1 MiB")
    return content


def _unreadable(path: Path, error: OSError) -> Misconfigured:
    return Misconfigured(f"{path} cannot be read: {error.strerror}")


def _exposed(path: Path, descriptor: int) -> str | None:
    facts = os.fstat(descriptor)
    foreign = _foreign(path, facts)
    if foreign is not None:
        return foreign
    if not facts.st_mode & 0o077 or _is_for_this_user(descriptor, facts):
        return None
    if _is_device(facts):
        return _device_fault(path)
    if _is_of_kubernetes(path):
        return f"{path} can be read by others; set defaultMode: 0400 on its Kubernetes volume"
    return f"{path} can be read by others; run: chmod 600 {_quoted(path)}"


def _changeable(path: Path, descriptor: int) -> str | None:
    facts = os.fstat(descriptor)
    foreign = _foreign(path, facts)
    if foreign is not None or not facts.st_mode & 0o022:
        return foreign
    if _is_device(facts):
        return _device_fault(path)
    return f"{path} can be changed by others; run: chmod go-w {_quoted(path)}"


def _is_device(facts: os.stat_result) -> bool:
    """Whether its mode must stay: programs of all users need /dev/null."""
    return stat.S_ISCHR(facts.st_mode) or stat.S_ISBLK(facts.st_mode)


def _device_fault(path: Path) -> str:
    return f"{path} is a device: name a file"


def _foreign(path: Path, facts: os.stat_result) -> str | None:
    """The fault of a file of another user, who can read and change it despite its mode."""
    user = os.geteuid()
    if facts.st_uid in {0, user}:
        return None
    owner, name = _user_name(facts.st_uid), _user_name(user)
    command = f"chown {name} {_quoted(path)} && chmod 600 {_quoted(path)}"
    choice = f"run ltzd as {owner}, or, if {name} is to run ltzd, run: {command}"
    return f"{path} belongs to the user {owner}; {choice}"


def _is_for_this_user(descriptor: int, facts: os.stat_result) -> bool:
    """Whether an access list grants the file to this user only, as for systemd's credentials.

    With an access list the mode's group bits are the upper bound of the list's entries.
    """
    if facts.st_mode & 0o037 or not hasattr(os, "getxattr"):
        return False
    try:
        entries = os.getxattr(descriptor, _ACL)
    except OSError:
        return False
    return grants_only(entries, os.geteuid())


def grants_only(access_list: bytes, user: int) -> bool:
    """Whether a POSIX access list grants nothing to any group or to any other user.

    The list is in the kernel's format: a version, then the tag, permissions and id of each entry.
    """
    entries = list(_ACL_ENTRY.iter_unpack(access_list[_ACL_VERSION_BYTES:]))
    has_mask = any(tag == _MASK for tag, _, _ in entries)
    return has_mask and not any(
        permissions
        and (tag in {_OWNING_GROUP, _NAMED_GROUP} or (tag == _NAMED_USER and holder != user))
        for tag, permissions, holder in entries
    )


def _is_of_kubernetes(path: Path) -> bool:
    """A mounted secret is a link into a folder such as `..2026_05_09_07_35_25.123`."""
    return any(part.startswith("..") for part in path.resolve().parts)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
