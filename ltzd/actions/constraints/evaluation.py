"""Evaluates the purchase constraints that a brand has set on a collection's claims.

Constraints on indexed facts (tokens held, LTZ) are evaluated each time: reading a cached result
would cost as much. The answer of an outside service, a brand's API or the chat platform, is cached
for its TTL unless it is invalidated. If the service fails, the constraint is not satisfied and
nothing is cached.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec
import structlog

from ltzd import telemetry
from ltzd.actions.constraints.chat_members import PLATFORM, ChatMembers
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.concurrency.work_slots import released_when_slow
from ltzd.errors import Unauthorized, Unavailable, ValidationFailed
from ltzd.providers.chat import ChatUnavailable
from ltzd.providers.external_api import ExternalApiClient, ExternalApiUnavailable
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.constraints.chat_queries import ChatQuery
from ltzd.rules.constraints.constraints import (
    CHAT_KINDS,
    ChatConstraint,
    Constraint,
    ExternalApi,
    LtzBalance,
    NftHolding,
    is_satisfied,
)
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.constraints import chat_claims
from ltzd.store.constraints import results as constraint_results
from ltzd.store.constraints.chat_claims import MOST_CLAIMS, ChatClaim
from ltzd.store.constraints.results import ConstraintSubject, ResultKey
from ltzd.store.database import Pool, session
from ltzd.store.indexer import collections, tokens
from ltzd.store.indexer import mint_facts as facts
from ltzd.values import Address

log = structlog.get_logger()

_EVALUATION_SECONDS = 15.0
"""Longer than the timeout of any API: the row of a process that died blocks no longer than this."""

_MAX_EVALUATIONS = 100_000
"""At a time; far more than a process has requests under way."""

_MOST_EVALUATIONS = 3
"""How often one claim is evaluated if its result keeps being invalidated meanwhile.

Invalidating needs no key, so a stranger may do it faster than an API answers. The claim is then
decided by the last answer, which was requested after the claim came.
"""

Kept = Mapping[int, tuple[ConstraintSubject, bool]]

_NOT_LINKED = "account_not_linked"
_IN_USE = "account_in_use"
_HINTS = {
    _NOT_LINKED: f"link your {PLATFORM} account first",
    _IN_USE: f"your {PLATFORM} account has already satisfied it for another wallet",
}


class _Question(msgspec.Struct, frozen=True):
    """A question for an outside service. `accounts` are the user's on the chat platform."""

    key: ResultKey
    subject: ConstraintSubject
    constraint: ExternalApi | ChatConstraint
    accounts: tuple[str, ...] = ()


