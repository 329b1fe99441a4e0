import asyncio
from tests.operator.test_mint_lane import *
from tests.operator.test_mint_lane import _true

@pytest.mark.parametrize("n", range(25))
async def test_dbg(world, n):
    world.node.mines_at_once = True
    async with world.lane() as one, world.lane() as other:
        async def one_serves() -> bool:
            return one.is_ready != other.is_ready
        for _ in range(4):
            try:
                await until(one_serves, 3)
                await world.queue(7)
                await world.kill("ltzd lock ltzd lane%")
                await world.queue(7)
                async def m(): return await world.unminted() == 0
                await until(m, 3)
            except AssertionError:
                for t in asyncio.all_tasks():
                    print("TASK", t)
                    t.print_stack(limit=12)
                async with session(world.pool) as c:
                    for r in await c.fetch("select pid, application_name, state, query, wait_event from pg_stat_activity where datname=current_database()"): print(dict(r))
                    for r in await c.fetch("select * from pg_locks where locktype='advisory'"): print(dict(r))
                raise
