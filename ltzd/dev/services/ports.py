"""Loopback ports: choosing free ones, and saying which option to use when one is taken."""

import errno
import socket

from ltzd.errors import Misconfigured

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    return _refusal(port) is None


def free_port() -> int:
    """A port that is free now; another program may take it before it is used."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def check_free(port: int, option_name: str) -> None:
    """Raises Misconfigured naming the option when nothing of ours could listen on `port`."""
    refusal = _refusal(port)
    if refusal is None:
        return
    if refusal == errno.EADDRINUSE:
        raise Misconfigured(
            f"Port {port} is in use; stop the other program or choose another with {option_name}."
        )
    raise Misconfigured(f"Port {port} cannot be used here; choose another with {option_name}.")


def _refusal(port: int) -> int | None:
    with socket.socket() as probe:
        # A port with old connections still fading away is free to servers, so it is to us.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OverflowError:
            return errno.EINVAL
        except OSError as error:
            return error.errno
    return None
