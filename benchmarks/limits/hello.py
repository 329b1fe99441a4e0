"""The machine's HTTP limit: one Sanic worker that answers hello, as a separate process.

`python -m benchmarks.limits.hello PORT`.
"""

import sys

from sanic import Request, Sanic
from sanic.response import HTTPResponse, text


def main(port: int) -> None:
    app = Sanic("hello")

    async def hello(_request: Request) -> HTTPResponse:
        return text("hello")

    app.add_route(hello, "/")
    app.run("127.0.0.1", port, single_process=True, access_log=False, motd=False)


if __name__ == "__main__":
    main(int(sys.argv[1]))
