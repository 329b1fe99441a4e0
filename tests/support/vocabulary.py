"""Finds names and sentences that do not keep to the house's vocabulary.

`python -m tests.support.vocabulary PATH…` prints one line for each finding, as FILE:LINE: finding.
A finding is an identifier or a word that has a standard term of the field, or a sentence of a
docstring or comment whose subject is a bare pronoun, or a function that is named as a claim, such
as `is_due`, and assigns to an attribute.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

# Identifiers that say nothing about the value they name: name the noun instead.
BARE = frozenset({"those", "one", "found", "asked", "said", "told", "heard", "some", "such"})

# Playful identifiers, each with the field's term for it.
IDENTIFIERS = {
    "Answered": "ResponseModel",
    "Bell": "Wakeup",
    "Bill": "GasCost",
    "Book": "InFlightTransactions, or …Store",
    "Desk": "LaneContext, RelayContext or TransactionSender",
    "Flights": "SingleFlight",
    "Following": "WalletMigration",
    "Fresh": "CachedValue",
    "GasGuesses": "GasEstimateCache",
    "Gate": "SendGuard",
    "Gathering": "Batcher",
    "Letter": "SignedWebhook",
    "Letters": "WebhookRenderer",
    "Manner": "SendMode",
    "Market": "GasPrice",
    "Means": "SigningOptions",
    "Minter": "MintSigner",
    "MintAllowance": "MintLimitTracker",
    "Newcomers": "UserRegistration",
    "Overtaken": "Conflict",
    "Patience": "ResubmissionPolicy",
    "PaymentDesk": "PaymentOperations",
    "Place": "Inclusion, LogPosition or Target",
    "Placed": "DeployedContract",
    "Purse": "FundsTracker",
    "Rehearsal": "MintSimulator",
    "RelayAsk": "RelayCall",
    "RelayBoard": "RelayWaiters",
    "RelayDesk": "RelayContext",
    "RelayRehearsal": "RelaySimulator",
    "RelayWriter": "RelaySigner",
    "Replacer": "FeeBumper",
    "Rows": "OutcomeSink",
    "SameProcess": "InProcessHooks",
    "Sent": "RequestModel",
    "Standing": "the noun: ClaimSnapshot, TokenCharges, RelayUsage …",
    "Stretch": "BlockRange",
    "Stuck": "BumpReason",
    "TokenMint": "TokenIssuer",
    "Understood": "DecodedRelay",
    "Wanted": "ClaimQuery",
    "Watcher": "ReceiptMonitor",
    "Won": "InsertedEvent",
    "Work": "LaneWork",
    "crowd_seconds": "batch_linger_seconds",
    "disagreements": "reconciliation",
    "forget_spent": "delete_expired",
    "hear": "apply",
    "hopeless": "over_capacity",
    "is_careful": "must_simulate",
    "look": "check, read or search",
    "mend": "correct, for facts, or repair, for the index",
    "pen": "signing_lock",
    "put_off": "defer",
    "refuse_hopeless": "precheck",
    "rehearse": "simulate",
    "standings": "leaderboard_totals",
    "swallows": "inner_call",
    "take_back": "revoke",
    "takes_turns": "serialized_per_user",
    "tell": "notify",
    "tidy": "delete_expired",
    "twin": "duplicate_id",
    "understood": "decode",
    "weigh": "refresh_balance",
    "worst_wei": "max_cost_wei",
}

# Words of prose, in comments, docstrings and documents.
WORDS = re.compile(
    r"\b(purse|mend(?:s|ed|ing)?|rehears\w+|desk|hopeless|crowd(?:ed|s)?|bell|twins?|"
    r"back door|doors?|those who|he who|whoso|nobody's)\b",
    re.IGNORECASE,
)

CLAIM = re.compile(r"_*(is|has|are|may)_")
"""Names of functions that only tell: a caller may repeat the call, or leave it out."""

BARE_SUBJECT = re.compile(
    r"(?:^|(?<=[.!?:;]\s))"
    r"(Who|Whom|Whose|What|Whatever|Whoever|Those|None|Such(?! an? )|It|"
    r"One(?= (?:of|that|who|which|is|may|for)\b))"
    r"\b(?! if\b| (?:is|are) returned\b)(?=\s+[a-z])"
)


def findings(path: Path) -> list[str]:
    """Every finding of a Python file or a document, in the order of lines."""
    text = path.read_text(encoding="utf-8")
    lines = list(_prose(text) if path.suffix == ".py" else enumerate(text.split("\n"), 1))
    found_lines = [(line, f"{fault}") for line, fault in _words(lines)]
    if path.suffix == ".py":
        tree = ast.parse(text)
        found_lines += [*_identifiers(tree), *_acting_claims(tree)]
    return [f"{path}:{line}: {fault}" for line, fault in sorted(found_lines)]


def _identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Identifiers where a file defines them: elsewhere they only follow."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                pass
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                pass
            case ast.Name(id=name, ctx=ast.Store()):
                pass
            case ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        bare = name.lstrip("_")
        if bare in BARE:
            yield node.lineno, f"`{name}` names no noun"
        elif bare in IDENTIFIERS:
            yield node.lineno, f"`{name}`: the field says {IDENTIFIERS[bare]}"


def _acting_claims(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Functions whose name is a claim, and that change an object."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not CLAIM.match(function.name):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                yield node.lineno, f"`{function.name}` is a claim, and assigns to `{node.attr}`"


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of docstrings and comments."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("# noqa"):
            yield token.start[0], token.string.lstrip("#: ")
        elif token.type == tokenize.STRING and token.string.startswith(('"""', 'r"""')):
            body = token.string.lstrip("r").strip('"')
            for offset, line in enumerate(body.split("\n")):
                yield token.start[0] + offset, line.strip()


def _words(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    before = ""
    for number, line in lines:
        code_free = re.sub(r"`[^`]*`", "", line)
        for match in WORDS.finditer(code_free):
            yield number, f"“{match[1]}” is no term of the field"
        opens = not before or before.endswith((".", "!", "?", ":"))
        for match in BARE_SUBJECT.finditer(line):
            if match.start() or opens:
                yield number, f"a sentence begins with a bare “{match[1]}”"
        before = line


def _files(arguments: list[str]) -> Iterator[Path]:
    for argument in arguments:
        path = Path(argument)
        if path.is_dir():
            yield from sorted(
                each
                for each in path.rglob("*")
                if each.suffix in {".py", ".md"} and "__pycache__" not in each.parts
            )
        else:
            yield path


if __name__ == "__main__":
    for file in _files(sys.argv[1:]):
        for finding in findings(file):
            print(finding)
