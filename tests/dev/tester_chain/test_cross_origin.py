"""Which web pages may call the tester chain."""

import aiohttp
import pytest

from tests.support.chain.tester import Rpc, a_tester

CALL = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"}
OURS = ("http://localhost:5173", "http://127.0.0.1", "https://[::1]:8443")
FOREIGN = ("http://example.com", "http://localhost.example.com", "null", "http://127.0.0.1.nip.io")


async def _post(rpc: Rpc, origin: str) -> aiohttp.ClientResponse:
    return await rpc.http.post(rpc.url, json=CALL, headers={"Origin": origin})


@pytest.mark.parametrize("origin", OURS)
async def test_a_page_of_this_machine_reads_the_reply(origin: str) -> None:
    async with a_tester() as rpc:
        requested = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type,x-client",
        }
        async with rpc.http.options(rpc.url, headers=requested) as preflight:
            assert preflight.status == 204
            assert preflight.headers["Access-Control-Allow-Origin"] == origin
            assert preflight.headers["Access-Control-Allow-Headers"] == "content-type,x-client"
        reply = await _post(rpc, origin)
        assert reply.headers["Access-Control-Allow-Origin"] == origin
        assert "result" in await reply.json()
        async with rpc.http.ws_connect(rpc.url, origin=origin) as socket:
            await socket.send_json(CALL)
            assert "result" in await socket.receive_json(timeout=20)


@pytest.mark.parametrize("origin", FOREIGN)
async def test_a_page_from_elsewhere_reaches_nothing(origin: str) -> None:
    async with a_tester() as rpc:
        assert (await _post(rpc, origin)).status == 403
        async with rpc.http.options(rpc.url, headers={"Origin": origin}) as preflight:
            assert preflight.status == 403
            assert "Access-Control-Allow-Origin" not in preflight.headers
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await rpc.http.ws_connect(rpc.url, origin=origin)
