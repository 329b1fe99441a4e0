"""Tells a disk that refuses a write, of the output or of a file, from a lost connection."""

import errno

_OF_A_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})


def is_of_a_disk(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _OF_A_DISK


def sentence_of(error: OSError) -> str:
    """The file or the output, and why; for an error of which `is_of_a_disk` is true."""
    if error.filename is not None:
        return f"{error.filename} cannot be written: {error.strerror}."
    return (
        f"The output or a file cannot be written: {error.strerror}. Look whether the command did "
        "its work before you repeat it."
    )
