# program: run tasks with asyncio.run in a main guard
# habit: 17, 18
# sees: Results: [0, 1, 4]

import asyncio

async def fetch(i):
    await asyncio.sleep(0.01)
    return i * i

async def main():
    results = await asyncio.gather(*(fetch(i) for i in range(3)))
    print("Results:", results)

if __name__ == "__main__":
    asyncio.run(main())
