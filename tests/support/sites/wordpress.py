"""A real WordPress with a database of its own, served by PHP on a free port.

The files are a copy of Debian's package, so the machine's own sites are not touched. Mail is
written to a file instead of sent. On a machine without the packages the tests are skipped, with a
message.
"""

import asyncio
import itertools
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.ports import free_port
from tests.support.tools import php_path
from tests.support.waiting import until

SOURCE = Path("/usr/share/wordpress")
PLUGIN = Path(__file__).parents[3] / "integrations/wordpress/ltzd-loyalty"
PASSWORD = "a password of the tests"
"""The password of every user of this short-lived site."""
_EXTENSIONS = (("mysql", b"mysqli"), ("xml", b"xml"))
"""PHP's packages and their modules; XML-RPC needs the second."""
_WORKERS = 4
_STOP_SECONDS = 10

_databases = itertools.count(1)

Json = dict[str, Any]

_CONFIG = """<?php
define( 'DB_NAME', 'wordpress' );
define( 'DB_USER', 'root' );
define( 'DB_PASSWORD', '' );
define( 'DB_HOST', 'localhost:%(socket)s' );
define( 'DB_CHARSET', 'utf8mb4' );
define( 'DB_COLLATE', '' );
define( 'WP_HOME', '%(url)s' );
define( 'WP_SITEURL', '%(url)s' );
define( 'WP_ENVIRONMENT_TYPE', 'local' );
define( 'WP_HTTP_BLOCK_EXTERNAL', true );
define( 'DISABLE_WP_CRON', true );
define( 'WP_DEBUG', true );
define( 'WP_DEBUG_DISPLAY', false );
define( 'WP_DEBUG_LOG', __DIR__ . '/%(log)s' );
define( 'AUTH_KEY', 'a' ); define( 'SECURE_AUTH_KEY', 'b' ); define( 'LOGGED_IN_KEY', 'c' );
define( 'NONCE_KEY', 'd' ); define( 'AUTH_SALT', 'e' ); define( 'SECURE_AUTH_SALT', 'f' );
define( 'LOGGED_IN_SALT', 'g' ); define( 'NONCE_SALT', 'h' );
$table_prefix = 'wp_';
defined( 'ABSPATH' ) || define( 'ABSPATH', __DIR__ . '/' );
require_once ABSPATH . 'wp-settings.php';
"""

_MAIL = """<?php
add_filter( 'pre_wp_mail', function ( $done, $mail ) {
	$line = json_encode( $mail ) . "\\n";
	file_put_contents( ABSPATH . 'mail.jsonl', $line, FILE_APPEND | LOCK_EX );
	return true;
}, 10, 2 );
"""

_REST_PREFIX = """<?php
add_filter( 'rest_url_prefix', function () { return '%s'; } );
"""

_LOG = "php.log"

_INSTALL = """
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install( 'Halfmoon', 'admin', 'admin@site.example', true, '', $argv[1] );
update_option( 'permalink_structure', '/%postname%/' );
update_option( 'template', 'plain' );
update_option( 'stylesheet', 'plain' );
"""


# The least theme that a page with a shortcode needs.
_THEME = {
    "style.css": "/* Theme Name: Plain */",
    "index.php": (
        '<!doctype html><html lang="en"><head><title>Plain</title>'
        '<link rel="icon" href="data:,"><?php wp_head(); ?></head>'
        "<body><?php while ( have_posts() ) { the_post(); the_content(); }"
        " wp_footer(); ?></body></html>"
    ),
}


@dataclass
class Session:
    """A logged-in browser: its cookies, and a nonce of the REST API."""

    site: "WordPressSite"
    cookies: Mapping[str, str] = field(repr=False)
    nonce: str = field(repr=False)

    @property
    def headers(self) -> Mapping[str, str]:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"Cookie": cookie, "X-WP-Nonce": self.nonce}

    async def ask(self, method: str, path: str, **request: Any) -> tuple[int, Json]:
        url = f"{self.site.rest_url}{path}"
        async with self.site.http.request(method, url, headers=self.headers, **request) as answer:
            return answer.status, await answer.json()

    async def me(self) -> Json:
        status, user = await self.ask("GET", "/wp/v2/users/me?context=edit")
        assert status == 200, user
        return user

    async def open(self, url: str, **form: str) -> tuple[int, str]:
        """Requests a page, or posts `form` to it; redirects are not followed."""
        method = "POST" if form else "GET"
        headers = {"Cookie": self.headers["Cookie"]}
        async with self.site.http.request(
            method, url, data=form or None, headers=headers, allow_redirects=False
        ) as answer:
            return answer.status, await answer.text()


