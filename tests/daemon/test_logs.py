"""Log lines are JSON and hold no tokens, keys or e-mail addresses."""

import errno
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import pytest
import structlog

from ltzd import telemetry
from ltzd.concurrency.request_ids import begin_request
from ltzd.daemon.logs import configure, is_secret


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    before = structlog.get_config()
    configure("INFO", stream)
    yield stream
    structlog.configure(**before)
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def written(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def in_request(request_id: str, log: Callable[[], None]) -> None:
    """Call `log` as the task that serves this request does."""

    def serve() -> None:
        begin_request(request_id)
        log()

    copy_context().run(serve)


def test_a_line_is_json_with_time_level_and_request_id(lines: io.StringIO) -> None:
    log = structlog.get_logger()
    in_request("r-1", lambda: log.info("event.recorded", ltz=100, wallet="0x12", hash=b"\x01\x02"))
    (line,) = written(lines)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "event.recorded",
        "level": "info",
        "request_id": "r-1",
        "ltz": 100,
        "wallet": "0x12",
        "hash": "0x0102",
    }


@pytest.mark.parametrize(
    "name",
    ["email", "userEmail", "user_email", "access_token", "identityToken", "Authorization", "key",
     "apiKey", "security_key", "private_key", "secret", "webhook_secret", "client_secret_value",
     "password", "dbPassword", "cookie", "raw"],
)  # fmt: skip
def test_fields_with_secret_names_are_redacted_however_deep(lines: io.StringIO, name: str) -> None:
    structlog.get_logger().info("x", **{name: "hush"})
    structlog.get_logger().info("x", deep={"list": [{name: {"a": "hush"}}]})
    assert "hush" not in lines.getvalue()
    assert lines.getvalue().count("[redacted]") == 2


@pytest.mark.parametrize(
    "name", ["token_id", "tokenId", "keyset", "monkey", "emails_sent", "nonce"]
)
def test_fields_that_only_sound_alike_stay(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        "no user ada.l+x@example.com here",
        "Authorization: Bearer abc.def",
        "got eyJhbGciOi.eyJzdWIi.c2ln in",
        "postgresql://ltzd:abc.def@127.0.0.1/ltzd",
        "key ltzsk_0123456789abcdef",
    ],
)
def test_secrets_are_found_by_their_form_in_any_text(lines: io.StringIO, text: str) -> None:
    structlog.get_logger().info(text, error=text)
    logging.getLogger("somebody.else").warning("they say %s", text)
    try:
        raise ValueError(text)
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("sanic.error").exception("failed")
    for secret in ("ada.l+x", "abc.def", "eyJ", "0123456789abcdef"):
        assert secret not in lines.getvalue()
    assert "ValueError" in lines.getvalue()
    assert len(written(lines)) == 4


def test_other_libraries_lines_are_json_with_our_request_id(lines: io.StringIO) -> None:
    in_request("r-2", lambda: logging.getLogger("sanic.error").error("oh"))
    logging.getLogger("sanic.root").info("Goin' Fast")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    first, second = written(lines)
    assert (first["event"], first["level"], first["logger"], first["request_id"]) == (
        "oh",
        "error",
        "sanic.error",
        "r-2",
    )
    assert "DeprecationWarning: old" in second["event"]


def test_attempts_to_connect_leave_no_tracebacks(lines: io.StringIO) -> None:
    logging.getLogger("asyncpg.pool").warning("Failed to restore the floor")
    assert lines.getvalue() == ""


def test_lines_below_the_level_are_not_written(lines: io.StringIO) -> None:
    structlog.get_logger().debug("step")
    logging.getLogger("asyncio").debug("step")
    assert lines.getvalue() == ""


def test_a_terminal_gets_text(lines: io.StringIO) -> None:
    configure("INFO", lines, as_json=False)
    structlog.get_logger().info("event.recorded", email="ada@example.com")
    assert "event.recorded" in lines.getvalue()
    assert "ada@" not in lines.getvalue()


class FullDisk(io.StringIO):
    """A log file that refuses everything until there is space again."""

    has_space = False

    def write(self, text: str) -> int:
        if not self.has_space:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


@pytest.mark.usefixtures("lines")
def test_a_log_that_cannot_be_written_ends_nothing_and_is_counted() -> None:
    disk = FullDisk()
    configure("INFO", disk)
    before = telemetry.LOG_LINES_LOST._value.get()
    structlog.get_logger().info("mint.signed", transaction=1)
    logging.getLogger("somebody.else").warning("lost too")
    assert telemetry.LOG_LINES_LOST._value.get() == before + 2

    disk.has_space = True
    structlog.get_logger().info("mint.signed", transaction=2)
    (line,) = written(disk)
    assert line["transaction"] == 2
