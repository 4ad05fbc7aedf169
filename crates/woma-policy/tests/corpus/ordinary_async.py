"""profiles: open tiers tiers+all power-interpreter
Waiting at the top, as notebooks do."""
import asyncio

async def work(n):
    await asyncio.sleep(0)
    return n

print(await asyncio.gather(*(work(n) for n in range(3))))