@dataclass(frozen=True)
class Shape:
    """Where a site is: `path` is empty, or such as `/blog`. `workers` are PHP's processes."""

    path: str = ""
    rest_prefix: str = "wp-json"
    workers: int = _WORKERS


USUAL = Shape()


class WordPressSite:
    def __init__(
        self, folder: Path, port: int, http: aiohttp.ClientSession, shape: Shape = USUAL
    ) -> None:
        self.root = folder
        self.folder = folder / shape.path.lstrip("/")
        self.authority = f"127.0.0.1:{port}"
        self.url = f"http://{self.authority}{shape.path}"
        self.rest_url = f"{self.url}/{shape.rest_prefix}"
        self.shape = shape
        self.http = http

    async def run(self, code: str, *arguments: str, first: str = "") -> str:
        """Runs PHP code inside this WordPress, as WP-CLI would, without a logged-in user."""
        load = f"require '{self.folder}/wp-load.php';"
        host = f"$_SERVER['HTTP_HOST'] = '{self.authority}';"
        process = await asyncio.create_subprocess_exec(
            *(str(php_path()), "-r", f"{host} {first} {load} {code}", "--", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
        assert process.returncode == 0, (output + errors).decode()
        return output.decode()

    async def register(self, name: str, email: str, role: str = "subscriber") -> int:
        code = (
            "echo wp_insert_user( [ 'user_login' => $argv[1], 'user_email' => $argv[2],"
            " 'role' => $argv[3], 'user_pass' => $argv[4] ] );"
        )
        return int(await self.run(code, name, email, role, PASSWORD))

    async def log_in(self, name: str) -> Session:
        form = {"log": name, "pwd": PASSWORD, "testcookie": "1"}
        headers = {"Cookie": "wordpress_test_cookie=WP%20Cookie%20check"}
        url = f"{self.url}/wp-login.php"
        async with self.http.post(url, data=form, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 302, await answer.text()
            cookies = {key: morsel.coded_value for key, morsel in answer.cookies.items()}
        session = Session(self, cookies, "")
        status, nonce = await session.open(f"{self.url}/wp-admin/admin-ajax.php?action=rest-nonce")
        assert status == 200, nonce
        return Session(self, cookies, nonce)

    def install(self) -> None:
        """Copies the plugin of this repository into the site."""
        shutil.copytree(PLUGIN, self.folder / "wp-content/plugins/ltzd-loyalty")

    async def activate(self) -> None:
        """Installs and activates the plugin."""
        self.install()
        await self.run(
            "require_once ABSPATH . 'wp-admin/includes/plugin.php';"
            "$done = activate_plugin( 'ltzd-loyalty/ltzd-loyalty.php' );"
            "exit( null === $done ? 0 : 1 );"
        )

    async def deactivate(self) -> None:
        await self.run(
            "require_once ABSPATH . 'wp-admin/includes/plugin.php';"
            "deactivate_plugins( 'ltzd-loyalty/ltzd-loyalty.php' );"
        )
        shutil.rmtree(self.folder / "wp-content/plugins/ltzd-loyalty")

    def faults(self) -> list[str]:
        """Lines of PHP's log, in debug mode: all but deprecations of WordPress's own code, which is
        older than PHP, and the warning that it finds no updates, since it may ask no other host.
        """
        path = self.folder / _LOG
        lines = path.read_text().splitlines() if path.exists() else []
        of_core = r"PHP Deprecated: .* in \S+/(?:wp-includes|wp-admin)/|wrong with WordPress\.org"
        is_of_core = re.compile(of_core)
        return [line for line in lines if line.startswith("[") and not is_of_core.search(line)]

    def mails(self, address: str) -> list[str]:
        """Returns the texts that were mailed to the address, oldest first."""
        path = self.folder / "mail.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        mails = [json.loads(line) for line in lines]
        return [mail["message"] for mail in mails if mail["to"] == address]

    def link_in(self, mail: str) -> str:
        links = re.findall(rf"{re.escape(self.url)}/\S+", mail)
        assert links, mail
        return str(links[0])


@asynccontextmanager
async def a_wordpress(folder: Path, shape: Shape = USUAL) -> AsyncIterator[WordPressSite]:
    """Runs WordPress without the plugin; skips the test on a machine without WordPress."""
    await _skip_unless_installed()
    async with AsyncExitStack() as stack:
        socket = await stack.enter_async_context(_database(folder / "database"))
        http = await stack.enter_async_context(
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        )
        site = WordPressSite(folder / "site", free_port(), http, shape)
        await asyncio.to_thread(_copy, site.folder)
        (site.folder / "wp-content/mu-plugins/rest.php").write_text(
            _REST_PREFIX % shape.rest_prefix
        )
        values = {"socket": socket, "url": site.url, "log": _LOG}
        (site.folder / "wp-config.php").write_text(_CONFIG % values)
        await site.run(_INSTALL, PASSWORD, first="define( 'WP_INSTALLING', true );")
        await stack.enter_async_context(_served(site))
        yield site


async def _skip_unless_installed() -> None:
    needed = {"wordpress": SOURCE / "wp-includes/version.php"}
    missing = [name for name, path in needed.items() if not path.exists()]
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        missing.append("mariadb-server-core")
    process = await asyncio.create_subprocess_exec(
        str(php_path()), "-m", stdout=asyncio.subprocess.PIPE
    )
    modules, _ = await process.communicate()
    installed = modules.split()
    missing += [f"php-{name}" for name, module in _EXTENSIONS if module not in installed]
    if missing:
        pytest.skip(f"No WordPress here: apt-get install {' '.join(missing)} (Debian and Ubuntu)")


def _copy(target: Path) -> None:
    shutil.copytree(
        SOURCE,
        target,
        symlinks=False,
        ignore_dangling_symlinks=True,
        ignore=shutil.ignore_patterns("wp-config.php", ".htaccess", "languages"),
    )
    must_use = target / "wp-content/mu-plugins"
    must_use.mkdir(parents=True)
    (must_use / "mail.php").write_text(_MAIL)
    theme = target / "wp-content/themes/plain"
    theme.mkdir(parents=True)
    for name, text in _THEME.items():
        (theme / name).write_text(text)


@asynccontextmanager
async def _database(folder: Path) -> AsyncIterator[str]:
    """Runs a MariaDB that listens on a socket only; gives the socket's path."""
    # A socket's path has at most 107 characters, and pytest's folders are longer.
    socket = Path(f"/tmp/ltzd-wordpress-{os.getpid()}-{next(_databases)}.sock")
    own = [f"--datadir={folder}", "--user=root"]
    install = await asyncio.create_subprocess_exec(
        *("mariadb-install-db", "--no-defaults", *own),
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await install.wait() == 0
    init = folder / "init.sql"
    init.write_text("CREATE DATABASE IF NOT EXISTS wordpress;\n")
    process = await asyncio.create_subprocess_exec(
        *("mariadbd", "--no-defaults", *own, f"--socket={socket}", "--skip-networking"),
        *(f"--init-file={init}", "--innodb-flush-log-at-trx-commit=0"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def is_up() -> bool:
        assert process.returncode is None, "mariadbd has ended"
        with suppress(OSError):
            _, writer = await asyncio.open_unix_connection(str(socket))
            writer.close()
            return True
        return False

    try:
        await until(is_up)
        yield str(socket)
    finally:
        await _ended(process)


@asynccontextmanager
async def _served(site: WordPressSite) -> AsyncIterator[None]:
    workers = {} if site.shape.workers == 1 else {"PHP_CLI_SERVER_WORKERS": str(site.shape.workers)}
    process = await asyncio.create_subprocess_exec(
        *(str(php_path()), "-S", site.authority, "-t", str(site.root)),
        cwd=site.root,
        env={**os.environ, **workers},
        # PHP's workers outlive their parent, so they are ended as a process group.
        start_new_session=True,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def is_up() -> bool:
        assert process.returncode is None, "PHP has ended"
        with suppress(aiohttp.ClientError):
            async with site.http.get(f"{site.rest_url}/") as answer:
                return answer.status == 200
        return False

    try:
        await until(is_up, 30)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    async with asyncio.timeout(_STOP_SECONDS):
        await process.wait()
