"""Reads every log line that the tests cause, and finds what must never be in a line.

A line counts as it would be written: after ltzd's own redaction. The lines of instances are read
from their output, with the secrets of their own files.
"""

import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import structlog

from ltzd.concurrency.request_ids import add_request_id
from ltzd.daemon.logs import redact

EMAIL = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+@[A-Za-z0-9][\w-]*(\.[\w-]+)+")
"""An address at a host name with a dot."""
SIGNED_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.")
PREFIXED_KEY = re.compile(r"\b(ltzsk_|ltzak_|whsec_|sk_live_|sk_test_)[\w+/=-]{8,}")
BEARER = re.compile(r"\b(?:Bearer|Basic)\s+(?!\[redacted)[\w.+/=-]{8,}")
URL_PASSWORD = re.compile(r"://[^/\s@:\[\]]+:(?!\[redacted)[^/\s@\[\]]+@")
FORMS = (EMAIL, SIGNED_TOKEN, PREFIXED_KEY, BEARER, URL_PASSWORD)

KEYS = tuple((bytes([number]) * 32).hex() for number in (1, 2, 3))
"""The private keys of the tests' mint and relay wallets."""

_LEAST_LENGTH = 16
"""Of a secret: shorter texts, such as a chain id, occur in any line."""
_TEXT_LIMIT = 8_192


def faults_of(text: str, secrets: Iterable[str] = KEYS) -> list[str]:
    """The parts of a log that must not be there."""
    matches = [match[0] for form in FORMS for match in form.finditer(text)]
    return matches + [secret for secret in secrets if secret in text]


def secrets_in(folder: Path) -> set[str]:
    """The words of all small files below the folder that only their owner can read.

    These are keys, tokens and passwords; the database's own files are not read.
    """
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not path.stat().st_mode & 0o077
        and path.stat().st_size < _TEXT_LIMIT
        and path.suffix in {"", ".key", ".token", ".txt", ".secret", ".password"}
        and not {"postgres", "redis", "chain"} & set(path.relative_to(folder).parts)
    ]
    words = (word for path in files for word in path.read_text(errors="ignore").split())
    return {word.removeprefix("0x") for word in words if len(word) >= _LEAST_LENGTH}


class LogWatch(logging.Handler):
    """Watches structlog, also what `capture_logs` takes, and the standard library's loggers."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = 0
        self._faults: list[str] = []

    def take(self) -> list[str]:
        """The faults since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def install(self) -> None:
        """From now on, for this process. The lines go where they went before."""
        watch = self

        class Watched(structlog.make_filtering_bound_logger(0)):  # type: ignore[misc]
            def _proxy_to_logger(
                self, method_name: str, event: str | None = None, *args: Any, **facts: Any
            ) -> Any:
                watch.read({**self._context, "event": event, **facts})
                return super()._proxy_to_logger(method_name, event, *args, **facts)

        structlog.configure(wrapper_class=Watched)
        logging.getLogger().addHandler(self)

    def read(self, event: dict[str, Any]) -> None:
        self.lines += 1
        event = dict(add_request_id(None, "", event))
        event = dict(structlog.processors.format_exc_info(None, "", event))
        text = json.dumps(redact(None, "", event), default=str)
        self._faults += [f"{fault} in {text}" for fault in faults_of(text)]

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += logging.Formatter().formatException(record.exc_info)
        self.read({"event": text, "logger": record.name})
