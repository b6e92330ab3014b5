"""Agents of the Vercel AI SDK, streaming with each of its providers: stopped, steered, or left in peace.

The packages are installed with npm into `build/node`, once in a test session; without Node, or where npm cannot
install them, the tests are skipped.
"""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from callfuse.testing import Answer, Call, looping_model
from tests.sdk.wiring import wired
from tests.support.rules import StrictVendor

MARK = "[callfuse]"
AGENT = Path(__file__).with_name("agent.mjs")
FOLDER = Path(__file__).parents[2] / "build" / "node"
PACKAGES = {
    "ai-6": {"ai": "~6.0.326", "openai": "~3.0.141", "anthropic": "~3.0.138", "google": "~3.0.141"},
    "ai-7": {"ai": "~7.0.173", "openai": "~4.0.118", "anthropic": "~4.0.105", "google": "~4.0.121"},
}
PROVIDERS = ("openai-chat", "openai-responses", "anthropic", "google")
THINKS = {
    "anthropic": {"anthropic": {"thinking": {"type": "enabled", "budgetTokens": 1024}}},
    "google": {"google": {"thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True}}},
    "openai-responses": {"openai": {"store": False, "include": ["reasoning.encrypted_content"]}},
}
INSTALL_S, RUN_S = 180, 60

every_provider = pytest.mark.parametrize("provider", PROVIDERS)


@pytest.fixture(scope="session", params=list(PACKAGES))
def installed(request: pytest.FixtureRequest) -> Path:
    """The folder in which one generation of the packages is installed."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node and npm are not installed")
    folder: Path = FOLDER / request.param
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {name if name == "ai" else f"@ai-sdk/{name}": at for name, at in PACKAGES[request.param].items()}
    package = {"private": True, "type": "module", "dependencies": wanted | {"zod": "^4.1.8"}}
    (folder / "package.json").write_text(json.dumps(package, indent=2) + "\n", encoding="utf-8")
    command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install the Vercel AI SDK within {INSTALL_S} s")
    if done.returncode:
        pytest.skip(f"npm cannot install the Vercel AI SDK: {done.stderr.strip()[-300:]}")
    return folder


async def run(folder: Path, **asked: Any) -> dict[str, Any]:
    """What the agent went through, by its own account."""
    command = ["node", str(AGENT), json.dumps(asked)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(RUN_S):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
        raise
    assert process.returncode == 0, err.decode()
    account: dict[str, Any] = json.loads(out)
    assert account["errors"] == []
    assert not {"error", "tool-error", "abort"} & set(account["parts"])
    for begun, ended in (("text-start", "text-end"), ("reasoning-start", "reasoning-end")):
        assert account["parts"].count(begun) == account["parts"].count(ended)
    assert account["parts"].count("tool-call") == account["parts"].count("tool-result") == len(account["used"])
    return account


@every_provider
async def test_pass(installed: Path, provider: str) -> None:
    """A healthy run passes: two different calls, then an answer."""
    calls = [Call("search_web", {"query": "llamas"}), Call("search_web", {"query": "alpacas"})]
    vendor = StrictVendor([*(Answer("Hm.", (call,)) for call in calls), Answer("They are camelids.")])
    async with wired(vendor, "chance_then_block") as url:
        account = await run(installed, provider=provider, url=url)
    assert account["used"] == ["llamas", "alpacas"]
    assert (account["text"], account["finish"]) == ("They are camelids.", "stop")
    assert account["shown"] == "Hm.Hm.They are camelids."


@every_provider
async def test_steer(installed: Path, provider: str) -> None:
    """With a chance the model concludes within the third step: the tool is executed twice, the text is the model's."""
    vendor = StrictVendor(looping_model(text="Again.", after_guidance=Answer("Got it.")))
    async with wired(vendor, "chance_then_block") as url:
        account = await run(installed, provider=provider, url=url)
    assert account["used"] == ["current status", "current status"]
    assert account["text"].startswith("Again.")
    assert account["text"].endswith("Got it.")
    assert (account["finish"], account["steps"]) == ("stop", 3)
    assert MARK not in account["shown"]
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True]
    assert not any(request.violations for request in vendor.requests)


@every_provider
async def test_steer_to_another_call(installed: Path, provider: str) -> None:
    """With a chance the model makes another call within the third step, whose result brings the answer."""
    vendor = StrictVendor(looping_model(text="Again.", conclusion="Got it."))
    async with wired(vendor, "chance_then_block") as url:
        account = await run(installed, provider=provider, url=url)
    assert account["used"] == ["current status", "current status", "something else"]
    assert (account["text"], account["finish"], account["steps"]) == ("Got it.", "stop", 4)
    assert MARK not in account["shown"]
    assert not any(request.violations for request in vendor.requests)


@every_provider
async def test_block(installed: Path, provider: str) -> None:
    """In block mode the run ends at the third equal call with callfuse's text, which the user sees streamed."""
    vendor = StrictVendor(looping_model(text="Again.", stubborn=True))
    async with wired(vendor, "block") as url:
        account = await run(installed, provider=provider, url=url)
    assert account["used"] == ["current status", "current status"]
    assert account["text"].startswith("Again.")
    assert MARK in account["text"]
    assert (account["finish"], account["steps"]) == ("stop", 3)
    assert account["shown"] == "Again.Again." + account["text"]
    assert len(vendor.requests) == 3


@pytest.mark.parametrize("provider", list(THINKS))
@pytest.mark.parametrize("mode", ["block", "chance_then_block"])
async def test_thinking_and_going_on(installed: Path, provider: str, mode: str) -> None:
    """With thinking on, the vendor accepts each step of a run, and the history of it with the next question."""
    vendor = StrictVendor(looping_model(thinking="Let me think.", conclusion="Got it."))
    async with wired(vendor, mode) as url:
        asked = {"provider": provider, "url": url, "options": THINKS[provider]}
        first = await run(installed, **asked)
        before = len(vendor.requests)
        await run(installed, **asked, question="And now?", messages=first["messages"])
    assert len(vendor.requests) > before
    assert not any(request.violations for request in vendor.requests)
    assert "reasoning-start" in first["parts"]
    assert (MARK in first["text"]) is (mode == "block")