class PurchaseConstraints:
    """Concurrent claims of a user share one evaluation of each constraint."""

    def __init__(
        self,
        pool: Pool,
        brands: BrandCache,
        apis: ExternalApiClient,
        members: ChatMembers | None = None,
    ) -> None:
        self._pool = pool
        self._brands = brands
        self._apis = apis
        self._members = members or ChatMembers(pool)
        self._evaluations: SingleFlight[tuple[ResultKey, ConstraintSubject], bool] = SingleFlight(
            "constraint", _MAX_EVALUATIONS
        )

    async def check(
        self,
        user: Address,
        collection_id: int,
        speaker: TokenUser | None = None,
        claims: int | None = None,
    ) -> None:
        """Check a claim by `user`, a wallet of the token's user `speaker`.

        `claims` is the number of the claim that will be sent if nothing is raised, or None if none
        will be sent yet. Raises ValidationFailed that names the first constraint, in the order of
        the brand's file, that is not satisfied; Unavailable while the collection's brand or its
        configuration is unknown; and IdentityUnavailable while the user's accounts are.
        """
        async with session(self._pool) as connection:
            brand = await collections.brand_of(connection, collection_id)
            if brand is None:
                self._refuse_in_doubt(collection_id)
                return
            constraints = self._configured(brand, collection_id)
            if not constraints:
                return
            kept = await constraint_results.get(connection, user, collection_id)
        accounts = await self._accounts(constraints, user, speaker)
        claim = ChatClaim(collection_id, user, _plausible(claims))
        usable = await self._usable(claim, accounts)
        outcomes = await asyncio.gather(
            *(
                self._outcome(
                    ResultKey(user, collection_id, position), brand, constraint, usable, kept
                )
                for position, constraint in enumerate(constraints)
            )
        )
        for position, (constraint, is_met) in enumerate(zip(constraints, outcomes, strict=True)):
            if not is_met:
                raise _refusal(constraint, position, _shortage(accounts, usable))
        await self._reserve(claim, constraints, usable)

    async def _usable(self, claim: ChatClaim, accounts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the accounts that have not yet served as many claims as the collection allows."""
        if not accounts:
            return ()
        async with session(self._pool) as connection:
            taken = await chat_claims.exhausted_accounts(connection, claim, accounts)
        return tuple(account for account in accounts if account not in taken)

    async def _reserve(
        self, claim: ChatClaim, constraints: Sequence[Constraint], accounts: tuple[str, ...]
    ) -> None:
        """Raises ValidationFailed if another wallet has just claimed with one of the accounts."""
        if claim.number is None or not accounts:
            return
        async with session(self._pool) as connection:
            taken = await chat_claims.reserve(connection, claim, accounts)
        if taken:
            kinds = [constraint.kind in CHAT_KINDS for constraint in constraints]
            position = kinds.index(True)
            raise _refusal(constraints[position], position, _IN_USE)

    async def invalidate(
        self,
        api_key: str | None,
        api_url: str,
        user: Address | None,
        collection_id: int | None,
    ) -> int:
        """Delete cached answers of an API; returns how many. A key limits this to its brand's.

        Raises Unauthorized for an unknown key.
        """
        async with session(self._pool) as connection:
            brand = None
            if api_key is not None:
                brand = await brand_keys.brand_of_api_key(connection, api_key)
                if brand is None or self._brands.get(brand) is None:
                    raise Unauthorized("The API key is not valid")
            gone = await constraint_results.invalidate_api(
                connection, api_url, brand=brand, user=user, collection_id=collection_id
            )
        telemetry.CONSTRAINT_RESULTS_INVALIDATED.inc(gone)
        return gone

    def _refuse_in_doubt(self, collection_id: int) -> None:
        """The index may be behind the chain, or be rebuilding."""
        if self._brands.may_be_constrained(collection_id):
            raise Unavailable("The collection is not indexed yet, and may have constraints")

    def _configured(self, brand: Address, collection_id: int) -> Sequence[Constraint]:
        """A disabled brand's constraints stay in force.

        Raises Unavailable for a brand whose configuration this version has never been able to read.
        """
        configuration = self._brands.configuration(brand)
        if configuration is not None:
            return configuration.constraints_on(collection_id)
        if brand in self._brands.unreadable:
            raise Unavailable("The collection's brand cannot be read, and may have constraints")
        return ()

    async def _accounts(
        self, constraints: Sequence[Constraint], user: Address, speaker: TokenUser | None
    ) -> tuple[str, ...]:
        if not any(constraint.kind in CHAT_KINDS for constraint in constraints):
            return ()
        return await self._members.accounts(user, speaker)

    async def _outcome(
        self,
        key: ResultKey,
        brand: Address,
        constraint: Constraint,
        accounts: tuple[str, ...],
        kept: Kept,
    ) -> bool:
        match constraint:
            case NftHolding() | LtzBalance():
                return await self._indexed(key, constraint)
            case ExternalApi():
                return await self._outside(_api_question(key, brand, constraint), kept)
        if not accounts:
            _count(constraint, "not_met")
            return False
        return await self._outside(_chat_question(key, brand, constraint, accounts), kept)

    async def _outside(self, question: _Question, kept: Kept) -> bool:
        result = _result(kept, question)
        if result is not None:
            telemetry.CONSTRAINT_RESULTS.labels("hit").inc()
            return result
        telemetry.CONSTRAINT_RESULTS.labels("miss").inc()
        with released_when_slow():
            return await self._evaluations.call(
                (question.key, question.subject), lambda: self._ask(question)
            )

    async def _indexed(self, key: ResultKey, constraint: NftHolding | LtzBalance) -> bool:
        async with session(self._pool) as connection:
            match constraint:
                case NftHolding():
                    observed = await tokens.count_held(
                        connection, key.user, constraint.holding_collection_id, constraint.min
                    )
                case LtzBalance():
                    observed = await facts.balance(connection, key.user)
        is_met = is_satisfied(constraint, observed)
        _count(constraint, "met" if is_met else "not_met")
        return is_met

    async def _ask(self, question: _Question) -> bool:
        """Evaluate again if the result is invalidated meanwhile: some of its waiters may have come
        after the invalidation."""
        key = question.key
        for _ in range(_MOST_EVALUATIONS):
            async with session(self._pool) as connection:
                # Another evaluation may have ended since the caller read the cache.
                kept = await constraint_results.get(connection, key.user, key.collection_id)
                result = _result(kept, question)
                if result is not None:
                    return result
                ticket = await constraint_results.begin(
                    connection, key, question.subject, _EVALUATION_SECONDS
                )
            is_met = await self._evaluated(question)
            if is_met is None or await self._keep(question, ticket, is_met):
                return bool(is_met)
        return bool(is_met)

    async def _evaluated(self, question: _Question) -> bool | None:
        """Return None if the service failed."""
        constraint = question.constraint
        try:
            is_met = await self._ask_service(question)
        except (ExternalApiUnavailable, ChatUnavailable) as failure:
            log.warning(
                "constraint.service_failed",
                kind=constraint.kind,
                collection=constraint.collection_id,
                reason=failure.reason,
            )
            _count(constraint, "failed")
            return None
        _count(constraint, "met" if is_met else "not_met")
        return is_met

    async def _ask_service(self, question: _Question) -> bool:
        match question.constraint:
            case ExternalApi() as constraint:
                return is_satisfied(constraint, await self._apis.ask(constraint, question.key.user))
            case constraint:
                return await self._members.is_met(constraint, question.accounts)

    async def _keep(self, question: _Question, ticket: UUID, is_met: bool) -> bool:
        async with session(self._pool) as connection:
            return await constraint_results.put(
                connection, question.key, ticket, is_met, question.constraint.ttl_seconds
            )

    async def close(self) -> None:
        """Cancel the evaluations under way."""
        await self._evaluations.close()


def _api_question(key: ResultKey, brand: Address, constraint: ExternalApi) -> _Question:
    fingerprint = hashlib.sha256(constraint.model_dump_json().encode()).digest()
    return _Question(
        key, ConstraintSubject(brand, constraint.kind, constraint.url, fingerprint), constraint
    )


def _chat_question(
    key: ResultKey, brand: Address, constraint: ChatConstraint, accounts: tuple[str, ...]
) -> _Question:
    """The accounts are part of the question: a changed account invalidates the answer."""
    chat_query = ChatQuery(constraint=constraint, accounts=accounts).as_bytes()
    subject = ConstraintSubject(brand, constraint.kind, fingerprint=chat_query)
    return _Question(key, subject, constraint, accounts)


def _result(kept: Kept, question: _Question) -> bool | None:
    """Return the cached result, unless it belongs to a former constraint at this position."""
    result = kept.get(question.key.position)
    return result[1] if result is not None and result[0] == question.subject else None


def _plausible(claims: int | None) -> int | None:
    """Return the caller's number of the claim, or None for one that PerkNFT always refuses."""
    return None if claims is None or claims > MOST_CLAIMS else claims


def _shortage(accounts: tuple[str, ...], usable: tuple[str, ...]) -> str | None:
    """Return why there is no account to check, or None if there is one."""
    if usable:
        return None
    return _IN_USE if accounts else _NOT_LINKED


def _refusal(constraint: Constraint, position: int, shortage: str | None) -> ValidationFailed:
    text = f"A purchase constraint of the collection is not met: {constraint.kind}"
    facts = {
        "constraint": constraint.kind,
        "position": position,
        "collectionId": constraint.collection_id,
    }
    if constraint.kind not in CHAT_KINDS or shortage is None:
        return ValidationFailed(text, **facts)
    hint = f"{text}: {_HINTS[shortage]}"
    return ValidationFailed(hint, **facts, reason=shortage, provider=PLATFORM)


def _count(constraint: Constraint, outcome: str) -> None:
    telemetry.CONSTRAINT_EVALUATIONS.labels(constraint.kind, outcome).inc()
