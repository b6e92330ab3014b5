"""Laws 1 to 4 and 12 for a call that is cut off again and again: it is told with the answer that ends so, and its bytes
stay.

OpenAI's formats and Cohere's have arguments as texts, so that a history shows where they end. An answer ends at the
length limit, or its vendor says that it has calls, as if they were whole.
"""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.meeting import MARK, Meeting, ask, every_dialect, framewise, meet, reply
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying, spin
from tests.support.rules import violations
from tests.support.scripted import Reply, whole
from tests.support.streams import chunkings

TEXTUAL = [kit for kit in KITS if kit.name in ("openai-chat", "openai-responses", "cohere-v2")]
textual = pytest.mark.parametrize("kit", TEXTUAL, ids=lambda kit: kit.name)
AT_LIMIT = {
    "openai-chat": (b'"tool_calls"}', b'"length"}'),
    "cohere-v2": (b'"TOOL_CALL"', b'"MAX_TOKENS"'),
    "openai-responses": (b"completed", b"incomplete"),
}
"""What the last frame of an answer with calls says, and what it says at the length limit."""
ON: dict[str, Any] = {"detectors": {"truncated": True}}
FAILED = "Error: the arguments are no JSON."
BEGUN = '{"path": "report.md", "text": "The quick brown fox jumps'


def cut_off(*more: str, id_: str = "call_cut") -> Call:
    """A call that is cut off, in pieces."""
    return Call(id_, "search", (BEGUN[:20], BEGUN[20:], *more))


def cut_before(times: int = 2) -> History:
    """So many rounds with it, each ending elsewhere."""
    calls = [cut_off(" over" * at, id_=f"call_c{at}") for at in range(times)]
    return History((User("Write the report."), *[Round((call,), (FAILED,)) for call in calls]))


def ended(kit: DialectKit, call: Call, *, says_limit: bool) -> Reply:
    """A streamed answer with this call, which ends in the middle of it; at the limit without the end of the call."""
    frames = [frame for frame in kit.frames(saying("I write.", call)) if frame.kind != "usage"]
    if not says_limit:
        return Reply(tuple([frame.raw for frame in frames]))
    old, new = AT_LIMIT[kit.name]
    *_, piece = (at for at, frame in enumerate(frames) if b"jumps" in frame.raw and b".done" not in frame.raw)
    end = next(at for at, frame in enumerate(frames) if frame.kind == "finish")
    return Reply(tuple([frame.raw.replace(old, new) for frame in (*frames[: piece + 1], *frames[end:])]))


def told(met: Meeting) -> list[str]:
    """What the log says of it."""
    return [text for text in met.log_at(logging.INFO) if "kind=truncated" in text]


def warned(kit: DialectKit, met: Meeting) -> list[bool]:
    """Which results have reached the model with a warning."""
    [heard] = met.app.heard
    assert violations(kit.name, json.loads(heard.body)) == []
    return [MARK in text for _, text in kit.results(heard.body)]


@textual
@pytest.mark.parametrize("says_limit", [True, False], ids=["at the limit", "as if whole"])
@pytest.mark.parametrize("ladder", ["observe", "warn", "steer", "block"])
def test_it_is_told_with_the_answer(kit: DialectKit, says_limit: bool, ladder: str) -> None:
    """The third time; its bytes stay, and its result tells the model, once there is one."""
    script = ended(kit, cut_off(), says_limit=says_limit)
    for before in range(3):
        met = meet(ask(kit, cut_before(before), stream=True), [script], ladder, **ON)
        assert met.body == script.body
        assert [("repeats=3/3" in text, f"action={'observe' if ladder == 'observe' else 'warn'}" in text)
                for text in told(met)] == [(True, True)] * (before == 2)  # fmt: skip
        assert warned(kit, met) == [False] * before
    met = meet(ask(kit, cut_before(3), stream=True), [reply(kit, saying("Done."), stream=True)], ladder, **ON)
    assert warned(kit, met) == [False, False, ladder != "observe"]
    assert told(met) == []


