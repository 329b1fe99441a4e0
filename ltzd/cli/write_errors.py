"""Tells an output, a disk or a file that cannot be used from a lost connection."""

import errno
import os
import sys
from contextlib import suppress

_OF_A_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})


def is_of_a_disk(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _OF_A_DISK


def is_of_output(error: BaseException) -> bool:
    """Whether a file, or the reader of the output, is gone; asyncpg raises no BrokenPipeError."""
    return is_of_a_disk(error) or isinstance(error, BrokenPipeError)


def drop_output() -> None:
    """Discard what standard output still holds: Python would fail again when it flushes at exit."""
    with suppress(OSError, ValueError):  # a test's stream has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def sentence_of(error: OSError) -> str:
    """The file or the output, and why; for an error that names a file or `is_of_a_disk`."""
    if error.filename is not None:
        use = "written" if is_of_a_disk(error) else "used"
        return f"{error.filename} cannot be {use}: {error.strerror}."
    return (
        f"The output or a file cannot be written: {error.strerror}. Look whether the command did "
        "its work before you repeat it."
    )
