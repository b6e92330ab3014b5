"""Agents on a plain HTTP client that stream Gemini without `alt=sse`: every answer is one JSON array, guarded too."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
import pytest

from callfuse.testing import Answer, Call, Fault, ScriptedVendor, Usage, VendorRequest, looping_model
from callfuse.testing.script import FaultKind
from tests.sdk.talks import MODEL, QUESTION, TOOLS, AgentRun, Said, agent
from tests.sdk.wiring import wired
from tests.support.kits.gemini import check, merged
from tests.support.rules import StrictVendor
from tests.support.serving import serve

MARK = "[callfuse]"
STAND_IN = "skip_thought_signature_validator"
Cloud = Literal["studio", "vertex"]
TARGETS: dict[Cloud, str] = {
    "studio": f"/v1beta/models/{MODEL}:streamGenerateContent?key=none",
    "vertex": f"/v1/projects/p/locations/l/publishers/google/models/{MODEL}:streamGenerateContent",
}
FORM = "application/json; charset=UTF-8"

every_cloud = pytest.mark.parametrize("cloud", list(TARGETS))


@dataclass(slots=True)
class ArrayTalk:
    """A client without any SDK; `bodies` keeps each answer's bytes, in the pieces in which they came."""

    client: httpx2.AsyncClient
    target: str
    config: dict[str, Any]
    bodies: list[list[bytes]] = field(default_factory=list)

    async def ask(self, contents: list[Any]) -> bytes:
        """One answer."""
        tools = [{"functionDeclarations": [{"name": name} for name in TOOLS]}]
        asked = {"contents": contents, "tools": tools, "generationConfig": self.config}
        async with self.client.stream("POST", self.target, json=asked) as response:
            assert (response.status_code, response.headers["content-type"]) == (200, FORM)
            self.bodies.append([piece async for piece in response.aiter_raw()])
        return b"".join(self.bodies[-1])

    async def say(self, messages: Sequence[Any]) -> Said:
        """The model's next content: the parts of all elements, but for empty texts."""
        question = {"role": "user", "parts": [{"text": QUESTION["content"]}]}
        elements = json.loads(await self.ask([question, *messages[1:]]))
        assert check(elements) == []
        (view,) = merged(elements)
        parts = [part for one in elements for part in one["candidates"][0]["content"]["parts"] if part != {"text": ""}]
        calls = tuple((call.id, call.name) for call in view.calls)
        return Said(view.text, view.thinking, calls, view.finish, {"role": "model", "parts": parts})

    def results(self, said: Said, result: str) -> list[Any]:
        """One content with a function response each."""
        responses = [{"id": id_, "name": name, "response": {"result": result}} for id_, name in said.calls]
        return [{"role": "user", "parts": [{"functionResponse": response} for response in responses]}]


@asynccontextmanager
async def talking(url: str, cloud: Cloud = "studio", config: dict[str, Any] | None = None) -> AsyncIterator[ArrayTalk]:
    """A client of this URL."""
    async with httpx2.AsyncClient(base_url=url) as client:
        yield ArrayTalk(client, TARGETS[cloud], config or {})


async def run(vendor: ScriptedVendor, mode: str, cloud: Cloud = "studio", **settings: Any) -> AgentRun:
    """An agent's run against the guarded vendor."""
    async with wired(vendor, mode, **settings) as url, talking(url, cloud) as talk:
        return await agent(talk)


def healthy() -> ScriptedVendor:
    """Two different calls, the second beside another, then an answer."""
    calls = [Call("search_web", {"query": "llamas"}), Call("read_page", {"url": "https://example.org/"})]
    return StrictVendor([Answer("Hm.", calls[:1]), Answer("Hm.", calls), Answer("They are camelids.")])


@every_cloud
async def test_pass(cloud: Cloud) -> None:
    """A healthy run has every byte that the vendor sends to a client of its own, and so has the vendor."""
    vendor, alone = healthy(), healthy()
    async with wired(vendor, "chance_then_block") as url, talking(url, cloud) as talk:
        ran = await agent(talk)
    async with serve(alone) as url, talking(url, cloud) as plain:
        assert await agent(plain) == ran
    assert [b"".join(pieces) for pieces in talk.bodies] == [b"".join(pieces) for pieces in plain.bodies]
    assert [request.raw for request in vendor.requests] == [request.raw for request in alone.requests]
    assert [[tool for _, tool in one.calls] for one in ran.answers] == [["search_web"], ["search_web", "read_page"], []]
    assert (ran.end.text, ran.end.finish) == ("They are camelids.", "STOP")


async def test_it_streams() -> None:
    """Elements arrive one by one, also where a call could be withheld: text is never delayed."""
    vendor = StrictVendor(looping_model(text="So I will look once more, and more."), chunk_delay_s=0.05)
    async with wired(vendor, "block") as url, talking(url) as talk:
        ran = await agent(talk)
    assert MARK in ran.end.text
    for pieces in talk.bodies:
        assert pieces[0] == b"".join(pieces).partition(b"\n,\r\n")[0]
        assert len(pieces) > 3


@every_cloud
async def test_block(cloud: Cloud) -> None:
    """The third equal call never reaches the client; the run ends there."""
    vendor = StrictVendor(looping_model(text="Again.", stubborn=True))
    ran = await run(vendor, "block", cloud)
    assert [len(one.calls) for one in ran.answers] == [1, 1, 0]
    assert ran.end.text.startswith(f"Again.\n\n{MARK}")
    assert ran.end.finish == "STOP"
    assert len(vendor.requests) == 3


