"""MCP over HTTP, with the package `mcp` 2: a table and a chart of examples/sales.csv."""

import asyncio
import base64
import os
from pathlib import Path

from mcp import Client

URL = os.environ.get("SERVER_URL", "http://127.0.0.1:8080")
SESSION = {"session_id": "example-analyse"}

TABLE = """
import pandas as pd
sales = pd.read_csv("sales.csv").drop_duplicates()
sales["region"] = sales["region"].str.strip().str.lower()
revenue = (sales["units"] * sales["price"]).groupby(sales["region"]).sum()
print(revenue.to_string(header=False).removeprefix("region\\n"))
"""
CHART = """
import matplotlib.pyplot as plt
revenue.plot.bar(rot=0)
plt.show()
"""


async def main():
    async with Client(f"{URL}/mcp") as woma:
        sales = (Path(__file__).parent / "sales.csv").read_text()
        upload = {"path": "sales.csv", "content": sales}
        await woma.call_tool("upload_file", SESSION | upload)
        table = await woma.call_tool("execute_code", SESSION | {"code": TABLE})
        print(table.structured_content["stdout"], end="")
        chart = await woma.call_tool("execute_code", SESSION | {"code": CHART})
        for block in chart.content:
            if block.type == "image":
                picture = base64.b64decode(block.data)
                Path("chart_001.png").write_bytes(picture)
                print(f"chart_001.png: {len(picture)} bytes")


asyncio.run(main())
