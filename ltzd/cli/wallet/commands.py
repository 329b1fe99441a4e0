"""The names and options of `ltzd wallet …`."""

# ruff: noqa: PLC0415 - each command imports what it runs only when it runs

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ltzd.cli.options import (
    DEFAULT_DATA_DIR,
    AsJson,
    ConfigInstead,
    DataDir,
    KeyFile,
    PasswordFile,
    Sender,
    Unsigned,
)

if TYPE_CHECKING:
    from ltzd.cli.wallet.roles import RoleTarget

app = typer.Typer(
    help="The operator's own wallets, which mint and relay (users' wallets: `ltzd wallets`).",
    no_args_is_help=True,
)

Wallet = Annotated[str, typer.Argument(help="The wallet's address.", metavar="0x…")]
Reason = Annotated[
    str | None, typer.Option("--reason", help="A note for other people.", metavar="TEXT")
]


@app.command()
def add(  # noqa: PLR0913, PLR0917 - one parameter per option
    kind: Annotated[
        Literal["mint", "relay"],
        typer.Option(help="Mint rewards, or send users' calls; one wallet never does both."),
    ],
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            help="The wallet's key, where the processes of role operator find it: 64 hex digits "
            "or an encrypted keystore.",
            metavar="FILE",
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", help="The password of the keystore.", metavar="FILE"),
    ] = None,
    kms_key_id: Annotated[
        str | None,
        typer.Option(
            "--kms-key-id", help="The key is in AWS KMS: its id, ARN or alias.", metavar="ID"
        ),
    ] = None,
    kms_region: Annotated[
        str | None,
        typer.Option("--kms-region", help="The AWS region of the key.", metavar="REGION"),
    ] = None,
    kms_endpoint: Annotated[
        str | None,
        typer.Option(
            "--kms-endpoint", help="The URL of KMS, if not the region's public one.", metavar="URL"
        ),
    ] = None,
    web3signer_url: Annotated[
        str | None,
        typer.Option("--web3signer-url", help="The key is behind this web3signer.", metavar="URL"),
    ] = None,
    web3signer_public_key: Annotated[
        str | None,
        typer.Option(
            "--web3signer-public-key", help="The wallet's public key at the signer.", metavar="HEX"
        ),
    ] = None,
    web3signer_ca_file: Annotated[
        Path | None,
        typer.Option(
            "--web3signer-ca-file",
            help="The certificate authority that has issued the signer's certificate.",
            metavar="FILE",
        ),
    ] = None,
    web3signer_certificate_file: Annotated[
        Path | None,
        typer.Option(
            "--web3signer-certificate-file",
            help="The client certificate that ltzd shows to the signer.",
            metavar="FILE",
        ),
    ] = None,
    web3signer_certificate_key_file: Annotated[
        Path | None,
        typer.Option(
            "--web3signer-certificate-key-file",
            help="The key of the client certificate.",
            metavar="FILE",
        ),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Add a wallet: running processes that can open its key serve it within seconds.

    The key itself is not stored, only where it is. A draining wallet takes work again.
    """
    from ltzd.cli.wallet import adding
    from ltzd.cli.wallet.target import resolve_wallet_target

    given = {
        "key_file": key_file,
        "password_file": password_file,
        "kms.key_id": kms_key_id,
        "kms.region": kms_region,
        "kms.endpoint": kms_endpoint,
        "web3signer.url": web3signer_url,
        "web3signer.public_key": web3signer_public_key,
        "web3signer.ca_file": web3signer_ca_file,
        "web3signer.certificate_file": web3signer_certificate_file,
        "web3signer.certificate_key_file": web3signer_certificate_key_file,
    }
    adding.add(resolve_wallet_target(data_dir, config), kind, given, as_json=as_json)


@app.command("list")
def list_(
    everything: Annotated[
        bool, typer.Option("--all", help="Also list retired wallets without open work.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """List the operator's wallets, with the process that serves each one."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.wallet import views

    views.list_wallets(resolve_target(data_dir, config), everything=everything, as_json=as_json)


@app.command()
def show(
    wallet: Wallet,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Show one wallet: its state, its process, and its work that is not final."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.wallet import views

    views.show(resolve_target(data_dir, config), wallet, as_json=as_json)


@app.command()
def drain(
    wallet: Wallet,
    reason: Reason = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Give a wallet no new work; it finishes what it has signed. `ltzd wallet add` undoes it."""
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.wallet import leaving

    leaving.drain(resolve_target(data_dir, config), wallet, reason, as_json=as_json)


@app.command()
def retire(
    wallet: Wallet,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost", help="Nobody has the key: retire the wallet at once, with its open work."
        ),
    ] = False,
    stolen: Annotated[
        bool, typer.Option("--stolen", help="Others may have the key: retire the wallet at once.")
    ] = False,
    reason: Reason = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """End a drained wallet for good: nothing is signed with it ever again.

    With --lost or --stolen an active wallet is ended as well.
    """
    from ltzd.cli.chain_targets import known_node_urls
    from ltzd.cli.targets import resolve_target
    from ltzd.cli.wallet import leaving

    cause = leaving.cause_of(lost=lost, stolen=stolen)
    target, urls = resolve_target(data_dir, config), known_node_urls(data_dir, config)
    leaving.retire(target, urls, wallet, cause, reason, as_json=as_json)


@app.command()
def grant(  # noqa: PLR0913, PLR0917 - one parameter per option
    wallet: Wallet,
    kind: Annotated[
        Literal["mint", "relay"],
        typer.Option(help="MINTER for a mint wallet, RELAYER and REDEEMER for a relay wallet."),
    ],
    mint_limit: Annotated[
        str | None,
        typer.Option(help="The most LTZ that the wallet can mint at once.", metavar="LTZ"),
    ] = None,
    mint_window: Annotated[
        int, typer.Option(min=1, help="Seconds in which the limit refills.", metavar="SECONDS")
    ] = 86_400,
    key: KeyFile = None,
    password_file: PasswordFile = None,
    unsigned: Unsigned = False,
    sender: Sender = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Grant a wallet the roles of its kind, with the key of the contracts' admin."""
    from ltzd.cli.offers.transaction_sender import SigningOptions
    from ltzd.cli.wallet import roles

    options = roles.GrantOptions(kind, mint_limit, mint_window)
    signing = SigningOptions(key, password_file, unsigned, sender)
    target = partial(_role_target, data_dir, config)
    roles.grant(target, wallet, options, signing, as_json=as_json)


@app.command()
def revoke(
    wallet: Wallet,
    key: KeyFile = None,
    password_file: PasswordFile = None,
    unsigned: Unsigned = False,
    sender: Sender = None,
    as_json: AsJson = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    config: ConfigInstead = None,
) -> None:
    """Take all roles from a wallet, with a guardian's key or the admin's; needs no database."""
    from ltzd.cli.offers.transaction_sender import SigningOptions
    from ltzd.cli.wallet import roles

    signing = SigningOptions(key, password_file, unsigned, sender)
    roles.revoke(partial(_role_target, data_dir, config), wallet, signing, as_json=as_json)


def _role_target(data_dir: Path, config: Path | None) -> "RoleTarget":
    from ltzd.cli.chain_targets import resolve_chain_target
    from ltzd.cli.wallet.roles import RoleTarget
    from ltzd.cli.wallet.target import resolve_wallet_target

    return RoleTarget(
        resolve_wallet_target(data_dir, config), resolve_chain_target(data_dir, config)
    )
