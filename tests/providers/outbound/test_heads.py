"""The head of an answer however its bytes are cut, and whether its connection may be used again."""

import weakref

import pytest

from ltzd.providers.outbound.heads import HeadReader
from ltzd.providers.outbound.http_client import HttpResponse
from tests.support.garbage import no_collection

NO_CONTENT = b"HTTP/1.1 204 No Content\r\nX-Name: one\r\n\r\n"
WITH_BODY = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nok"
CONTINUE = b"HTTP/1.1 100 Continue\r\nX-Interim: yes\r\n\r\n"


def read(*parts: bytes) -> tuple[HeadReader, HttpResponse | None]:
    """Returns the reader, and what it made of the last part."""
    reader, answer = HeadReader(), None
    for part in parts:
        answer = reader.feed(part)
    return reader, answer


@pytest.mark.parametrize("answer", [NO_CONTENT, WITH_BODY, CONTINUE + NO_CONTENT])
def test_the_same_head_is_read_however_its_bytes_are_cut(answer: bytes) -> None:
    reader, whole = read(answer)
    assert whole is not None
    for at in range(1, len(answer)):
        assert read(answer[:at], answer[at:])[1] == whole
    assert reader.may_reuse_connection


def test_an_interim_answer_is_not_the_answer() -> None:
    reader = HeadReader()

    assert reader.feed(CONTINUE) is None
    assert reader.feed(NO_CONTENT) == HttpResponse(204, {"X-Name": "one"}, b"")


def test_a_connection_that_ends_within_the_head_has_no_answer() -> None:
    reader, answer = read(NO_CONTENT[:-1])

    assert answer is None
    with pytest.raises(ConnectionError):
        reader.end()


@pytest.mark.parametrize(
    "answer",
    [
        WITH_BODY[:-1],
        WITH_BODY + NO_CONTENT,
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["cut body", "an answer too many", "close", "without length", "HTTP/1.0"],
)
def test_a_connection_is_not_used_again_after(answer: bytes) -> None:
    reader, response = read(answer)

    assert response is not None
    assert not reader.may_reuse_connection


@pytest.mark.parametrize(
    "answer",
    [
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
    ids=["not HTTP", "another protocol", "too long"],
)
def test_an_answer_without_a_head_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"answer|protocols"):
        read(answer)


@pytest.mark.parametrize("answer", [WITH_BODY, NO_CONTENT[:-1]], ids=["whole", "cut"])
def test_a_reader_ends_with_its_last_reference(answer: bytes) -> None:
    with no_collection():
        reader, _ = read(answer)
        reference = weakref.ref(reader)
        del reader
        assert reference() is None
