"""Real servers and clients of MCP with `MCPMiddleware` between them, run in an environment that has them.

    python mcp_scenarios.py NAME

prints one JSON object: `runs`, how often the tool has run, and `results`, of each call its texts, its structured
content and whether it is an error. No line of it is of pytest: it runs where only the host's packages are.
"""

import asyncio
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from callfuse.mcp import MCPMiddleware

CALLS = 8
PAGE = Path(__file__).parents[2] / "docs/mount/mcp.md"
READ_ONLY = {"readOnlyHint": True}
runs: list[Any] = []
IS_NEW = int(version("mcp").partition(".")[0]) >= 2


def add(a: int, b: int) -> int:
    """Add two numbers."""
    runs.append((a, b))
    return a + b


def fail(a: int, b: int) -> int:
    """Always fail."""
    runs.append((a, b))
    raise ValueError("the disk is full")


def shown(result: Any) -> dict[str, Any]:
    """A result of any client of these packages as plain values."""

    def first(*names: str) -> Any:
        return next((value for name in names if (value := getattr(result, name, None)) is not None), None)

    return {
        "texts": [getattr(block, "text", block.type) for block in result.content],
        "structured": first("structured_content", "structuredContent"),
        "is_error": bool(first("is_error", "isError")),
    }


def free_address() -> str:
    """The URL of a server that does not run yet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/mcp"


def port_of(url: str) -> int:
    """The port of such a URL."""
    return int(url.rpartition(":")[2].partition("/")[0])


def wait_for(url: str) -> None:
    """Wait until a server listens."""
    for _ in range(2000):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port_of(url)), timeout=1):
            return
        time.sleep(0.01)


def serve(app: Any) -> str:
    """Serve an app in a thread of its own; returns its address."""
    url = free_address()
    config = uvicorn.Config(app, port=port_of(url), log_level="error", timeout_graceful_shutdown=1)
    threading.Thread(target=uvicorn.Server(config).run, daemon=True).start()
    wait_for(url)
    return url


def new_client(url: str, **options: Any) -> Any:
    """A client of the SDK since its second generation."""
    return import_module("mcp.client").Client(url, **options)


async def with_fastmcp(url: str, name: str = "add") -> list[Any]:
    """Eight equal calls by FastMCP's client."""
    async with import_module("fastmcp").Client(url) as client:
        return [shown(await client.call_tool(name, {"a": 1, "b": 2}, raise_on_error=False)) for _ in range(CALLS)]


async def with_sdk(url: str, name: str = "add", **options: Any) -> list[Any]:
    """The same by the client of the SDK, of either generation."""
    if IS_NEW:
        async with new_client(url, **options) as client:
            return [shown(await client.call_tool(name, {"a": 1, "b": 2})) for _ in range(CALLS)]
    connect = import_module("mcp.client.streamable_http").streamablehttp_client
    session_of = import_module("mcp").ClientSession
    async with connect(url) as (read, write, _), session_of(read, write) as session:
        await session.initialize()
        return [shown(await session.call_tool(name, {"a": 1, "b": 2})) for _ in range(CALLS)]


def with_context(tool: Callable[..., Any]) -> Callable[..., Any]:
    """A tool whose argument `ctx` is the SDK's context, by which it knows it."""
    tool.__annotations__["ctx"] = import_module("mcp.server.mcpserver").Context
    return tool


def fastmcp_server(*tools: Callable[..., Any]) -> Any:
    """A server of FastMCP."""
    server = import_module("fastmcp").FastMCP("host")
    for tool in tools:
        server.tool(tool, annotations=READ_ONLY)
    return server


def sdk_server(*tools: Callable[..., Any], **options: Any) -> Any:
    """A server of the SDK as an app: `MCPServer`, or `FastMCP` as it was called before."""
    if IS_NEW:
        server = import_module("mcp.server.mcpserver").MCPServer("host")
    else:
        server, options = import_module("mcp.server.fastmcp").FastMCP("host", **options), {}
    annotations = import_module("mcp_types" if IS_NEW else "mcp.types").ToolAnnotations.model_validate(READ_ONLY)
    for tool in tools:
        server.tool(annotations=annotations)(tool)
    return server.streamable_http_app(**options)


def fastmcp(name: str = "add") -> list[Any]:
    """FastMCP's server, with the middleware as its docs add one."""
    app = fastmcp_server(add, fail).http_app(middleware=[Middleware(MCPMiddleware)])
    return asyncio.run(with_fastmcp(serve(app), name))


def by_the_page() -> list[Any]:
    """FastMCP's server as `docs/mount/mcp.md` has it, with a tool."""
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(next(one for one in found if "from fastmcp" in one), names)
    names["mcp"].tool(add, annotations=READ_ONLY)
    return asyncio.run(with_fastmcp(serve(names["app"])))


