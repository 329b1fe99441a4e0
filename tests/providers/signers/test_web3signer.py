"""web3signer signs, and whatever else it does is a SignerUnavailable within bounded time."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.chain.remote_signing import RemoteSigner, open_remote_signer
from ltzd.chain.signing import Signer, TransactionEncoding
from ltzd.errors import Misconfigured, SignerUnavailable
from ltzd.providers.signers.web3signer import Web3SignerKey, Web3SignerPolicy, parse_public_key
from tests.support.chain.signers import a_transaction
from tests.support.services.web3signer import (
    HASTY,
    Web3SignerServer,
    a_web3signer,
    answering,
    public_key_of,
    sign,
)

LOCAL, OTHER = Signer(b"\x01" * 32), Signer(b"\x02" * 32)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Web3SignerServer]:
    async with a_web3signer() as server:
        yield server


async def failure(key: Web3SignerKey) -> SignerUnavailable:
    with pytest.raises(SignerUnavailable) as raised:
        await RemoteSigner(key, LOCAL.address).sign_all([a_transaction()])
    return raised.value


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_its_transactions_are_those_of_the_local_key(
    server: Web3SignerServer, is_legacy: bool
) -> None:
    transactions = [a_transaction(nonce, is_legacy=is_legacy) for nonce in range(20)]
    async with Web3SignerKey(server.policy()) as key:
        signer = await open_remote_signer(key)
        assert signer.address == LOCAL.address
        assert await signer.sign_all(transactions) == await LOCAL.sign_all(transactions)
    assert sorted(server.signed) == sorted(
        TransactionEncoding(each).payload for each in transactions
    )


async def test_a_signer_of_several_keys_needs_to_know_the_wallets() -> None:
    async with a_web3signer(b"\x01" * 32, b"\x02" * 32) as server:
        async with Web3SignerKey(server.policy()) as key:
            with pytest.raises(Misconfigured, match="2 keys"):
                await open_remote_signer(key)
        public_key = public_key_of(server.keys[1])
        async with Web3SignerKey(server.policy(public_key=public_key)) as key:
            signer = await open_remote_signer(key)
            assert signer.address == OTHER.address
            assert await signer.sign_all([a_transaction()]) == [OTHER.sign(a_transaction())]


async def test_an_answer_for_another_transaction_is_refused(server: Web3SignerServer) -> None:
    other = TransactionEncoding(a_transaction(8)).payload
    server.always = answering(sign(server.keys[0], other))
    async with Web3SignerKey(server.policy()) as key:
        assert "not one of the wallet's key" in (await failure(key)).message


async def test_an_answer_by_another_key_is_refused(server: Web3SignerServer) -> None:
    payload = TransactionEncoding(a_transaction()).payload
    async with a_web3signer(b"\x02" * 32) as other:
        server.always = answering(sign(other.keys[0], payload))
        async with Web3SignerKey(server.policy()) as key:
            assert "not one of the wallet's key" in (await failure(key)).message


@pytest.mark.parametrize("text", ["", "0x", "0x00", "no hex", "0x" + "00" * 65, "0x" + "ff" * 65])
async def test_an_answer_that_is_no_signature_is_refused(
    server: Web3SignerServer, text: str
) -> None:
    server.always = answering(text)
    async with Web3SignerKey(server.policy()) as key:
        await failure(key)


async def test_a_fault_that_passes_is_waited_for(server: Web3SignerServer) -> None:
    server.next += [answering("", 500), answering("", 503)]
    async with Web3SignerKey(server.policy()) as key:
        signer = RemoteSigner(key, LOCAL.address)
        assert await signer.sign_all([a_transaction()]) == [LOCAL.sign(a_transaction())]


async def test_a_key_that_was_taken_away_is_told(server: Web3SignerServer) -> None:
    async with Web3SignerKey(server.policy()) as key:
        await open_remote_signer(key)
        server.keys.clear()
        error = await failure(key)
    assert error.message == "web3signer does not have the wallet's key"
    assert error.details == {"signer": "web3signer", "cause": "status 404"}


async def test_a_signer_that_is_away_costs_bounded_time(server: Web3SignerServer) -> None:
    policy = Web3SignerPolicy("http://127.0.0.1:9", calls=replace(HASTY, max_attempts=2))
    async with Web3SignerKey(policy) as key:
        assert (await failure(key)).message == "The signer cannot be reached"


@pytest.mark.parametrize("form", ["{0}", "0x{0}", "04{0}"])
def test_a_public_key_is_read_in_all_its_forms(server: Web3SignerServer, form: str) -> None:
    raw = public_key_of(server.keys[0])
    assert parse_public_key(form.format(raw.hex())) == raw
    assert parse_public_key(server.keys[0].public_key.format().hex()) == raw


@pytest.mark.parametrize("text", ["", "0x12", "zz", "0x" + "00" * 64])
def test_text_that_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="public key"):
        parse_public_key(text)
