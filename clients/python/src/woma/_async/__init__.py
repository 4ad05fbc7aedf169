"""The sandbox and its parts for asyncio."""
