"""Ports of servers that are chosen freely."""

import socket
from pathlib import Path

import pytest

from ltzd.dev.services import ports

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(not _EPHEMERAL.exists(), reason="not Linux")
def test_no_outgoing_connection_can_take_the_port_of_a_server_that_restarts() -> None:
    first_ephemeral = int(_EPHEMERAL.read_text().split()[0])
    assert max(ports.free_port() for _ in range(200)) < first_ephemeral


def test_a_chosen_port_can_be_listened_on() -> None:
    with socket.create_server((ports.LOOPBACK, port := ports.free_port())):
        assert not ports.is_free(port)
