"""Configures logging: a JSON object per line, or coloured text on a terminal, without secrets.

The log lines of ltzd, of Sanic and of other libraries pass the same processors. Tokens, keys and
e-mail addresses are removed by the names of their fields and by their format anywhere in a text.
`log_file` writes the lines, and holds up nothing.
"""

import atexit
import logging
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from ltzd.concurrency.request_ids import add_request_id
from ltzd.daemon.log_file import LogFile

REDACTED = "[redacted]"

SECRET_WORDS = frozenset({"email", "authorization", "password", "passphrase", "secret", "cookie"})
"""A field with one of these words in its name is redacted."""
SECRET_ENDS = frozenset({"token", "tokens", "key", "keys", "mnemonic", "raw"})
"""A field whose name ends with one of these is redacted: `access_token`, but not `token_id`."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_SECRET_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=://)[^/\s@]+(?=@)"), REDACTED),  # a password in a URL
    (re.compile(r"\b(Bearer|Basic)\s+[^\s\"',]+", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), REDACTED),  # a JWT
    (re.compile(r"\b(ltzsk_|ltzak_|whsec_|sk_live_|sk_test_)[\w+/=-]+"), rf"\1{REDACTED}"),
    (re.compile(r"(?<![\w@])[\w.!#$%&'*+/=?^`{|}~-]+@(?!\[redacted)[\w-]+(\.[\w-]+)*"), REDACTED),
)

_HARMLESS = re.compile(r"[0-9a-fA-Fx-]*")
"""Ids, addresses and hashes: no pattern above matches them. Many lines hold hundreds."""

QUIET = {
    "sanic.root": "WARNING",
    "sanic.server": "WARNING",
    "alembic": "WARNING",
    "asyncpg.pool": "ERROR",
}
"""Loggers whose lines below this level report steps instead of changes of state; asyncpg's warnings
repeat with a traceback, at each attempt to connect, what ltzd reports as one outage."""
SANIC = ("sanic.root", "sanic.error", "sanic.access", "sanic.server", "sanic.websockets")


def configure(
    level: str = "INFO", stream: TextIO | None = None, *, as_json: bool | None = None
) -> None:
    """Send all log lines to `stream` (default: stderr).

    `as_json` chooses the format; by default a terminal gets text and anything else gets JSON.
    """
    target = LogFile(stream or sys.stderr)
    atexit.register(target.finish)
    plain = as_json if as_json is not None else not target.isatty()
    shared = _processors()
    renderer: Processor = (
        structlog.processors.JSONRenderer() if plain else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", target)),
        cache_logger_on_first_use=False,
    )
    _configure_stdlib(target, level, shared, renderer)


def _processors() -> Sequence[Processor]:
    return [
        add_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]


def _configure_stdlib(
    target: LogFile, level: str, shared: Sequence[Processor], renderer: Processor
) -> None:
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *shared,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    for name in SANIC:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger("sanic.error").addFilter(_is_server_error)
    for name, quiet_level in QUIET.items():
        logging.getLogger(name).setLevel(quiet_level)


def _is_server_error(record: logging.LogRecord) -> bool:
    """False for Sanic's report of an unread request body, which is the caller's error."""
    return not record.getMessage().endswith("body not consumed.")


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The event with secrets replaced at any depth."""
    return {name: _redact_value(name, value) for name, value in event.items()}


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    return not SECRET_WORDS.isdisjoint(words) or (bool(words) and words[-1] in SECRET_ENDS)


def _redact_value(name: str, value: Any) -> Any:
    if is_secret(name):
        return REDACTED
    if isinstance(value, str):
        return _redact_text(value)
    if isinstance(value, dict):
        return {str(key): _redact_value(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redact_value("", inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _redact_text("0x" + value.hex() if isinstance(value, bytes) else str(value))


def _redact_text(text: str) -> str:
    if _HARMLESS.fullmatch(text):
        return text
    for pattern, replacement in _SECRET_PATTERNS:
        text = pattern.sub(replacement, text)
    return text
