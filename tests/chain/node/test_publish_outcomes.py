"""The error texts of all clients for one fault give one outcome."""

import pytest

from ltzd.chain.node.publish_outcomes import classify_publish_error
from ltzd.chain.node.refusals import classify_error
from ltzd.chain.node.rpc import RpcError
from ltzd.rules.nodes.publications import PublishOutcome

ACCEPTED = PublishOutcome.ACCEPTED
FOR_GOOD = PublishOutcome.REFUSED_FOR_GOOD
NONCE = PublishOutcome.NONCE_TOO_LOW
PASSING = PublishOutcome.REFUSED
POOR = PublishOutcome.UNAFFORDABLE
PRICE = PublishOutcome.UNDERPRICED
UNEXPLAINED = PublishOutcome.REFUSED_UNEXPLAINED

SPELLINGS: dict[str, list[tuple[str, PublishOutcome]]] = {
    "geth": [
        ("already known", ACCEPTED),
        ("nonce too low: address 0x1, tx: 5 state: 6", NONCE),
        ("replacement transaction underpriced", PRICE),
        ("transaction underpriced: gas tip cap 0, minimum needed 1000000000", PRICE),
        ("max fee per gas less than block base fee: address 0x1", PRICE),
        ("fee cap less than block base fee", PRICE),
        ("insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1", POOR),
        ("nonce too high: address 0x1, tx: 9 state: 6", PASSING),
        ("txpool is full", PASSING),
        ("future transaction tries to replace pending", PASSING),
        ("in-flight transaction limit reached for delegated accounts", PASSING),
        ("address already reserved", PASSING),
        ("intrinsic gas too low: gas 0, minimum needed 21064", FOR_GOOD),
        ("intrinsic gas too low: have 0, want 21064", FOR_GOOD),
        ("insufficient gas for floor data gas cost: gas 21100, minimum needed 21160", FOR_GOOD),
        ("exceeds block gas limit", FOR_GOOD),
        ("transaction gas limit too high (cap: 16777216, tx: 20000000)", FOR_GOOD),
        ("gas uint64 overflow", FOR_GOOD),
        ("tx fee (1.20 ether) exceeds the configured cap (1.00 ether)", FOR_GOOD),
        ("max priority fee per gas higher than max fee per gas: address 0x1", FOR_GOOD),
        ("max fee per gas higher than 2^256-1", FOR_GOOD),
        ("tip higher than fee cap", FOR_GOOD),
        ("oversized data: transaction size 200000, limit 131072", FOR_GOOD),
        ("max initcode size exceeded: code size 50000, limit 49152", FOR_GOOD),
        ("transaction type not supported", FOR_GOOD),
        ("typed transaction too short", FOR_GOOD),
        ("rlp: expected List", FOR_GOOD),
        ("nonce has max value: address 0x1, nonce: 18446744073709551615", FOR_GOOD),
        ("negative value", FOR_GOOD),
        ("invalid sender", FOR_GOOD),
        ("invalid sender: invalid chain id for signer: have 1 want 5", FOR_GOOD),
        ("invalid chain id for signer: have 1 want 5", FOR_GOOD),
        ("sender not an eoa: address 0x1, len(code): 23", FOR_GOOD),
        ("only replay-protected (EIP-155) transactions allowed over RPC", FOR_GOOD),
    ],
    "bor": [
        ("transaction underpriced: gas tip cap 1000000000, minimum needed 25000000000", PRICE),
        ("nonce too low: next nonce 6, tx nonce 5", NONCE),
    ],
    "bsc": [
        ("transaction underpriced: gas tip cap 0, minimum needed 50000000", PRICE),
        ("over-capacity: txpool is full", PASSING),
    ],
    "nitro": [
        ("nonce too high: address 0x1, tx: 9 state: 6", PASSING),
        ("max fee per gas less than block base fee: address 0x1, maxFeePerGas: 1", PRICE),
        ("intrinsic gas too low", FOR_GOOD),
    ],
    "op-geth": [
        ("insufficient funds for gas * price + value: balance 1, tx cost 2, overshot 1", POOR),
        ("failed to forward tx to sequencer, please try again. Error message: 'txpool'", PASSING),
        ("transaction gas limit too high (cap: 16777216, tx: 20000000)", FOR_GOOD),
    ],
    "erigon": [
        ("ALREADY_EXISTS: already known", ACCEPTED),
        ("existing tx with same hash", ACCEPTED),
        ("nonce too low", NONCE),
        ("underpriced", PRICE),
        ("fee too low", PRICE),
        ("could not replace existing tx", PRICE),
        ("insufficient funds", POOR),
        ("pending sub-pool is full", PASSING),
        ("baseFee sub-pool is full", PASSING),
        ("queued sub-pool is full", PASSING),
        ("IntrinsicGas", FOR_GOOD),
        ("GasUintOverflow", FOR_GOOD),
        ("gas limit is too high", FOR_GOOD),
        ("RLPTooLong", FOR_GOOD),
        ("oversized data", FOR_GOOD),
        ("initcode too large", FOR_GOOD),
        ("InvalidSender", FOR_GOOD),
        ("types not supported", FOR_GOOD),
        ("invalid chain id, expected: 1 got: 5", FOR_GOOD),
    ],
    "nethermind": [
        ("AlreadyKnown, hash 0xabc", ACCEPTED),
        ("OldNonce, Current nonce: 7, nonce of rejected tx: 6", NONCE),
        ("FeeTooLow, MaxFeePerGas too low.", PRICE),
        ("FeeTooLowToCompete", PRICE),
        ("ReplacementNotAllowed", PRICE),
        ("InsufficientFunds, Account balance: 0", POOR),
        ("NonceGap", PASSING),
        ("NonceGap, Future nonce. Expected nonce: 3", PASSING),
        ("NonceTooFarInFuture", PASSING),
        ("Syncing", PASSING),
        ("GasLimitExceeded, Gas limit: 30000000, gas limit of rejected tx: 60000000", FOR_GOOD),
        ("Invalid, intrinsic gas too low", FOR_GOOD),
        ("Invalid, TxGasLimitCapExceeded: Gas limit 20000000 exceeded cap of 16777216", FOR_GOOD),
        ("Invalid", FOR_GOOD),
        ("Invalid, InvalidTxChainId: Expected 1, got 5", FOR_GOOD),
        ("Int256Overflow", FOR_GOOD),
        ("MaxTxSizeExceeded, Max tx size: 131072", FOR_GOOD),
        ("NotSupportedTxType", FOR_GOOD),
        ("SenderIsContract", FOR_GOOD),
        ("FailedToResolveSender", FOR_GOOD),
    ],
    "besu": [
        ("Known transaction", ACCEPTED),
        ("Nonce too low", NONCE),
        ("Replacement transaction underpriced", PRICE),
        ("Gas price below configured minimum gas price", PRICE),
        ("Upfront cost exceeds account balance", POOR),
        ("Transaction nonce is too distant from current sender nonce", PASSING),
        ("Intrinsic gas exceeds gas limit", FOR_GOOD),
        ("Transaction gas limit exceeds block gas limit", FOR_GOOD),
        ("Transaction fee cap exceeded", FOR_GOOD),
        ("Wrong chainId", FOR_GOOD),
        ("ChainId not supported", FOR_GOOD),
        ("Invalid transaction signature", FOR_GOOD),
        ("Invalid transaction type", FOR_GOOD),
        ("Initcode size exceeds maximum size", FOR_GOOD),
        ("Sender account not authorized to send transactions", FOR_GOOD),
        ("sender 0x1 is blocked as appearing on a legally prohibited list", FOR_GOOD),
    ],
    "reth": [
        ("already known", ACCEPTED),
        ("transaction underpriced", PRICE),
        ("txpool is full", PASSING),
        ("intrinsic gas too low", FOR_GOOD),
        ("call gas cost (21064) exceeds the gas limit (21000)", FOR_GOOD),
        ("gas floor (21160) exceeds the gas limit (21100)", FOR_GOOD),
        ("exceeds block gas limit", FOR_GOOD),
        ("caller gas limit exceeds the block gas limit", FOR_GOOD),
        ("transaction gas limit (20000000) is greater than the cap (16777216)", FOR_GOOD),
        ("tx fee (1200 wei) exceeds the configured cap (1000 wei)", FOR_GOOD),
        ("oversized data: transaction size 200000, limit 131072", FOR_GOOD),
        ("invalid chain ID", FOR_GOOD),
        ("transaction signer is on the blacklist", FOR_GOOD),
    ],
    "cometbft": [
        ("failed to broadcast transaction: : tx already in mempool", ACCEPTED),
        ("tx already exists in cache", ACCEPTED),
        ("insufficient fees; got: 1aevmos required: 2aevmos: insufficient fee", PRICE),
        ("insufficient funds for gas * price + value", POOR),
        ("mempool is full: number of txs 5000 (max: 5000)", PASSING),
        ("invalid nonce; got 7, expected 6: invalid sequence", PASSING),
    ],
    "anvil": [
        ("transaction already imported", ACCEPTED),
        ("nonce too low", NONCE),
        ("max fee per gas less than block base fee", PRICE),
        ("Insufficient funds for gas * price + value", POOR),
        ("nonce too high", PASSING),
        ("intrinsic gas too low -- call gas cost (21064) exceeds the gas limit (0)", FOR_GOOD),
        ("intrinsic gas too high -- tx.gas_limit > env.block.gas_limit", FOR_GOOD),
        ("Failed to decode signed transaction", FOR_GOOD),
        ("invalid chain id for signer", FOR_GOOD),
    ],
    "hardhat": [
        ("Known transaction: 0xabcdef", ACCEPTED),
        ("Nonce too low. Expected nonce to be 5 but got 4.", NONCE),
        (
            "Transaction maxFeePerGas (1) is too low for the next block, which has a baseFeePerGas",
            PRICE,
        ),
        ("Sender doesn't have enough funds to send tx. The max upfront cost is: 1", POOR),
        ("Nonce too high. Expected nonce to be 4 but got 5.", PASSING),
        ("Transaction requires at least 21064 gas but got 0", FOR_GOOD),
        ("Transaction gas limit is 60000000 and exceeds block gas limit of 30000000", FOR_GOOD),
        (
            "Transaction gas limit is 20000000 and exceeds transaction gas cap of 16777216",
            FOR_GOOD,
        ),
        ("maxPriorityFeePerGas (2) is bigger than maxFeePerGas (1)", FOR_GOOD),
        ("Trying to send an incompatible EIP-155 transaction, signed for another chain.", FOR_GOOD),
        ("Trying to send a raw transaction with an invalid chainId.", FOR_GOOD),
    ],
    "the tester chain": [
        ("already known", ACCEPTED),
        ("nonce too low: next nonce 1, tx nonce 0", NONCE),
        ("replacement transaction underpriced", PRICE),
        ("insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1", POOR),
        ("txpool is full", PASSING),
        ("intrinsic gas too low: gas 20999, minimum needed 21000", FOR_GOOD),
        ("exceeds block gas limit", FOR_GOOD),
        ("transaction type not supported", FOR_GOOD),
    ],
    "others": [
        ("Transaction with the same hash was already imported.", ACCEPTED),
        ("Transaction nonce is too low. Try incrementing the nonce.", NONCE),
        ("Transaction gas price is too low.", PRICE),
        (
            "There is another transaction with same nonce in the queue. Try a higher gas price",
            PRICE,
        ),
        ("transaction rejected: filtered by policy", FOR_GOOD),
        ("sender is black-listed", FOR_GOOD),
        ("sanctioned address", FOR_GOOD),
        # A temporary text is never a reason to give up the bytes, an unknown one not at once.
        ("unknown transaction", UNEXPLAINED),
        ("a transaction with this nonce is already in the pool", UNEXPLAINED),
        ("rejected by policy engine (rule 17)", UNEXPLAINED),
        ("Too Many Requests", PASSING),
        ("rate limit exceeded", PASSING),
        ("daily request count exceeded, request rate limited", PASSING),
        ("request timed out", PASSING),
        ("your IP address is on the blocklist", PASSING),
        ("invalid signature of the access token", PASSING),
        ("project is not authorized", PASSING),
        ("limit exceeded", PASSING),
        ("server is busy", PASSING),
        ("compute units per second capacity exceeded", PASSING),
        ("your requests are being throttled", PASSING),
        ("gas limit reached", UNEXPLAINED),
        ("invalid nonce", PASSING),
        ("internal error", PASSING),
        ("header not found", PASSING),
        ("bad gateway", PASSING),
        ("no backends available for method", PASSING),
        ("backend offline", PASSING),
        ("", UNEXPLAINED),
        # A contract's revert string is not a node's error.
        ("execution reverted: already known", UNEXPLAINED),
        ("execution reverted: nonce too low", UNEXPLAINED),
        ("execution reverted: intrinsic gas too low", UNEXPLAINED),
        ("Execution reverted: insufficient funds", UNEXPLAINED),
    ],
}


@pytest.mark.parametrize(
    ("client", "text", "outcome"),
    [(client, *row) for client, rows in SPELLINGS.items() for row in rows],
)
def test_every_spelling_of_a_fault_gives_its_outcome(
    client: str, text: str, outcome: PublishOutcome
) -> None:
    refusal = classify_error(-32000, text, method="eth_sendRawTransaction")
    assert classify_publish_error(RpcError(-32000, text, refusal=refusal)) is outcome, client


def test_a_code_of_the_rate_passes_whatever_its_text() -> None:
    refusal = classify_error(429, "no", method="eth_sendRawTransaction")
    assert classify_publish_error(RpcError(429, "no", refusal=refusal)) is PASSING
