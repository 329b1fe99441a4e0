"""The sandbox server: one process that speaks the wire formats of all outside services.

The server listens on 127.0.0.1 only; no option changes that. Its data is in `<data_dir>/sandbox/`,
readable by its owner alone, and survives a kill -9.
"""

import errno
from pathlib import Path

from aiohttp import web

from ltzd.dev.sandbox import pages
from ltzd.dev.sandbox.access import error_middleware, loopback_only
from ltzd.dev.sandbox.dns.server import DnsServer
from ltzd.dev.sandbox.explorer.node_reads import NodeReads
from ltzd.dev.sandbox.explorer.pages import Explorer
from ltzd.dev.sandbox.explorer.views import BASE as EXPLORER_BASE
from ltzd.dev.sandbox.faults import Faults
from ltzd.dev.sandbox.identity.api import PREFIX as IDENTITY_PREFIX
from ltzd.dev.sandbox.identity.api import IdentityApi
from ltzd.dev.sandbox.identity.credentials import AppCredentials, TokenSigningKeys
from ltzd.dev.sandbox.identity.token_control import TokenControl
from ltzd.dev.sandbox.identity.tokens import TokenIssuer
from ltzd.dev.sandbox.identity.users import UserStore
from ltzd.dev.sandbox.identity.wallet_app import WalletApp
from ltzd.dev.sandbox.identity.wallet_rpc import app_signer
from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.dev.sandbox.oauth.app import CONTROL_PATH as ACCOUNTS_CONTROL
from ltzd.dev.sandbox.oauth.app import AccountApis, levels_url
from ltzd.dev.sandbox.payments.app import CONTROL_PATH as PAYMENTS_CONTROL
from ltzd.dev.sandbox.payments.app import SandboxPaymentProvider
from ltzd.dev.sandbox.payments.views import BASE as PAY_BASE
from ltzd.dev.sandbox.site.api import PREFIX as SITE_PREFIX
from ltzd.dev.sandbox.site.app import CONTROL_PATH as SITE_CONTROL
from ltzd.dev.sandbox.site.app import HostSite
from ltzd.dev.sandbox.site.demo_pages import HOME as DEMO_SITE
from ltzd.dev.sandbox.site.demo_pages import WALLET_APP
from ltzd.dev.sandbox.webhooks.inbox import CONTROL_PATH as INBOX_CONTROL
from ltzd.dev.sandbox.webhooks.inbox import PREFIX as INBOX_PREFIX
from ltzd.dev.sandbox.webhooks.inbox import WebhookInbox
from ltzd.errors import Misconfigured
from ltzd.providers.checkouts import PaymentsPolicy
from ltzd.providers.dns_txt import DnsPolicy
from ltzd.providers.identity.client import IdentityPolicy
from ltzd.providers.oauth.policy import AccountLookupPolicy
from ltzd.values import Address

_HOST = "127.0.0.1"
_LARGEST_REQUEST_BYTES = 256 * 1024
_STOP_SECONDS = 1.0
_TOKEN_CONTROL = "/doors/identity-token"  # noqa: S105 - a path
_DNS_CONTROL = "/doors/dns"
_FAULT_CONTROL = "/doors/fault"


