"""The HTTP client under the providers, over real HTTP: bounds, failures and closing."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from ltzd.providers.outbound.http_client import (
    ClientClosed,
    HttpClient,
    HttpResponse,
    MalformedAnswerError,
    RequestFailed,
    object_in,
)
from tests.support.services.web_servers import raw_server, sending, served_at

MAX_BODY_BYTES = 1_000


async def answer(request: web.Request) -> web.StreamResponse:
    match request.match_info["name"]:
        case "large":
            return web.Response(body=b"x" * (MAX_BODY_BYTES + 1))
        case "stream":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"x" * (MAX_BODY_BYTES + 1))
            return response
        case "silent":
            await asyncio.Event().wait()
        case "moved":
            raise web.HTTPFound("/json")
        case "peer":
            assert request.transport is not None
            name = request.transport.get_extra_info("peername")
            return web.json_response({"peer": name, "padding": "x" * (MAX_BODY_BYTES // 2)})
        case "headers":
            return web.json_response(dict(request.headers))
    return web.json_response({"ok": True}, status=418)


@pytest.fixture
async def base() -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_get("/{name}", answer)
    async with served_at(application) as base:
        yield base


async def test_an_answer_of_any_status_is_returned_whole(base: str) -> None:
    async with HttpClient(max_body_bytes=MAX_BODY_BYTES) as http:
        response = await http.request("GET", f"{base}/json")

    assert response.status == 418
    assert response.content_type == "application/json"
    assert response.json_object() == {"ok": True}


async def test_the_clients_headers_and_the_requests_own_are_sent(base: str) -> None:
    async with HttpClient(max_body_bytes=MAX_BODY_BYTES, headers={"X-Client": "1"}) as http:
        response = await http.request("GET", f"{base}/headers", headers={"X-Request": "2"})

    headers = response.json_object() or {}
    assert (headers["X-Client"], headers["X-Request"]) == ("1", "2")


@pytest.mark.parametrize("name", ["large", "stream"])
async def test_a_longer_body_than_allowed_is_a_failure(base: str, name: str) -> None:
    async with HttpClient(max_body_bytes=MAX_BODY_BYTES) as http:
        with pytest.raises(RequestFailed) as failure:
            await http.request("GET", f"{base}/{name}")

    assert failure.value.reason == f"the body is longer than {MAX_BODY_BYTES} bytes"


async def test_a_megabyte_of_interim_answers_is_a_failure() -> None:
    """Decoding them takes ten times as long as the service needs to send them."""
    interim = b"HTTP/1.1 102 Processing\r\n\r\n" * 40_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    async with (
        raw_server(sending(interim, answer)) as port,
        HttpClient(max_body_bytes=MAX_BODY_BYTES) as http,
    ):
        with pytest.raises(RequestFailed) as failure:
            await http.request("GET", f"http://127.0.0.1:{port}/")

    assert failure.value.reason == "ServerDisconnectedError"


async def test_each_answer_of_a_kept_connection_has_the_whole_bound(base: str) -> None:
    async with HttpClient(max_body_bytes=MAX_BODY_BYTES, max_connections=1) as http:
        peers = [(await http.request("GET", f"{base}/peer")).json_object() for _ in range(10)]

    assert len({str(peer) for peer in peers}) == 1, "one connection brought all answers"


async def test_a_redirect_is_an_answer_and_is_not_followed(base: str) -> None:
    async with HttpClient(max_body_bytes=MAX_BODY_BYTES) as http:
        assert (await http.request("GET", f"{base}/moved")).status == 302


async def test_a_request_ends_in_its_time(base: str) -> None:
    async with HttpClient(max_body_bytes=MAX_BODY_BYTES) as http:
        with pytest.raises(RequestFailed) as failure:
            await http.request("GET", f"{base}/silent", timeout_seconds=0.05)

    assert failure.value.reason == "no answer in time"


async def test_a_reason_holds_nothing_of_the_url() -> None:
    async with HttpClient(max_body_bytes=MAX_BODY_BYTES) as http:
        with pytest.raises(RequestFailed) as failure:
            await http.request("GET", "http://127.0.0.1:1/secret?key=hush")

    assert failure.value.reason == "ClientConnectorError"


async def test_a_closed_client_sends_nothing(base: str) -> None:
    http = HttpClient(max_body_bytes=MAX_BODY_BYTES)
    await http.close()

    with pytest.raises(ClientClosed):
        await http.request("GET", f"{base}/json")


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_malformed(body: bytes) -> None:
    response = HttpResponse(200, {}, body)

    assert response.json_object() is None
    with pytest.raises(MalformedAnswerError):
        object_in(response)
