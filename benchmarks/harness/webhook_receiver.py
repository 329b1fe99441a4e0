"""Brands' servers, a process of its own: paths that answer at once, soon, and after half a minute.

`python -m benchmarks.harness.webhook_receiver PORT`; `GET /taken` tells how many came to the first
two.
"""

import asyncio
import sys
import time

from aiohttp import web

QUICK, SOON, SLOW, TAKEN = "/quick", "/soon", "/slow", "/taken"
SOON_SECONDS = 0.05
SLOW_SECONDS = 30.0


class _Receiver:
    def __init__(self) -> None:
        self._count = 0
        self._first = self._last = 0.0

    async def take(self, request: web.Request) -> web.Response:
        await request.read()
        self._last = time.time()
        self._first = self._first or self._last
        self._count += 1
        return web.Response(status=204)

    async def take_soon(self, request: web.Request) -> web.Response:
        response = await self.take(request)
        await asyncio.sleep(SOON_SECONDS)
        return response

    async def take_slowly(self, request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(SLOW_SECONDS)
        return web.Response(status=204)

    async def take_counts(self, _request: web.Request) -> web.Response:
        """Answers count and seconds, and resets both."""
        answer = {"count": self._count, "seconds": self._last - self._first}
        self._count, self._first = 0, 0.0
        return web.json_response(answer)


def main(port: int) -> None:
    receiver, app = _Receiver(), web.Application()
    app.router.add_post(QUICK, receiver.take)
    app.router.add_post(SOON, receiver.take_soon)
    app.router.add_post(SLOW, receiver.take_slowly)
    app.router.add_get(TAKEN, receiver.take_counts)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
