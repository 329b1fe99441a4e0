"""No settings file whatever ends in a traceback: it is read, or refused with sentences."""

import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ltzd.daemon.settings.settings import PREFIX, Settings, read_node, read_settings
from ltzd.errors import Misconfigured
from tests.support.installations import Installation
from tests.support.secret_files import write_secret

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "config" / "ltzd.example.toml").read_text()
KEYS = sorted(Settings.model_fields)
WORDS = [
    "",
    "0",
    "-1",
    "nan",
    "https://",
    "http://[",
    "postgresql://a:b@[::1/x",
    "0x",
    "0x" + "f" * 40,
]
WORDS += ["redis://:x@y/z", "\x00", "é", "true", "127.0.0.1:99999", "ws://h:port", "../..", "unix:"]
scalars = (
    st.sampled_from(WORDS)
    | st.text(max_size=20)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.dates()
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
FUZZ = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        monkeypatch.delenv(name)


def toml(value: Any) -> str:
    """The value as TOML. Strings are escaped, tables are inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        escaped = "".join(
            char if char.isascii() and char.isalnum() else f"\\U{ord(char):08X}" for char in value
        )
        return f'"{escaped}"'
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def places(document: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in document.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


def read(folder: Path, content: bytes) -> None:
    """Read the file in each way that a command does; a refusal has sentences, and all is used."""
    path = folder / "ltzd.toml"
    path.unlink(missing_ok=True)
    write_secret(path, "")
    path.write_bytes(content)
    for fault in (refusal(lambda: read_node(path)), refusal(lambda: used(path))):
        assert fault is None or fault.strip()


def used(path: Path) -> None:
    whole = read_settings(path)
    whole.refuse_dev_providers()
    assert whole.node.plain_urls()
    assert whole.operator.fees().cap > 0


def refusal(read_it: Callable[[], object]) -> str | None:
    try:
        read_it()
    except Misconfigured as error:
        return error.message
    return None


@FUZZ
@given(
    content=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace"))
)
@example(content=b"\xff\xfe")
@example(content=b"a = " + b"[" * 5000)
@example(content=b"node." * 500 + b"x = 1")
@example(content=b"a = 1" + b"0" * 5000)
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    read(tmp_path, content)


@FUZZ
@given(data=st.data(), value=values)
def test_any_value_in_any_place(tmp_path: Path, data: st.DataObject, value: Any) -> None:
    text = Installation.of(_fresh(tmp_path), "postgresql://h/d", "http://h:1").write().read_text()
    document = tomllib.loads(text)
    place = data.draw(st.sampled_from([*places(document), *((key,) for key in KEYS)]))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    read(tmp_path, toml_document(document).encode())


@FUZZ
@given(value=st.text(max_size=30), key=st.sampled_from([*KEYS, "http__port", "node__urls", "a__b"]))
def test_any_value_of_a_variable(tmp_path: Path, key: str, value: str) -> None:
    path = Installation.of(_fresh(tmp_path), "postgresql://h/d", "http://h:1").write()
    name = f"{PREFIX}{key.upper()}"
    with pytest.MonkeyPatch.context() as patch:
        try:
            patch.setenv(name, value)
        except ValueError:
            return  # A variable cannot hold a zero byte, nor text that is not Unicode.
        read(tmp_path, path.read_bytes())


def test_the_example_without_some_lines(tmp_path: Path) -> None:
    lines = EXAMPLE.splitlines()
    for number in range(0, len(lines), 9):
        read(tmp_path, "\n".join(lines[:number] + lines[number + 1 :]).encode())


def toml_document(document: dict[str, Any]) -> str:
    return "\n".join(f"{toml(key)} = {toml(value)}" for key, value in document.items())


def _fresh(folder: Path) -> Path:
    for path in folder.iterdir():
        path.unlink()
    return folder
