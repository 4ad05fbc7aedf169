# program: use the event loop in the old way
# habit: 17
# sees: hello from the loop

import asyncio

async def main():
    return "hello from the loop"

loop = asyncio.get_event_loop()
print(loop.run_until_complete(main()))