def fastmcp_wrapped() -> list[Any]:
    """The same, wrapped."""
    return asyncio.run(with_fastmcp(serve(MCPMiddleware(fastmcp_server(add).http_app()))))


def fastmcp_mounted() -> list[Any]:
    """In another app, at a path of its own."""
    inner = fastmcp_server(add).http_app(path="/mcp")
    app = Starlette(routes=[Mount("/tools", MCPMiddleware(inner))], lifespan=inner.lifespan)
    return asyncio.run(with_fastmcp(serve(app).replace("/mcp", "/tools/mcp")))


def fastmcp_run() -> list[Any]:
    """As FastMCP's docs start a server."""
    url = free_address()
    options = {"transport": "http", "port": port_of(url), "show_banner": False, "log_level": "error"}
    run = partial(fastmcp_server(add).run, middleware=[Middleware(MCPMiddleware)], **options)
    threading.Thread(target=run, daemon=True).start()
    wait_for(url)
    return asyncio.run(with_fastmcp(url))


def proxied() -> list[Any]:
    """In front of a server that may be of any language, by FastMCP's proxy."""
    behind = serve(fastmcp_server(add).http_app())
    proxy = import_module("fastmcp.server").create_proxy(behind)
    return asyncio.run(with_fastmcp(serve(MCPMiddleware(proxy.http_app()))))


def client_for_each_call() -> list[Any]:
    """Each call by a client, and in a session, of its own; a header says that they belong together."""
    transport = import_module("fastmcp.client.transports").StreamableHttpTransport
    url = serve(MCPMiddleware(fastmcp_server(add).http_app()))

    async def calls() -> list[Any]:
        found = []
        for _ in range(CALLS):
            way = transport(url, headers={"x-callfuse-session-id": "run-1"})
            async with import_module("fastmcp").Client(way) as client:
                found.append(shown(await client.call_tool("add", {"a": 1, "b": 2}, raise_on_error=False)))
        return found

    return asyncio.run(calls())


def authenticated() -> list[Any]:
    """Two clients with tokens of their own; the first one's is taken back behind its third call."""
    verifier = import_module("fastmcp.server.auth.providers.jwt").StaticTokenVerifier(
        tokens={name: {"client_id": name, "scopes": []} for name in ("one", "two")}
    )
    server = import_module("fastmcp").FastMCP("host", auth=verifier)
    server.tool(add, annotations=READ_ONLY)
    url = serve(server.http_app(middleware=[Middleware(MCPMiddleware)]))

    async def calls() -> list[Any]:
        client_of = import_module("fastmcp").Client
        found: list[Any] = []
        async with client_of(url, auth="one") as one, client_of(url, auth="two") as two:
            options: Any = {"raise_on_error": False}
            clients = (one, two, one, two, one)
            found += [shown(await client.call_tool("add", {"a": 1, "b": 2}, **options)) for client in clients]
            del verifier.tokens["one"]
            for client in (one, two):
                try:
                    found.append(shown(await client.call_tool("add", {"a": 1, "b": 2}, **options)))
                except Exception as error:  # noqa: BLE001 - what the caller gets is the observation
                    found.append({"error": str(error)})
        return found

    return asyncio.run(calls())


def bare() -> list[Any]:
    """Without the middleware."""
    return asyncio.run(with_fastmcp(serve(fastmcp_server(add).http_app())))


def sdk(**options: Any) -> list[Any]:
    """The SDK's own server and client."""
    return asyncio.run(with_sdk(serve(MCPMiddleware(sdk_server(add, **options)))))


def sdk_legacy(**options: Any) -> list[Any]:
    """The same in the revision with sessions, of a client that has both."""
    return asyncio.run(with_sdk(serve(MCPMiddleware(sdk_server(add, **options))), mode="legacy"))


def warn() -> list[Any]:
    """With warnings only."""
    app = MCPMiddleware(sdk_server(add), {"tool_call_loop": {"mode": "warn"}})
    return asyncio.run(with_sdk(serve(app)))


def changing() -> list[Any]:
    """A tool of which nobody says that it changes nothing."""

    def send_email(a: int, b: int) -> str:
        runs.append((a, b))
        return "Email sent."

    server = import_module("fastmcp").FastMCP("host")
    server.tool(send_email)
    return asyncio.run(with_fastmcp(serve(MCPMiddleware(server.http_app())), "send_email"))


