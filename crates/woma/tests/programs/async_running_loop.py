# program: ask for the running loop and make a task at the top level
# habit: 17
# sees: done 42

import asyncio

loop = asyncio.get_running_loop()
future = loop.create_task(asyncio.sleep(0, result=42))
print("done", await future)
