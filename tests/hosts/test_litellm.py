"""The real LiteLLM behind the guard, around it, and asking it as a guardrail, as `docs/mount/litellm.md` says."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anthropic
import httpx
import openai
import pytest

from callfuse.model import MARKER
from callfuse.testing import Answer, Call, ScriptedVendor
from callfuse.testing.script import VendorRequest
from callfuse.testing.serving import served
from tests.hosts.asking import AGENTS, RESULT, Agent, chat, messages, responses
from tests.hosts.environments import asked_for, environment
from tests.hosts.mounting import PORT, mounted
from tests.hosts.pages import page

VERSION = "1.106.2"
REQUIREMENTS = (f"litellm[proxy]=={VERSION}", "uvicorn==0.54.0")
KEY = "sk-master-of-the-tests"
GUARDRAIL_KEY = "the-key-of-the-guardrail"
START_S = 180
PAGE = page("litellm")
WRAPPED, BEHIND, GUARD = PAGE.commands
CONCLUSION = "I could not find it, so here is what I know without it."
LLAMAS = "Llamas are camelids of the Andes, kept for their wool and as beasts of burden. " * 4

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def script(request: VendorRequest) -> Answer:
    """A model that searches the same again and again; one task it listens to guidance in, one needs no tool."""
    if b"about llamas" in request.raw:
        return Answer(LLAMAS)
    if b"and listen" in request.raw and request.guidance:
        return Answer(CONCLUSION)
    return Answer("", [Call("search", {"query": "current status"})])


@dataclass(frozen=True)
class Running:
    """A LiteLLM that runs: its base URL for clients, the vendor behind it, the log of the process with callfuse."""

    url: str
    vendor: ScriptedVendor
    log: Path


@contextmanager
def started(command: str, folder: Path, python: Path, port: str, *, guardrail: str = "") -> Iterator[str]:
    """Run a command of the page, with this behind its configuration; `port` is that in the command."""
    folder.mkdir()
    (folder / "whole.yaml").write_text(f"{PAGE.files['config.yaml']}\n{guardrail}")
    command = command.replace("config.yaml", "whole.yaml").replace(port, PORT)
    with mounted("litellm", command, python, folder, start_s=START_S) as url:
        yield url


@contextmanager
def scripted() -> Iterator[ScriptedVendor]:
    """A vendor at the base URLs of the environment, and the keys that the page's files read from there."""
    vendor = ScriptedVendor(script)
    with served(vendor) as url, pytest.MonkeyPatch.context() as patch:
        named = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url, "LITELLM_MASTER_KEY": KEY}
        named |= {"OPENAI_API_KEY": "sk-vendor", "ANTHROPIC_API_KEY": "sk-vendor"}
        named |= {"CALLFUSE_GUARDRAIL_KEY": GUARDRAIL_KEY, "CALLFUSE_ADMIN_TOKEN": "the-token-of-the-tests"}
        for name, value in (named | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}).items():
            patch.setenv(name, value)
        yield vendor


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """LiteLLM in the process of callfuse."""
    folder = tmp_path_factory.mktemp("wrapped") / "host"
    with scripted() as vendor, started(WRAPPED, folder, environment(*REQUIREMENTS), "4000") as url:
        yield Running(url, vendor, folder / "log")


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """LiteLLM behind `callfuse serve`."""
    folder = tmp_path_factory.mktemp("behind")
    with scripted() as vendor, started(BEHIND, folder / "host", environment(*REQUIREMENTS), "4000") as url:
        guard = GUARD.replace("http://127.0.0.1:4000", url)
        with started(guard, folder / "guard", Path(sys.executable), "8100") as guarded:
            yield Running(guarded, vendor, folder / "guard" / "log")


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """LiteLLM that asks `callfuse serve`, which no client knows of."""
    folder = tmp_path_factory.mktemp("asking")
    with scripted() as vendor, started(GUARD, folder / "guard", Path(sys.executable), "8100") as guard:
        config = PAGE.files["guardrail.yaml"].replace("http://127.0.0.1:8100", guard)
        with started(BEHIND, folder / "host", environment(*REQUIREMENTS), "4000", guardrail=config) as url:
            yield Running(url, vendor, folder / "guard" / "log")


@pytest.fixture(params=["wrapped", "behind"])
def guarded(request: pytest.FixtureRequest) -> Running:
    """A LiteLLM of which answers are guarded."""
    running: Running = request.getfixturevalue(request.param)
    return running


