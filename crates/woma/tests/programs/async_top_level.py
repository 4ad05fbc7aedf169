# program: await at the top level
# habit: 17
# sees: Out: 'ready'

import asyncio

async def prepare():
    await asyncio.sleep(0)
    return "ready"

await prepare()
