"""Loopback ports: finding free ones, and refusing taken ones with a sentence for the user."""

import errno
import secrets
import socket

from ltzd.errors import Misconfigured

LOOPBACK = "127.0.0.1"

_BELOW_EPHEMERAL = range(15_000, 32_768)
"""Ports that no system gives to outgoing connections or to servers that name no port.

A server that is down for a moment finds its port free again, however many connections are made
meanwhile.
"""
_TRIES = 100


def is_free(port: int) -> bool:
    return _bind_error(port) is None


def free_port(but: int | None = None) -> int:
    """A port other than `but` that is free now; another program may take it before it is used.

    Raises Misconfigured if none can be found.
    """
    for _ in range(_TRIES):
        port = secrets.choice(_BELOW_EPHEMERAL)
        if port != but and is_free(port):
            return port
    raise Misconfigured(
        f"No free port was found between {_BELOW_EPHEMERAL[0]} and {_BELOW_EPHEMERAL[-1]}; "
        "stop programs that listen there."
    )


def check_free(port: int, option_name: str) -> None:
    """Raises Misconfigured, which names the option, if a server cannot listen on `port`."""
    error_number = _bind_error(port)
    if error_number is None:
        return
    if error_number == errno.EADDRINUSE:
        raise Misconfigured(
            f"Port {port} is in use; stop the other program or choose another with {option_name}."
        )
    raise Misconfigured(f"Port {port} cannot be used here; choose another with {option_name}.")


def _bind_error(port: int) -> int | None:
    with socket.socket() as probe:
        # As servers do: a port whose old connections are in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OverflowError:
            return errno.EINVAL
        except OSError as error:
            return error.errno
    return None
