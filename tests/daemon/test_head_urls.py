"""Heads are announced by WebSocket nodes, and in dev mode by the chain of this machine."""

import pytest

from ltzd.daemon.indexer import head_urls

URLS = ("https://first.example/key", "wss://second.example/key", "ws://10.0.0.7:8546")
SOCKETS = ["wss://second.example/key", "ws://10.0.0.7:8546"]


def test_only_web_socket_urls_are_asked_for_heads() -> None:
    assert head_urls([*URLS, "http://127.0.0.1:8545"], is_dev=False) == SOCKETS


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_in_dev_mode_a_chain_of_this_machine_is_asked_at_its_http_port(host: str) -> None:
    urls = [*URLS, f"http://{host}:8545/", "http://10.0.0.7:8545"]
    assert head_urls(urls, is_dev=True) == [*SOCKETS, f"ws://{host}:8545/"]
