"""Drives /mcp of two servers on one database with the public client of the Model Context Protocol.

Usage: assistant.py URL OTHER_URL
"""

import asyncio
import json
import sys
import urllib.request

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

ADMIN, READER = "admin-secret-0123456789", "read-secret-0123456789"


def expect(what, condition):
    if not condition:
        sys.exit(f"not so: {what}")


def put(url, path, body):
    request = urllib.request.Request(
        url + path, method="PUT", data=json.dumps(body).encode(), headers={"Authorization": f"Bearer {ADMIN}"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def connect(url, secret, mode):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"})
    return Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode)


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    return json.loads(result.content[0].text), result.is_error


async def read(url, mode):
    async with connect(url, READER, mode) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        expect(f"a reader has the tools to read: {tools}", "get_results" in tools and "apply_change" not in tools)
        listed, failed = await call(client, "list_experiments")
        expect(f"{listed}", not failed and [item["key"] for item in listed["experiments"]] == ["checkout"])
        explained, failed = await call(client, "explain_decision", user_id="ann", experiment="checkout")
        expect(f"{explained}", not failed and explained["steps"])
        refused, failed = await call(client, "preview_experiment", key="checkout", experiment={})
        expect(f"{refused}", failed and refused["status"] == 403)
        return client.protocol_version


async def change(url, other):
    body = {"variations": ["control", "new"], "traffic": 40}
    async with connect(url, ADMIN, "auto") as client:
        shown, failed = await call(client, "preview_experiment", key="checkout", experiment=body)
        expect(f"{shown}", not failed and shown["preview"]["experiment"]["traffic"] == 40)
    async with connect(other, ADMIN, "auto") as client:
        before, _ = await call(client, "get_experiment", key="checkout")
        expect(f"a preview changes nothing: {before}", before["traffic"] == 100)
        applied, failed = await call(client, "apply_change", change_token=shown["change_token"])
        expect(f"{applied}", not failed and applied["traffic"] == 40)
        again, failed = await call(client, "apply_change", change_token=shown["change_token"])
        expect(f"once: {again}", failed and again["status"] == 412)


def main():
    url, other = sys.argv[1:]
    put(url, "/v1/experiments/checkout", {"variations": ["control", "new"]})
    versions = [asyncio.run(read(url, mode)) for mode in ("legacy", "auto")]
    expect(f"both kinds of versions: {versions}", versions == ["2025-11-25", "2026-07-28"])
    asyncio.run(change(url, other))


if __name__ == "__main__":
    main()
