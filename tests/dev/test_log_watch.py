"""The check of all log lines finds secrets, and reads what an instance writes."""

import logging
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from tests.support.instances.instance import Instance
from tests.support.log_watch import KEYS, LogWatch, faults_of, secrets_in


@pytest.mark.parametrize(
    "text",
    [
        "no user ada.l+x@shop.example here",
        "token eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln",
        "Authorization: Bearer 0123456789abcdef",
        "key ltzsk_0123456789abcdef",
        "postgresql://ltzd:hush@127.0.0.1/ltzd",
        f"signed with 0x{KEYS[0]}",
    ],
)
def test_a_secret_in_a_line_is_found(text: str) -> None:
    assert faults_of(text)
    assert not faults_of("a mint of 7 rewards by 0x" + "ab" * 20)


def test_lines_of_both_kinds_are_read_also_while_a_test_captures_them(
    log_watch: LogWatch,
) -> None:
    before = log_watch.lines
    with capture_logs():
        structlog.get_logger().info("mint.signed", note=f"with {KEYS[0]}")
    logging.getLogger("somebody.else").warning("with %s", KEYS[1])
    assert log_watch.lines == before + 2
    first, second = log_watch.take()
    assert first.startswith(KEYS[0])
    assert second.startswith(KEYS[1])


def test_what_ltzd_redacts_is_no_fault(log_watch: LogWatch) -> None:
    structlog.get_logger().info("somebody ada@shop.example", email="ada@shop.example")
    assert log_watch.take() == []


def test_the_secrets_of_a_folder_are_its_private_files(tmp_path: Path) -> None:
    for name, mode in (("master.key", 0o600), ("readme.txt", 0o644)):
        path = tmp_path / name
        path.write_text(f"0x{name.ljust(20, 'x')}\n7\n")
        path.chmod(mode)
    assert secrets_in(tmp_path) == {"master.keyxxxxxxxxxx"}


async def test_a_running_instance_has_secrets_that_its_log_is_searched_for(
    one_instance: Instance,
) -> None:
    assert len(secrets_in(one_instance.data_dir)) >= 3
    one_instance.assert_nothing_secret_logged()