def unknown() -> list[Any]:
    """A tool that does not exist."""

    async def calls(url: str) -> list[Any]:
        found: list[Any] = []
        async with new_client(url) as client:
            for _ in range(CALLS):
                try:
                    found.append(shown(await client.call_tool("nothing", {})))
                except Exception as error:  # noqa: BLE001 - what the caller gets is the observation
                    found.append({"error": str(error)})
        return found

    return asyncio.run(calls(serve(MCPMiddleware(sdk_server(add)))))


def progress() -> list[Any]:
    """A tool that tells of its progress, so that the answer is a stream; each call's is counted."""

    async def slow(a: int, b: int, ctx: Any) -> int:
        runs.append((a, b))
        for step in range(3):
            await ctx.report_progress(step, 3)
        return a + b

    async def calls(url: str) -> list[Any]:
        found = []
        async with new_client(url) as client:
            for _ in range(CALLS):
                told: list[float] = []

                async def note(done: float, total: float | None, message: str | None, told: Any = told) -> None:
                    told.append(done)

                result = await client.call_tool("slow", {"a": 1, "b": 2}, progress_callback=note)
                found.append({**shown(result), "progress": len(told)})
        return found

    return asyncio.run(calls(serve(MCPMiddleware(sdk_server(with_context(slow))))))


def resumed() -> list[Any]:
    """The server ends each stream before the result, which the client gets with `Last-Event-ID`."""
    streams: Any = import_module("mcp.server.streamable_http")

    class Events:
        def __init__(self) -> None:
            self.events: list[tuple[str, Any]] = []

        async def store_event(self, stream_id: str, message: Any) -> str:
            self.events.append((stream_id, message))
            return str(len(self.events))

        async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
            stream = self.events[int(last_event_id) - 1][0]
            for at, (own, message) in enumerate(self.events[int(last_event_id) :], int(last_event_id) + 1):
                if own == stream and message is not None:
                    await send_callback(streams.EventMessage(message, str(at)))
            return stream

    async def slow(a: int, b: int, ctx: Any) -> int:
        runs.append((a, b))
        await ctx.close_sse_stream()
        await asyncio.sleep(0.2)
        return a + b

    app = MCPMiddleware(sdk_server(with_context(slow), event_store=Events(), retry_interval=10))
    return asyncio.run(with_sdk(serve(app), "slow", mode="legacy"))


def asking() -> list[Any]:
    """A tool that asks the user something, in a round trip of its own."""
    types = import_module("mcp_types")

    async def order(a: int, b: int, ctx: Any) -> Any:
        runs.append((a, b))
        if ctx.input_responses is None:
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            ask = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Who?", requested_schema=form))
            return types.InputRequiredResult(input_requests={"who": ask}, request_state="s")
        return "ordered"

    async def say(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"name": "me"})

    app = MCPMiddleware(sdk_server(with_context(order)))
    return asyncio.run(with_sdk(serve(app), "order", elicitation_callback=say))


def timeouts() -> list[Any]:
    """A client that does not wait, and calls again."""

    async def hang(a: int, b: int) -> int:
        runs.append((a, b))
        await asyncio.sleep(5)
        return a + b

    async def calls(url: str) -> list[Any]:
        found: list[Any] = []
        async with new_client(url, mode=sys.argv[2] if len(sys.argv) > 2 else "auto") as client:
            for _ in range(5):
                try:
                    found.append(shown(await client.call_tool("hang", {"a": 1, "b": 2}, read_timeout_seconds=0.3)))
                except Exception as error:  # noqa: BLE001 - as above
                    found.append({"error": str(error)})
        return found

    return asyncio.run(calls(serve(MCPMiddleware(sdk_server(hang)))))


SCENARIOS: dict[str, Callable[[], list[Any]]] = {
    "bare": bare,
    "by the page": by_the_page,
    "fastmcp": fastmcp,
    "fastmcp failing": lambda: fastmcp("fail"),
    "fastmcp wrapped": fastmcp_wrapped,
    "fastmcp mounted": fastmcp_mounted,
    "fastmcp run": fastmcp_run,
    "client for each call": client_for_each_call,
    "proxied": proxied,
    "sdk": sdk,
    "sdk as json": lambda: sdk(json_response=True),
    "sdk stateless": lambda: sdk(stateless_http=True),
    "sdk legacy": sdk_legacy,
    "sdk legacy as json": lambda: sdk_legacy(json_response=True),
    "sdk legacy stateless": lambda: sdk_legacy(stateless_http=True),
    "authenticated": authenticated,
    "warn": warn,
    "changing": changing,
    "unknown": unknown,
    "progress": progress,
    "resumed": resumed,
    "asking": asking,
    "timeouts": timeouts,
}

if __name__ == "__main__":
    results = SCENARIOS[sys.argv[1]]()
    sys.stdout.write(json.dumps({"runs": len(runs), "results": results}) + "\n")