@asked_for
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_loop_is_withheld(guarded: Running, agent: Agent, streamed: bool) -> None:
    """Two of the calls are executed: a model that does not listen is blocked, one that does comes to an end."""
    executed, text = agent(guarded.url, KEY, f"find it ({streamed})", streamed=streamed)
    assert executed == 2
    assert f"{MARKER} Stopped a tool call loop" in text
    executed, text = agent(guarded.url, KEY, f"find it and listen ({streamed})", streamed=streamed)
    assert (executed, text) == (2, CONCLUSION)


@asked_for
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_healthy_answer_passes(guarded: Running, agent: Agent, streamed: bool) -> None:
    """As it is."""
    assert agent(guarded.url, KEY, f"tell me about llamas ({streamed})", streamed=streamed) == (0, LLAMAS)


@asked_for
def test_a_stream_comes_in_pieces(guarded: Running) -> None:
    """Neither LiteLLM nor callfuse collects it."""
    body = {"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": "about llamas"}]}
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx.stream("POST", f"{guarded.url}/v1/chat/completions", json=body, headers=headers, timeout=60) as answer:
        pieces = [line for line in answer.iter_lines() if line.startswith("data: ")]
    assert len(pieces) > len(LLAMAS) / 20


@asked_for
def test_sessions_are_named_as_litellm_names_them(guarded: Running) -> None:
    """By its header."""
    task = "find it in a session"
    chat(guarded.url, KEY, task, streamed=True, **{"x-litellm-session-id": "session-of-litellm"})
    assert "in session session-of-litellm:" in guarded.log.read_text()


@asked_for
def test_keys_are_checked_by_litellm(guarded: Running) -> None:
    """One that it does not know is refused in its own words (without a database these are odd), and nothing is found
    then; its other paths answer."""
    asked = len(guarded.vendor.requests)
    with pytest.raises((openai.AuthenticationError, openai.BadRequestError)):
        chat(guarded.url, "sk-unknown", "find it", streamed=False)
    assert len(guarded.vendor.requests) == asked
    health = httpx.get(f"{guarded.url}/health/liveliness", timeout=60)
    assert health.status_code == 200
    models = httpx.get(f"{guarded.url}/v1/models", headers={"authorization": f"Bearer {KEY}"}, timeout=60).json()
    assert {one["id"] for one in models["data"]} == {"gpt-4o", "claude"}


@asked_for
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("agent", AGENTS)
def test_the_guardrail_warns_and_blocks(asking: Running, agent: Agent, streamed: bool) -> None:
    """The third call runs and is warned of, the fourth runs and its request is blocked: the model was asked four
    times, and read the warning. A model that listens comes to an end. At `/v1/responses` nothing but blocks is done."""
    before = len(asking.vendor.requests)
    task = f"find it ({streamed})"
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match="Stopped a tool call loop"):
        agent(asking.url, KEY, task, streamed=streamed)
    requests = asking.vendor.requests[before:]
    assert len(requests) == 4
    assert [request.results for request in requests[1:3]] == [(RESULT,)] * 2
    [told] = requests[3].results
    if agent is responses:
        assert told == RESULT
        return
    assert told.startswith(f"{RESULT}\n\n{MARKER} This is call 3 of search")
    assert requests[3].raw.count(MARKER.encode()) == 1
    executed, text = agent(asking.url, KEY, f"find it and listen ({streamed})", streamed=streamed)
    assert (executed, text) == (3, CONCLUSION)


@asked_for
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("agent", AGENTS)
def test_the_guardrail_leaves_others_alone(asking: Running, agent: Agent, streamed: bool) -> None:
    """A conversation without a loop, with or without calls."""
    assert agent(asking.url, KEY, f"tell me about llamas ({streamed})", streamed=streamed) == (0, LLAMAS)


@asked_for
@pytest.mark.parametrize("header", ["x-litellm-session-id", "x-claude-code-session-id"])
def test_the_guardrail_names_sessions_as_litellm_does(asking: Running, header: str) -> None:
    """By its header, of which it shows the value, or by one that the page adds."""
    with pytest.raises(anthropic.BadRequestError):
        messages(asking.url, KEY, "find it", streamed=True, **{header: f"session-by-{header}"})
    assert f"in session session-by-{header}:" in asking.log.read_text()


def test_the_page_names_the_version_that_is_tested() -> None:
    """What was tried is what the test installs."""
    assert f"Tried with LiteLLM {VERSION}" in PAGE.text