@every_cloud
@pytest.mark.parametrize("text", ["", "Hm."])
async def test_steer(cloud: Cloud, text: str) -> None:
    """The model reads the guidance within the third exchange and changes course: two arrays become one."""
    vendor = StrictVendor(looping_model(text=text, conclusion="Got it."))
    ran = await run(vendor, "chance_then_block", cloud)
    assert [len(one.calls) for one in ran.answers] == [1, 1, 1, 0]
    assert ran.end.text == "Got it."
    assert [bool(request.guidance) for request in vendor.requests] == [False, False, False, True, False]
    assert not any(request.violations for request in vendor.requests)


async def test_steer_in_vain() -> None:
    """A model that does not listen is blocked after its one chance."""
    vendor = StrictVendor(looping_model(text="Again.", stubborn=True))
    ran = await run(vendor, "chance_then_block")
    assert [len(one.calls) for one in ran.answers] == [1, 1, 0]
    assert len(vendor.requests) == 4
    assert ran.end.text.startswith(f"Again.\n\nAgain.\n\n{MARK}")


def beside(request: VendorRequest) -> Answer:
    """Reads a page, then searches the same thing for ever, at last with a page beside it."""
    page, search = Call("read_page", {"url": "https://example.org/"}), Call("search_web", {"query": "llamas"})
    if request.guidance:
        return Answer("Enough.")
    calls = [(page,), (search,), (search,), (search, page)][request.number - 1]
    return Answer(calls=calls, thinking="Let me think.")


@pytest.mark.parametrize("thinks", [False, True], ids=["unsigned", "signed"])
async def test_an_innocent_sibling(thinks: bool) -> None:
    """The looping first call goes, the second stays, with the stand-in for the signature that the first carried."""
    vendor = StrictVendor(beside)
    config = {"thinkingConfig": {"thinkingLevel": "LOW"}} if thinks else {}
    async with wired(vendor, "chance_then_block") as url, talking(url, config=config) as talk:
        ran = await agent(talk)
    tools = [[tool for _, tool in one.calls] for one in ran.answers]
    assert tools == [["read_page"], ["search_web"], ["search_web"], ["read_page"], []]
    assert ran.end.text == "Enough."
    assert not any(request.violations for request in vendor.requests)
    assert (STAND_IN in vendor.requests[-1].raw.decode()) is thinks


SEARCH = Call("search_web", {"query": "llamas"})


def spun() -> list[Any]:
    """A conversation in which the search came twice."""
    call = {"functionCall": {"name": SEARCH.name, "args": SEARCH.arguments, "id": "c"}}
    response = {"functionResponse": {"name": SEARCH.name, "response": {"result": "Nothing."}, "id": "c"}}
    rounds = [{"role": "model", "parts": [call]}, {"role": "user", "parts": [response]}] * 2
    return [{"role": "user", "parts": [{"text": "Go."}]}, *rounds]


async def test_candidates() -> None:
    """Each candidate is blocked by itself, and nothing is asked again."""
    vendor = StrictVendor([(Answer(calls=[SEARCH]), Answer("Llamas are camelids."))])
    async with wired(vendor, "chance_then_block") as url, talking(url, config={"candidateCount": 2}) as talk:
        elements = json.loads(await talk.ask(spun()))
    assert check(elements) == []
    blocked, other = merged(elements)
    assert (blocked.calls, other.text) == ((), "Llamas are camelids.")
    assert blocked.text.startswith(MARK)


FAULTS = {
    "an error in place of the first element": Fault.error_event(Answer("Hm.", [SEARCH]), after_frames=0),
    "an error behind the call": Fault.error_event(Answer("Hm.", [SEARCH]), after_frames=2),
    "half an element behind the call": Fault.malformed(Answer("Hm.", [SEARCH]), after_frames=2),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_fault(fault: Fault) -> None:
    """What the vendor sends is what the client gets: the call that was held, then the fault and all behind it."""
    bodies = []
    async with wired(StrictVendor([fault]), "block") as guarded, serve(StrictVendor([fault])) as bare:
        for url in (guarded, bare):
            async with talking(url) as talk:
                bodies.append(await talk.ask(spun()))
    assert bodies[0] == bodies[1]
    assert (b"functionCall" in bodies[0]) is bool(fault.after_frames)
    if fault.kind is FaultKind.ERROR_EVENT:
        assert json.loads(bodies[0])[-1]["error"]["code"] == 503


async def test_usage_of_a_steered_answer() -> None:
    """The last element has the tokens of both answers, under the first one's id."""
    again, other = Call("search_web", {"query": "llamas"}), Call("read_page", {"url": "https://example.org/"})
    loop = Answer("Hm.", (again,), usage=Usage(input_tokens=10, output_tokens=8))
    second = Answer("Then so.", (other,), usage=Usage(input_tokens=20, output_tokens=9))
    vendor = StrictVendor([loop, loop, loop, second, Answer("Done.")])
    async with wired(vendor, "chance_then_block") as url, talking(url) as talk:
        ran = await agent(talk)
    assert ran.answers[2].text == "Hm.\n\nThen so."
    last = json.loads(b"".join(talk.bodies[2]))[-1]
    counts = last["usageMetadata"]
    assert (counts["promptTokenCount"], counts["candidatesTokenCount"], counts["totalTokenCount"]) == (20, 17, 37)
    assert last["responseId"] == "resp-scripted-3"


async def test_a_hold_with_keep_alives() -> None:
    """White space while a call is held, and while the model is asked again, leaves the array an array."""
    vendor = StrictVendor(looping_model(text="Hm.", conclusion="Got it."), chunk_delay_s=0.08)
    async with wired(vendor, "chance_then_block", heartbeat_s=0.01) as url, talking(url) as talk:
        ran = await agent(talk)
    assert ran.end.text == "Got it."
    assert [len(one.calls) for one in ran.answers] == [1, 1, 1, 0]
    assert any(not piece.strip() for piece in talk.bodies[2])
