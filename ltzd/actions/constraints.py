"""Purchase constraints: whether a user may claim from a collection, as its brand has said.

What the index knows (tokens held, LTZ) is read anew each time, which costs no more than reading a
result would. What an outside API says is kept for its TTL, unless somebody invalidates it. An API
that fails has said nothing: the constraint is not satisfied, and nothing is kept.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import structlog

from ltzd import telemetry
from ltzd.errors import Unauthorized, Unavailable, ValidationFailed
from ltzd.providers.external_api import ApiFailed, ExternalApis
from ltzd.rules.constraints import Constraint, ExternalApi, LtzBalance, NftHolding, is_satisfied
from ltzd.store import brand_keys, collections, constraint_results, facts, tokens
from ltzd.store.brands import BrandBook
from ltzd.store.constraint_results import Key, Subject
from ltzd.store.database import Pool, session
from ltzd.values import Address

log = structlog.get_logger()

_EVALUATION_SECONDS = 15.0
"""Longer than any API is waited for: a row of a process that died is no obstacle for long."""

_MOST_EVALUATIONS = 3
"""Of one claim; whoever invalidates faster than his API answers is not satisfied."""

Kept = Mapping[int, tuple[Subject, bool]]


class PurchaseConstraints:
    """One evaluation of a user's constraint is under way at a time, whoever waits for it."""

    def __init__(self, pool: Pool, brands: BrandBook, apis: ExternalApis) -> None:
        self._pool = pool
        self._brands = brands
        self._apis = apis
        self._asking: dict[tuple[Key, Subject], asyncio.Task[bool]] = {}

    async def check(self, user: Address, collection_id: int) -> None:
        """Raises ValidationFailed that names the first of the file that is not satisfied, and
        Unavailable while it is not known whose file counts.
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
        outcomes = await asyncio.gather(
            *(
                self._outcome(Key(user, collection_id, position), brand, constraint, kept)
                for position, constraint in enumerate(constraints)
            )
        )
        for position, (constraint, is_met) in enumerate(zip(constraints, outcomes, strict=True)):
            if not is_met:
                raise ValidationFailed(
                    f"A purchase constraint of the collection is not met: {constraint.kind}",
                    constraint=constraint.kind,
                    position=position,
                    collectionId=collection_id,
                )

    async def invalidate(
        self,
        api_key: str | None,
        api_url: str,
        user: Address | None,
        collection_id: int | None,
    ) -> int:
        """Forget what an API said; answers how much. A key narrows it to its brand's own.

        Raises Unauthorized for a key of nobody.
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
        telemetry.CONSTRAINT_RESULTS_FORGOTTEN.inc(gone)
        return gone

    def _refuse_in_doubt(self, collection_id: int) -> None:
        """The index may be behind the chain, or be read again from the beginning."""
        if self._brands.is_constrained(collection_id):
            raise Unavailable("The collection is not indexed yet, and has constraints")

    def _configured(self, brand: Address, collection_id: int) -> Sequence[Constraint]:
        """A disabled brand's too: what it has closed stays closed."""
        configuration = self._brands.configuration(brand)
        return () if configuration is None else configuration.constraints_on(collection_id)

    async def _outcome(self, key: Key, brand: Address, constraint: Constraint, kept: Kept) -> bool:
        if not isinstance(constraint, ExternalApi):
            return await self._indexed(key, constraint)
        subject = _subject(brand, constraint)
        found = _result(kept, key, subject)
        if found is not None:
            telemetry.CONSTRAINT_RESULTS.labels("hit").inc()
            return found
        telemetry.CONSTRAINT_RESULTS.labels("miss").inc()
        question = (key, subject)
        asking = self._asking.get(question)
        if asking is None:
            asking = asyncio.create_task(self._ask(key, subject, constraint))
            self._asking[question] = asking
            asking.add_done_callback(lambda _done: self._asking.pop(question, None))
        return await asyncio.shield(asking)

    async def _indexed(self, key: Key, constraint: NftHolding | LtzBalance) -> bool:
        async with session(self._pool) as connection:
            match constraint:
                case NftHolding():
                    observed = await tokens.held(
                        connection, key.user, constraint.holding_collection_id, constraint.min
                    )
                case LtzBalance():
                    observed = await facts.balance(connection, key.user)
        is_met = is_satisfied(constraint, observed)
        _count(constraint, "met" if is_met else "not_met")
        return is_met

    async def _ask(self, key: Key, subject: Subject, constraint: ExternalApi) -> bool:
        """Asks again when what was found is invalidated meanwhile: those who wait for it now may
        have come after that."""
        for _ in range(_MOST_EVALUATIONS):
            async with session(self._pool) as connection:
                # One that ended since its caller looked, or another process's.
                kept = await constraint_results.get(connection, key.user, key.collection_id)
                found = _result(kept, key, subject)
                if found is not None:
                    return found
                ticket = await constraint_results.begin(
                    connection, key, subject, _EVALUATION_SECONDS
                )
            is_met = await self._evaluated(key, constraint)
            if is_met is None or await self._keep(key, ticket, is_met, constraint):
                return bool(is_met)
        return False

    async def _evaluated(self, key: Key, constraint: ExternalApi) -> bool | None:
        """None where the API has said nothing."""
        try:
            is_met = is_satisfied(constraint, await self._apis.ask(constraint, key.user))
        except ApiFailed as failure:
            log.warning(
                "constraint.api_failed", collection=key.collection_id, reason=failure.reason
            )
            _count(constraint, "failed")
            return None
        _count(constraint, "met" if is_met else "not_met")
        return is_met

    async def _keep(self, key: Key, ticket: UUID, is_met: bool, constraint: ExternalApi) -> bool:
        async with session(self._pool) as connection:
            return await constraint_results.put(
                connection, key, ticket, is_met, constraint.ttl_seconds
            )

    async def close(self) -> None:
        for asking in list(self._asking.values()):
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking


def _subject(brand: Address, constraint: ExternalApi) -> Subject:
    said = hashlib.sha256(constraint.model_dump_json().encode()).digest()
    return Subject(brand, constraint.kind, constraint.url, said)


def _result(kept: Kept, key: Key, subject: Subject) -> bool | None:
    """Unless it was a result of something else, which stood there in the file before."""
    found = kept.get(key.position)
    return found[1] if found is not None and found[0] == subject else None


def _count(constraint: Constraint, outcome: str) -> None:
    telemetry.CONSTRAINT_EVALUATIONS.labels(constraint.kind, outcome).inc()
