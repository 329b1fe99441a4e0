"""The settings of the chain's nodes: several URLs, or one."""

from pathlib import Path

import pytest

from ltzd.daemon.settings.settings import read_settings
from tests.daemon.settings.test_settings import SHORT, a_file, faults_of
from tests.support.secret_files import write_secret

ONE = 'rpc_url = "https://node.example/hunter2"'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_secret(tmp_path / "secret", "hunter2\n")
    return tmp_path


def with_node(folder: Path, lines: str) -> Path:
    return a_file(folder, SHORT.replace(ONE, lines))


def test_one_url_is_a_node(folder: Path) -> None:
    assert read_settings(a_file(folder)).node.plain_urls() == ("https://node.example/hunter2",)


def test_several_urls_are_nodes_in_their_order(folder: Path) -> None:
    urls = 'urls = ["https://a.example/k", "wss://b.example", "http://127.0.0.1:1"]'
    text = f"{urls}\nchain_id = 8453"
    node = read_settings(with_node(folder, text)).node
    assert node.plain_urls() == ("https://a.example/k", "wss://b.example", "http://127.0.0.1:1")
    assert node.chain_id == 8453


def test_a_variable_separates_urls_by_commas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LTZD_NODE__URLS", "https://a.example, wss://b.example")
    urls = read_settings(with_node(folder, "poll_seconds = 2.0")).node.plain_urls()
    assert urls == ("https://a.example", "wss://b.example")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("poll_seconds = 1.0", "node: give either urls, the nodes of the chain, or rpc_url"),
        (f'{ONE}\nurls = ["https://a.example"]', "node: give either urls, the nodes of the chain"),
        ('urls = ["https://a.example", "https://a.example"]', "node: urls names a node twice"),
        ("urls = []", "node.urls: "),
        ('urls = ["ftp://a.example"]', "node.urls[0]: must be a URL that starts with https://"),
        (f"{ONE}\nchain_id = 0", "node.chain_id: must be at least 1"),
    ],
)
def test_a_fault_of_the_nodes_is_told(folder: Path, lines: str, fault: str) -> None:
    [reported] = faults_of(with_node(folder, lines))
    assert fault in reported
    assert "hunter2" not in reported


def test_a_url_is_a_secret(folder: Path) -> None:
    assert "hunter2" not in repr(read_settings(a_file(folder)))