class Sandbox:
    """`port` 0 takes a free port; URLs and credentials are known after `start`."""

    def __init__(self, data_dir: Path, port: int, rpc_url: str, ltz: Address | None) -> None:
        self.faults = Faults()
        self._path = data_dir / "sandbox" / "identity.jsonl"
        self._dns = DnsServer(self._path.parent, self.faults)
        self._inbox = WebhookInbox(self._path.parent, self.faults)
        self._port = port
        self._node = NodeReads(rpc_url)
        self._ltz = ltz
        self._journal: Journal | None = None
        self._payments: SandboxPaymentProvider | None = None
        self._site: HostSite | None = None
        self._wallet_app: WalletApp | None = None
        self._accounts: AccountApis | None = None
        self._events_url: str | None = None
        self._ltzd_url: str | None = None
        self._runner: web.AppRunner | None = None
        self._app: AppCredentials | None = None
        self._keys: TokenSigningKeys | None = None

    async def start(self) -> None:
        """Raises Misconfigured for an occupied port or a data directory that cannot be used."""
        try:
            self._journal, records = Journal.open(self._path)
            self._app, users = await _restore(self._journal, records)
            self._payments = await self._open_payments()
            self._site = await self._open_site()
            self._accounts = await AccountApis.open(self._path.with_name("accounts.jsonl"))
            await self._dns.start()
            self._inbox.open()
            await self._listen(
                self._application(self._app, users, self._payments, self._site, self._accounts)
            )
            self._payments.start_sending()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self.faults.release_delays()
        payments, self._payments = self._payments, None
        if payments is not None:
            await payments.stop_sending()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        if payments is not None:
            await payments.close()
        site, self._site = self._site, None
        if site is not None:
            await site.close()
        accounts, self._accounts = self._accounts, None
        if accounts is not None:
            await accounts.close()
        await self._inbox.close()
        await self._dns.stop()
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
        signer = app_signer(app)
        return IdentityPolicy(
            self.url + IDENTITY_PREFIX,
            app.app_id,
            app.app_secret,
            signer_id=signer.id,
            signer_key=signer.key_text,
        )

    def payments_policy(self) -> PaymentsPolicy:
        assert self._payments is not None, "the sandbox has not started"
        return self._payments.policy(self.url)

    def payments_section(self) -> dict[str, str]:
        """The `payments` part of dev.json."""
        policy = self.payments_policy()
        return {
            "signingSecret": policy.signing_secret,
            "secretKey": policy.secret_key,
            "apiUrl": policy.base_url,
        }

    @property
    def site_url(self) -> str:
        """The host site, for `HostSiteClient.user_of`."""
        return self.url + SITE_PREFIX

    @property
    def demo_site_url(self) -> str:
        """The URL of the host site's pages."""
        return self.url + DEMO_SITE

    def site_section(self) -> dict[str, str]:
        """The `site` part of dev.json."""
        assert self._site is not None, "the sandbox has not started"
        return self._site.section()

    def accounts_policy(self) -> AccountLookupPolicy:
        """The URLs and credentials of the eight OAuth providers."""
        assert self._accounts is not None, "the sandbox has not started"
        return self._accounts.policy(self.url)

    def levels_url(self) -> str:
        """The URL template of a level, with {guild_id} and {user_id} as placeholders."""
        return levels_url(self.url)

    def revoke_client_tokens(self) -> None:
        """End the client tokens of the OAuth providers before they expire."""
        assert self._accounts is not None, "the sandbox has not started"
        self._accounts.revoke_client_tokens()

    def set_payment_events_url(self, url: str) -> None:
        """Set where the payment provider's signed events are sent; before that they wait."""
        self._events_url = url
        if self._payments is not None:
            self._payments.set_payment_events_url(url)

    def set_ltzd_url(self, url: str) -> None:
        """Set ltzd's public URL for the host site; before that its loyalty routes answer 503."""
        self._ltzd_url = url
        if self._site is not None:
            self._site.set_ltzd_url(url)
        if self._wallet_app is not None:
            self._wallet_app.set_ltzd_url(url)

    def dns_policy(self) -> DnsPolicy:
        return self._dns.policy()

    async def set_txt(self, name: str, values: list[str]) -> None:
        """Set default TXT records; records that the control endpoint has set stay."""
        await self._dns.set_txt(name, values)

    def inbox_url(self, brand_id: str) -> str:
        """The webhook URL of a demo brand."""
        return f"{self.url}{INBOX_PREFIX}/{brand_id}"

    def rotate_signing_key(self, *, keeps_old: bool = False) -> None:
        """Rotate the identity provider's signing key; `keeps_old` leaves the old one published."""
        assert self._keys is not None, "the sandbox has not started"
        self._keys.rotate(keeps_old=keeps_old)

    def control_endpoints(self) -> dict[str, str]:
        """The `sandbox` part of dev.json."""
        app_id = self._credentials().app_id
        return {
            "identityTokenUrl": self.url + _TOKEN_CONTROL,
            "jwksUrl": f"{self.url}{IDENTITY_PREFIX}/v1/apps/{app_id}/jwks.json",
            "siteSessionUrl": self.url + SITE_CONTROL,
            "payUrl": self.url + PAYMENTS_CONTROL,
            "webhookInboxUrl": self.url + INBOX_CONTROL,
            "accountsUrl": self.url + ACCOUNTS_CONTROL,
            "dnsUrl": self.url + _DNS_CONTROL,
            "faultUrl": self.url + _FAULT_CONTROL,
        }

    def _credentials(self) -> AppCredentials:
        assert self._app is not None, "the sandbox has not started"
        return self._app

    async def _open_payments(self) -> SandboxPaymentProvider:
        payments = await SandboxPaymentProvider.open(self._path.with_name("payments.jsonl"))
        if self._events_url is not None:
            payments.set_payment_events_url(self._events_url)
        return payments

    async def _open_site(self) -> HostSite:
        site = await HostSite.open(self._path.with_name("site.jsonl"))
        if self._ltzd_url is not None:
            site.set_ltzd_url(self._ltzd_url)
        return site

    def _application(
        self,
        app: AppCredentials,
        users: UserStore,
        payments: SandboxPaymentProvider,
        site: HostSite,
        accounts: AccountApis,
    ) -> web.Application:
        application = web.Application(
            middlewares=[loopback_only, error_middleware, self.faults.middleware],
            client_max_size=_LARGEST_REQUEST_BYTES,
        )
        self._keys = TokenSigningKeys(app)
        application.add_routes(IdentityApi(users, app, self._keys).routes())
        application.add_routes(Explorer(self._node, self._ltz).routes())
        issuer = TokenIssuer(app.app_id, self._keys)
        token_control = TokenControl(users, issuer)
        application.router.add_post(_TOKEN_CONTROL, token_control.handle)
        application.add_routes(site.routes(token_control.wallet_of_email))
        self._wallet_app = WalletApp(token_control.log_in)
        if self._ltzd_url is not None:
            self._wallet_app.set_ltzd_url(self._ltzd_url)
        application.add_routes(self._wallet_app.routes())
        application.add_routes(payments.routes())
        application.add_routes(accounts.routes())
        application.add_routes(self._inbox.routes())
        application.router.add_post(_DNS_CONTROL, self._dns.handle_control)
        application.router.add_post(_FAULT_CONTROL, self.faults.handle_control)
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
                    f"Port {self._port} is in use; stop the other program or choose another port."
                ) from error
            raise Misconfigured(
                f"The sandbox cannot listen on port {self._port}: {error.strerror}."
            ) from error
        self._port = int(self._runner.addresses[0][1])

    async def _root_page(self, _request: web.Request) -> web.Response:
        control_endpoints = self.control_endpoints()
        return pages.page(
            "Sandbox of the outside services",
            pages.note("Local stand-ins for the services that ltzd uses in production."),
            pages.table(
                ("What", "Where"),
                [
                    [
                        pages.text("Explorer of the dev chain"),
                        pages.link("/explorer/", "/explorer/"),
                    ],
                    [pages.text("Identity provider"), pages.text(f"{self.url}{IDENTITY_PREFIX}")],
                    [
                        pages.text("Identity provider's signing keys"),
                        pages.text(control_endpoints["jwksUrl"]),
                    ],
                    [
                        pages.text('Tokens and wallet of a user: POST {"email"}'),
                        pages.text(control_endpoints["identityTokenUrl"]),
                    ],
                    [
                        pages.text("Payments and their pay pages"),
                        pages.link(f"{PAY_BASE}/", f"{PAY_BASE}/"),
                    ],
                    [
                        pages.text("Payment provider"),
                        pages.text(self.payments_policy().base_url),
                    ],
                    [
                        pages.text('Pay, refund or dispute: POST {"sessionId", "kind"}'),
                        pages.text(control_endpoints["payUrl"]),
                    ],
                    [pages.text("Demo site: a café"), pages.link(DEMO_SITE, DEMO_SITE)],
                    [pages.text("Wallet app of a user"), pages.link(WALLET_APP, WALLET_APP)],
                    [pages.text("Host site"), pages.text(self.site_url)],
                    [
                        pages.text('Host site log-in: POST {"username"}'),
                        pages.text(control_endpoints["siteSessionUrl"]),
                    ],
                    [
                        pages.text("Webhook inbox"),
                        pages.link(f"{INBOX_PREFIX}/", f"{INBOX_PREFIX}/"),
                    ],
                    [
                        pages.text("Webhook inbox as JSON; DELETE empties it"),
                        pages.text(control_endpoints["webhookInboxUrl"]),
                    ],
                    [
                        pages.text('OAuth accounts: POST {"provider", "id", "known"}'),
                        pages.text(control_endpoints["accountsUrl"]),
                    ],
                    [
                        pages.text('DNS records: POST {"name", "txt"}'),
                        pages.text(control_endpoints["dnsUrl"]),
                    ],
                    [
                        pages.text('Faults: POST {"service", "status", "times"}'),
                        pages.text(control_endpoints["faultUrl"]),
                    ],
                ],
            ),
        )


async def _restore(journal: Journal, records: list[Record]) -> tuple[AppCredentials, UserStore]:
    """Read the journal; a new journal gets new credentials as its first record."""
    users = UserStore(journal)
    if not records:
        app = AppCredentials.new()
        await journal.wait_durable(journal.append(app.as_record()))
        return app, users
    try:
        for record in records[1:]:
            users.apply_record(record)
        return AppCredentials.from_record(records[0]), users
    except (KeyError, ValueError, TypeError, AssertionError) as error:
        raise Misconfigured(
            "The sandbox's data directory is damaged; start once with --clean to create a new one."
        ) from error
