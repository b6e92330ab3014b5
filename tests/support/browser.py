"""A headless chromium for tests, driven over its DevTools protocol (https://chromedevtools.github.io/devtools-protocol).

    async with chromium(folder) as browser:
        await browser.go("http://127.0.0.1:49152/")
        assert await browser.run("document.title") == "callfuse"

Needs nothing but the browser and aiohttp. What a page writes to the console as an error, and each request that leaves
this machine or that a policy has refused, is kept in `browser.complaints`. `browser.failures` are the addresses whose
answers the console reports as failed.
"""

import asyncio
import base64
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp

PROGRAM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), "")
"""The browser; empty where there is none."""
PATIENCE_S = 60
KEYS = {
    "Enter": 13,
    "Escape": 27,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "ArrowUp": 38,
    "ArrowDown": 40,
    "Tab": 9,
    "End": 35,
}


class Browser:
    """One page. Errors of scripts that a test runs in it are raised here as AssertionError."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.failures: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def __aenter__(self) -> Self:
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.send(f"{domain}.enable")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
            elif told["method"] == "Network.requestWillBeSent":
                self.requests.append(told["params"]["request"]["url"])
            elif told["method"] == "Network.responseReceived" and told["params"]["response"]["status"] >= 400:
                self.failures.append(told["params"]["response"]["url"])
            elif told["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["params"]["exceptionDetails"]))
            elif told["method"] == "Log.entryAdded" and told["params"]["entry"]["source"] == "security":
                self.complaints.append(told["params"]["entry"]["text"])

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; its result."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE_S):
            told = await self._waiting[number]
        assert "error" not in told, told
        result: dict[str, Any] = told["result"]
        return result

    async def go(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def run(self, script: str) -> Any:
        """The value of an expression, or of its promise."""
        told = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, script: str, within_s: float = PATIENCE_S) -> None:
        """Wait until an expression is true. AssertionError if that takes longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    with suppress(AssertionError):  # of a page that is just being left
                        if await self.run(f"!!({script})"):
                            return
                    await asyncio.sleep(0.02)
        raise AssertionError(
            f"not within {within_s} s: {script}; the page says {await self.run('document.body.innerText')}"
        )

    async def press(self, *keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            text = {"text": "\r"} if key == "Enter" else {}
            code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            await self.send("Input.dispatchKeyEvent", type="keyDown", **code, **text)
            await self.send("Input.dispatchKeyEvent", type="keyUp", **code)

    async def type(self, selector: str, text: str) -> None:
        """Type into a field."""
        await self.run(f"(document.querySelector({json.dumps(selector)}).focus(), document.activeElement.select())")
        await self.send("Input.insertText", text=text)

    async def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Have a screen of this size, and ask for these colours."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self) -> bytes:
        """What is seen, as a PNG."""
        told = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(told["data"])


@asynccontextmanager
async def chromium(folder: Path, *options: str) -> AsyncIterator[Browser]:
    """A browser with a profile below `folder`, ended with the block. It reaches nothing but this machine."""
    profile = folder / "profile"
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={profile}", "--remote-debugging-port=0", *options, "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _port_of(profile / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            url = pages[0]["webSocketDebuggerUrl"]
            async with session.ws_connect(url, max_msg_size=0) as socket, Browser(socket) as browser:
                yield browser
    finally:
        process.terminate()
        await process.wait()


async def _port_of(file: Path) -> int:
    """The port that the browser writes down once it listens."""
    async with asyncio.timeout(PATIENCE_S):
        while not (port := _written(file)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    return port


def _written(file: Path) -> int:
    """The port in the file; 0 if it is not whole."""
    lines = file.read_text().splitlines() if file.exists() else []
    return int(lines[0]) if len(lines) > 1 else 0
