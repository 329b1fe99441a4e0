"""An event endpoint as it is usually written: FastAPI, SQLAlchemy's ORM and one transaction.

The endpoint checks what ltzd checks of an unsigned event: brand, domain, type, duplicate, cooldown,
the user's maximum; and stores user, claim, event and reward. No budget, no limit of addresses and
no mint. Runs in an environment of its own, without ltzd:

    scripts/with-environment peers python benchmarks/peers/fastapi_events.py DATABASE_URL PORT

The database URL is SQLAlchemy's, with asyncpg. `setup` makes the tables and a brand.
"""

import secrets
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, EmailStr, Field
from sqlalchemy import ForeignKey, LargeBinary, UniqueConstraint, select
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import DateTime, Integer, String

BRAND = "0xbe4c000000000000000000000000000000000001"
DOMAIN = "bench.example"
TYPES = {"custom_bench": 1, "custom_bench_unrewarded": 0}


class Base(DeclarativeBase):
    pass


class Brand(Base):
    __tablename__ = "brands"
    id: Mapped[str] = mapped_column(String(42), primary_key=True)
    domains: Mapped[list[str]] = mapped_column(ARRAY(String))
    duplicate_window_seconds: Mapped[int] = mapped_column(Integer)


class EventType(Base):
    __tablename__ = "event_types"
    brand_id: Mapped[str] = mapped_column(ForeignKey("brands.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String, primary_key=True)
    reward: Mapped[int]
    cooldown_hours: Mapped[int]
    max_claims_per_user: Mapped[int]


class User(Base):
    __tablename__ = "users"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    email: Mapped[str] = mapped_column(String, unique=True)
    wallet: Mapped[bytes] = mapped_column(LargeBinary)


class Claim(Base):
    __tablename__ = "claims"
    __table_args__ = (UniqueConstraint("brand_id", "event_type", "user_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    brand_id: Mapped[str] = mapped_column(String(42))
    event_type: Mapped[str]
    user_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("users.id"))
    count: Mapped[int]
    last_event_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Event(Base):
    __tablename__ = "events"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    brand_id: Mapped[str] = mapped_column(String(42), index=True)
    event_type: Mapped[str]
    user_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("users.id"))
    domain: Mapped[str]
    details: Mapped[dict[str, object] | None] = mapped_column(JSONB)
    ltz: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Reward(Base):
    __tablename__ = "rewards"
    id: Mapped[uuid.UUID] = mapped_column(ForeignKey("events.id"), primary_key=True)
    wallet: Mapped[bytes] = mapped_column(LargeBinary)
    ltz: Mapped[int]
    state: Mapped[str] = mapped_column(String, default="queued", index=True)


class NewEvent(BaseModel):
    brand_id: str = Field(alias="brandId", pattern=r"^0x[0-9a-fA-F]{40}$")
    event_type: str = Field(alias="eventType", min_length=1, max_length=100)
    user_email: EmailStr = Field(alias="userEmail")
    domain: str = Field(min_length=1, max_length=253)
    metadata: dict[str, object] | None = None


class Recorded(BaseModel):
    success: bool
    event_id: uuid.UUID = Field(alias="eventId")
    ltz_amount: int = Field(alias="ltzAmount")
    status: str


def application(database_url: str) -> FastAPI:
    engine = create_async_engine(database_url, pool_size=20, max_overflow=0)
    session_of = async_sessionmaker(engine, expire_on_commit=False)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await setup(engine, session_of)
        yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)

    @app.post("/service-api/manual-event")
    async def manual_event(event: NewEvent) -> Recorded:
        async with session_of() as session, session.begin():
            return await record(session, event)

    return app


async def setup(engine, session_of) -> None:  # type: ignore[no-untyped-def]
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with session_of() as session, session.begin():
        session.add(Brand(id=BRAND, domains=[DOMAIN], duplicate_window_seconds=0))
        await session.flush()
        for name, reward in TYPES.items():
            session.add(
                EventType(
                    brand_id=BRAND,
                    name=name,
                    reward=reward,
                    cooldown_hours=0,
                    max_claims_per_user=-1,
                )
            )


async def record(session: AsyncSession, event: NewEvent) -> Recorded:
    brand = await session.get(Brand, event.brand_id.lower())
    if brand is None:
        raise HTTPException(403, "Unknown brand")
    if event.domain.lower() not in brand.domains:
        raise HTTPException(403, "Domain not authorized")
    kind = await session.get(EventType, (brand.id, event.event_type))
    if kind is None:
        raise HTTPException(400, "Event type not configured")
    now = datetime.now(UTC)
    user = await user_of(session, event.user_email.lower())
    await refuse_duplicate(session, brand, kind, user, now)
    claim = await claim_of(session, brand, kind, user)
    if claim is None:
        session.add(
            Claim(
                brand_id=brand.id,
                event_type=kind.name,
                user_id=user.id,
                count=1,
                last_event_at=now,
            )
        )
    else:
        if now - claim.last_event_at < timedelta(hours=kind.cooldown_hours):
            raise HTTPException(429, "Cooldown active")
        if 0 <= kind.max_claims_per_user <= claim.count:
            raise HTTPException(429, "Max claims reached")
        claim.count += 1
        claim.last_event_at = now
    row = Event(
        brand_id=brand.id,
        event_type=kind.name,
        user_id=user.id,
        domain=event.domain,
        details=event.metadata,
        ltz=kind.reward,
        created_at=now,
    )
    session.add(row)
    await session.flush()
    if kind.reward:
        session.add(Reward(id=row.id, wallet=user.wallet, ltz=kind.reward))
    return Recorded.model_validate(
        {"success": True, "eventId": row.id, "ltzAmount": kind.reward, "status": "final"}
    )


async def user_of(session: AsyncSession, email: str) -> User:
    user = await session.scalar(select(User).where(User.email == email))
    if user is not None:
        return user
    await session.execute(
        insert(User)
        .values(id=uuid.uuid4(), email=email, wallet=secrets.token_bytes(20))
        .on_conflict_do_nothing()
    )
    return (await session.scalars(select(User).where(User.email == email))).one()


async def claim_of(
    session: AsyncSession, brand: Brand, kind: EventType, user: User
) -> Claim | None:
    claim: Claim | None = await session.scalar(
        select(Claim)
        .where(
            Claim.brand_id == brand.id,
            Claim.event_type == kind.name,
            Claim.user_id == user.id,
        )
        .with_for_update()
    )
    return claim


async def refuse_duplicate(
    session: AsyncSession, brand: Brand, kind: EventType, user: User, now: datetime
) -> None:
    if not brand.duplicate_window_seconds:
        return
    since = now - timedelta(seconds=brand.duplicate_window_seconds)
    if await session.scalar(
        select(Event.id)
        .where(
            Event.brand_id == brand.id,
            Event.event_type == kind.name,
            Event.user_id == user.id,
            Event.created_at > since,
        )
        .limit(1)
    ):
        raise HTTPException(409, "Duplicate event")


if __name__ == "__main__":
    uvicorn.run(
        application(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning"
    )
