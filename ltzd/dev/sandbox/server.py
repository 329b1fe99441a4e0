"""The sandbox: one local server that speaks the wire formats of the outside services.

It listens on 127.0.0.1 only and no option changes that. What it knows lives under
`<data_dir>/sandbox/`, readable by its owner alone, and survives a kill -9.
"""

import errno
from pathlib import Path

from aiohttp import web

from ltzd.dev.sandbox import pages
from ltzd.dev.sandbox.credentials import AppCredentials, SigningKeys
from ltzd.dev.sandbox.explorer import Explorer
from ltzd.dev.sandbox.explorer_views import BASE as EXPLORER_BASE
from ltzd.dev.sandbox.faults import Faults
from ltzd.dev.sandbox.gate import loopback_only, refusals
from ltzd.dev.sandbox.identity_api import PREFIX as IDENTITY_PREFIX
from ltzd.dev.sandbox.identity_api import IdentityApi
from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.dev.sandbox.node_reads import NodeReads
from ltzd.dev.sandbox.token_door import TokenDoor
from ltzd.dev.sandbox.tokens import TokenMint
from ltzd.dev.sandbox.users import UserBook
from ltzd.errors import Misconfigured
from ltzd.providers.identity import IdentityPolicy
from ltzd.values import Address

_HOST = "127.0.0.1"
_LARGEST_REQUEST_BYTES = 256 * 1024
_STOP_SECONDS = 1.0


class Sandbox:
    """`port` 0 takes a free one; URLs and credentials are known after `start`."""

    def __init__(self, data_dir: Path, port: int, rpc_url: str, ltz: Address | None) -> None:
        self.faults = Faults()
        self._path = data_dir / "sandbox" / "identity.jsonl"
        self._port = port
        self._node = NodeReads(rpc_url)
        self._ltz = ltz
        self._journal: Journal | None = None
        self._runner: web.AppRunner | None = None
        self._app: AppCredentials | None = None
        self._keys: SigningKeys | None = None

    async def start(self) -> None:
        """Raises Misconfigured for an occupied port or a data directory that cannot be used."""
        try:
            self._journal, records = Journal.open(self._path)
            self._app, users = await _recalled(self._journal, records)
            await self._listen(self._application(self._app, users))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self.faults.end()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self._node.close()
        journal, self._journal = self._journal, None
        if journal is not None:
            await journal.close()

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._port}"

    @property
    def explorer_url(self) -> str:
        return self.url + EXPLORER_BASE

    def identity_policy(self) -> IdentityPolicy:
        app = self._credentials()
        return IdentityPolicy(self.url + IDENTITY_PREFIX, app.app_id, app.app_secret)

    def rotate_signing_key(self, *, keeps_old: bool = False) -> None:
        """As the identity provider does now and then, or in a hurry."""
        assert self._keys is not None, "the sandbox has not started"
        self._keys.rotate(keeps_old=keeps_old)

    def doors(self) -> dict[str, str]:
        """The `sandbox` part of dev.json."""
        app_id = self._credentials().app_id
        return {
            "identityTokenUrl": f"{self.url}/doors/identity-token",
            "jwksUrl": f"{self.url}{IDENTITY_PREFIX}/v1/apps/{app_id}/jwks.json",
            "faultUrl": f"{self.url}/doors/fault",
        }

    def _credentials(self) -> AppCredentials:
        assert self._app is not None, "the sandbox has not started"
        return self._app

    def _application(self, app: AppCredentials, users: UserBook) -> web.Application:
        application = web.Application(
            middlewares=[loopback_only, refusals, self.faults.middleware],
            client_max_size=_LARGEST_REQUEST_BYTES,
        )
        self._keys = SigningKeys(app)
        application.add_routes(IdentityApi(users, app, self._keys).routes())
        application.add_routes(Explorer(self._node, self._ltz).routes())
        mint = TokenMint(app.app_id, self._keys)
        application.router.add_post("/doors/identity-token", TokenDoor(users, mint).open)
        application.router.add_post("/doors/fault", self.faults.door)
        application.router.add_get("/", self._root_page)
        return application

    async def _listen(self, application: web.Application) -> None:
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=_STOP_SECONDS
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, _HOST, self._port).start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Misconfigured(
                    f"Port {self._port} is taken: stop what listens there or choose another port."
                ) from error
            raise Misconfigured(
                f"The sandbox cannot listen on port {self._port}: {error.strerror}."
            ) from error
        self._port = int(self._runner.addresses[0][1])

    async def _root_page(self, _request: web.Request) -> web.Response:
        doors = self.doors()
        return pages.page(
            "Sandbox of the outside services",
            pages.note("What ltzd asks of the outside world in production, answered locally."),
            pages.table(
                ("What", "Where"),
                [
                    [
                        pages.text("Explorer of the dev chain"),
                        pages.link("/explorer/", "/explorer/"),
                    ],
                    [pages.text("Identity provider"), pages.text(f"{self.url}{IDENTITY_PREFIX}")],
                    [pages.text("Its token-signing keys"), pages.text(doors["jwksUrl"])],
                    [
                        pages.text('Tokens and wallet of a user: POST {"email"}'),
                        pages.text(doors["identityTokenUrl"]),
                    ],
                    [
                        pages.text('Faults: POST {"service", "status", "times"}'),
                        pages.text(doors["faultUrl"]),
                    ],
                ],
            ),
        )


async def _recalled(journal: Journal, records: list[Record]) -> tuple[AppCredentials, UserBook]:
    """What the journal remembers; a new journal gets credentials first."""
    users = UserBook(journal)
    if not records:
        app = AppCredentials.new()
        await journal.durable(journal.append(app.record()))
        return app, users
    try:
        for record in records[1:]:
            users.remember(record)
        return AppCredentials.remembered(records[0]), users
    except (KeyError, ValueError, TypeError, AssertionError) as error:
        raise Misconfigured(
            "The sandbox's data directory is damaged: start once with --clean to begin anew."
        ) from error