@textual
@pytest.mark.parametrize("says_limit", [True, False], ids=["at the limit", "as if whole"])
@given(data=st.data())
def test_the_cut_into_chunks_does_not_matter(kit: DialectKit, says_limit: bool, data: st.DataObject) -> None:
    """The same bytes, the same log."""
    script = ended(kit, cut_off(" over it"), says_limit=says_limit)
    request = ask(kit, cut_before(), stream=True)
    first, other = [
        meet(request, [one], **ON) for one in (Reply((script.body,)), script.cut(data.draw(chunkings(script.body))))
    ]
    assert (other.body, other.log) == (first.body, first.log)
    assert len(told(first)) == 1


@textual
def test_off_by_default_and_for_others(kit: DialectKit) -> None:
    """A call that is whole, another beginning, and a setting that says nothing."""
    request = ask(kit, cut_before(), stream=True)
    other = Call("call_o", "search", ('{"path": "another.md", "text": "The fox jumps',))
    for call, settings in ((cut_off(), {}), (other, ON), (cut_off(' over it."}'), ON)):
        script = ended(kit, call, says_limit=call.arguments[-1] != "}")
        met = meet(request, [script], **settings)
        assert met.body == script.body
        assert told(met) == []


@textual
def test_it_is_no_evidence_for_other_kinds(kit: DialectKit) -> None:
    """The equal call for the third time would be a `repeat`, were it whole."""
    equal = History((User("Write."), *[Round((cut_off(id_=f"call_e{at}"),), (FAILED,)) for at in range(2)]))
    script = ended(kit, cut_off(), says_limit=True)
    met = meet(ask(kit, equal, stream=True), [script], "block", **ON)
    assert met.body == script.body
    assert [("kind=repeat" in text, "action=warn" in text) for text in told(met)] == [(False, True)]


@textual
@pytest.mark.parametrize("ladder", ["block", "steer"])
def test_where_its_cap_is_lifted(kit: DialectKit, ladder: str) -> None:
    """One that its vendor calls whole is withheld; one at the limit is not: nobody runs it."""
    settings: dict[str, Any] = {"detectors": {"truncated": True, "truncated_most": ladder}}
    request = ask(kit, cut_before(), stream=True)
    at_limit = ended(kit, cut_off(), says_limit=True)
    met = meet(request, [at_limit], ladder, **settings)
    assert met.body == at_limit.body
    assert ["action=observe" in text for text in told(met)] == [True]
    replies = [ended(kit, cut_off(), says_limit=False), reply(kit, saying("In parts.", tag="second"), stream=True)]
    met = meet(request, replies, ladder, **settings)
    assert cut_off().id.encode() not in met.body
    assert kit.faults(met.body) == []
    assert [f"action={ladder}" in text for text in told(met)] == [True]


def test_a_whole_answer() -> None:
    """Also one of several choices."""
    [kit] = [kit for kit in TEXTUAL if kit.name == "openai-chat"]
    answer = saying("I write.", cut_off())
    for choices, reason in ((1, b"length"), (2, b"length"), (1, b"tool_calls")):
        body = kit.whole(replace(answer, choices=answer.choices * choices)).replace(b'tool_calls"', reason + b'"')
        body = body.replace(b'"%s":' % reason, b'"tool_calls":')
        met = meet(ask(kit, cut_before(), stream=False, n=choices), [whole(body)], **ON)
        assert met.body == body
        assert len(told(met)) == choices


@every_dialect
def test_whole_calls_that_begin_alike_are_none(kit: DialectKit) -> None:
    """In any dialect: parts of a file, written one after another."""
    calls = [Call(f"call_p{at}", "search", (json.dumps({"path": "report.md", "text": "x" * at}),)) for at in range(5)]
    history = History((User("Write."), *[Round((call,), ("Written.",)) for call in calls[:4]]))
    met = meet(ask(kit, history, stream=True), [framewise(kit, saying(calls[4]))], **ON)
    assert met.body == stream_of(kit, saying(calls[4]))
    assert told(met) == []
    assert warned(kit, met) == [False] * 4


@every_dialect
def test_a_healthy_answer_costs_nothing(kit: DialectKit) -> None:
    """Where it is on and nothing was cut off, an answer is watched as ever: no header of the guard, the same bytes."""
    script = reply(kit, saying("Let me look.", cut_off('."}')), stream=True)
    met = meet(ask(kit, spin(1), stream=True), [script], **ON)
    assert met.body == script.body
    assert met.log_at(logging.WARNING) == []
