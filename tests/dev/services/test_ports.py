"""Ports of servers that are chosen freely."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ltzd.dev.services import ports
from ltzd.errors import Misconfigured

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(not _EPHEMERAL.exists(), reason="not Linux")
def test_no_outgoing_connection_can_take_the_port_of_a_server_that_restarts() -> None:
    first_ephemeral = int(_EPHEMERAL.read_text().split()[0])
    assert max(ports.free_port() for _ in range(50)) < first_ephemeral


def test_a_chosen_port_can_be_listened_on() -> None:
    with socket.create_server((ports.LOOPBACK, port := ports.free_port())):
        assert not ports.is_free(port)


def test_no_other_process_chooses_a_chosen_port() -> None:
    port = ports.free_port()
    choose = f"""
from ltzd.dev.services import ports
ports._BELOW_EPHEMERAL = range({port}, {port + 1})
ports.free_port()
"""
    command = [sys.executable, "-c", choose]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert f"No free port was found between {port} and {port}" in done.stderr


def test_a_port_that_an_option_names_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((ports.LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr(ports, "_BELOW_EPHEMERAL", range(port, port + 1))
    ports.check_free(port, "--port")
    with pytest.raises(Misconfigured, match="No free port"):
        ports.free_port()
    with socket.create_server((ports.LOOPBACK, port)):
        assert not ports.is_free(port)
