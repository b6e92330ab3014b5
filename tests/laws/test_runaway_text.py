"""Laws 1, 2, 8 and 12 for what a model says that runs away: found at a fixed place of its own text, in any dialect.

Every byte leaves as it came: it is told, and that at once, for the answer may go on for minutes.
"""

import json
import logging
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callfuse.detect.runaway import LEAST, LOOK
from callfuse.guard import growing_texts
from callfuse.guard.assembly import Assembly
from tests.laws.test_runaway import CONVERSATIONS, FRESH, LAP
from tests.support.examples import fewer_examples
from tests.support.kits import DialectKit
from tests.support.longtext import text_of
from tests.support.meeting import (
    MARK,
    Meeting,
    Session,
    ask,
    every_dialect,
    framewise,
    in_session,
    meet,
    reply,
    streamed_and_whole,
)
from tests.support.model import Answer, History, Item, Round, Text, Thinking
from tests.support.plain import RESULT, again, new_call, saying, spin
from tests.support.rules import violations
from tests.support.scripted import Reply
from tests.support.streams import chunkings

PIECE = 30
UNREAD = 5_000
"""Bytes; the tests' answers are shorter than those of models."""
PARTS = pytest.mark.parametrize("part", ["text", "reasoning"])
HEALTHY = text_of(14_000)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have answers looked at earlier."""
    monkeypatch.setattr(growing_texts, "UNREAD", UNREAD)


def said(part: str, text: str) -> Item:
    """What a model says, in pieces."""
    pieces = tuple(text[at : at + PIECE] for at in range(0, len(text), PIECE))
    return Text(pieces) if part == "text" else Thinking(pieces)


def endless(part: str, *more: Item) -> Answer:
    """An answer of which this part runs away, behind words of another kind."""
    return saying(said(part, HEALTHY[:900] + LAP * 220), *more)


def told(met: Meeting) -> list[str]:
    """What the log says of it."""
    return [text for text in met.log_at(logging.INFO) if "kind=runaway" in text]


@every_dialect
@streamed_and_whole
@CONVERSATIONS
@PARTS
def test_it_is_told_and_every_byte_leaves(kit: DialectKit, stream: bool, history: History, part: str) -> None:
    """Once, as a warning, with what is repeated; beside calls, too."""
    for more in ((), (new_call(),)):
        script = reply(kit, endless(part, *more), stream=stream)
        met = meet(ask(kit, history, stream=stream), [script])
        assert met.body == script.body
        assert [f"tool=({part})" in line and "action=warn" in line for line in told(met)] == [True]
        assert f"signature=({part}):" in told(met)[0]


@every_dialect
@CONVERSATIONS
@PARTS
@settings(fewer_examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_cut_does_not_matter(kit: DialectKit, history: History, part: str, data: st.DataObject) -> None:
    """Cut anywhere: the same bytes, the same log."""
    answer = endless(part, new_call())
    script = reply(kit, answer, stream=True)
    some = data.draw(st.integers(1, 3000))
    even = tuple(script.body[at : at + some] for at in range(0, len(script.body), some))
    scripts = [script, framewise(kit, answer), Reply(even), script.cut(data.draw(chunkings(script.body)))]
    first, *others = [meet(ask(kit, history, stream=True), [one]) for one in scripts]
    assert len(told(first)) == 1
    for other in others:
        assert (other.body, other.log) == (first.body, first.log)


@every_dialect
@streamed_and_whole
@CONVERSATIONS
@PARTS
def test_what_is_healthy_or_off_is_not_told(kit: DialectKit, stream: bool, history: History, part: str) -> None:
    """And what only observes does not warn."""
    script = reply(kit, saying(said(part, HEALTHY)), stream=stream)
    met = meet(ask(kit, history, stream=stream), [script])
    assert (met.body, told(met)) == (script.body, [])
    script = reply(kit, endless(part), stream=stream)
    for off in (False, {part: "off"}):
        met = meet(ask(kit, history, stream=stream), [script], detectors={"runaway": off})
        assert (met.body, told(met)) == (script.body, [])
    for ladder, own in (("observe", True), ("block", {part: "observe"}), ("block", {"most": "observe"})):
        met = meet(ask(kit, history, stream=stream), [script], ladder, detectors={"runaway": own})
        assert met.body == script.body
        assert [("action=observe" in line) for line in told(met)] == [True]


@every_dialect
@CONVERSATIONS
@pytest.mark.parametrize("choices", [1, 2])
def test_each_choice_and_part_by_itself(kit: DialectKit, history: History, choices: int) -> None:
    """Turn by turn they bring what none of them repeats alone."""
    choices = min(choices, kit.most_choices)
    text = HEALTHY[:900] + LAP * 220
    both = (said("reasoning", text), said("text", text))
    answer = Answer((both,) * choices)
    script = framewise(kit, answer)
    met = meet(ask(kit, history, stream=True, n=choices), [script])
    assert met.body == script.body
    assert len(told(met)) == 2 * choices


@every_dialect
@CONVERSATIONS
def test_it_is_told_at_once(kit: DialectKit, history: History) -> None:
    """Before the answer has ended, which may break off."""
    frames = [frame.raw for frame in kit.frames(endless("text"))]
    sizes = accumulate(len(raw) for raw in frames)
    first = next(at for at, size in enumerate(sizes) if size > UNREAD)
    for characters, findings in ((LEAST - PIECE, 0), (LEAST + 2 * LOOK, 1)):
        chunks = tuple(frames[: first + characters // PIECE])
        met = meet(ask(kit, history, stream=True), [Reply(chunks, raises=ConnectionError("gone"))])
        assert len(told(met)) == findings


@every_dialect
def test_nothing_is_read_before(kit: DialectKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of text is not parsed as long as the answer is short, however it runs away."""
    if kit.name in ("openai-responses", "bedrock-converse", "gemini-interactions") or "array" in kit.path:
        pytest.skip("of these each frame is read, for calls or its answer's id")
    fed: list[bytes] = []
    feed = Assembly.feed

    def noting(self: Assembly, chunk: bytes) -> bytes:
        fed.append(chunk)
        return feed(self, chunk)

    monkeypatch.setattr(growing_texts, "UNREAD", 10**6)
    monkeypatch.setattr(Assembly, "feed", noting)
    script = framewise(kit, endless("text"))
    met = meet(ask(kit, FRESH, stream=True), [script])
    assert met.body == script.body
    assert (len(b"".join(fed)) < 1_000, told(met)) == (True, [])  # a writer must know some frames of Cohere's
    monkeypatch.setattr(growing_texts, "UNREAD", UNREAD)
    assert len(told(meet(ask(kit, FRESH, stream=True), [script]))) == 1
    assert len(b"".join(fed)) > len(script.body) - UNREAD - 2000


@every_dialect
@streamed_and_whole
@CONVERSATIONS
@pytest.mark.parametrize(("answer", "action"), [(None, "warn"), ("allow", "allow"), ("block", "warn")])
def test_a_callback_sees_it(kit: DialectKit, stream: bool, history: History, answer: Any, action: str) -> None:
    """It may let it go; what has left cannot be blocked."""
    asked: list[tuple[str, str]] = []

    def decide(event: Any) -> Any:
        asked.append((event.finding.kind, event.call.name))
        return answer

    script = reply(kit, endless("text"), stream=stream)
    met = meet(ask(kit, history, stream=stream), [script], on_loop=decide)
    assert met.body == script.body
    assert asked == [("runaway", "(text)")]
    assert [f"action={action}" in line for line in told(met)] == [True]


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("own", ["warn", "observe"])
def test_the_next_turn(kit: DialectKit, stream: bool, own: str) -> None:
    """The model is warned in the result of the call behind it, the vendor gets a history that it takes."""
    call = new_call()
    history = History((*FRESH.turns, Round((call,), (RESULT,))))

    async def talk(session: Session) -> None:
        await session.exchange(ask(kit, FRESH, stream=stream), reply(kit, endless("text", call), stream=stream))
        await session.exchange(ask(kit, history, stream=stream), reply(kit, saying("Ok."), stream=stream))

    first, second = in_session(talk, "block", detectors={"runaway": {"text": own}}).meetings
    assert len(told(first)) == 1
    [heard] = second.app.heard
    [(_, result)] = kit.results(heard.body)
    assert (MARK in result) is (own == "warn")
    assert ("a text that repeats itself" in result) is (own == "warn")
    assert violations(kit.name, json.loads(heard.body)) == []


@every_dialect
def test_a_second_answer_runs_away(kit: DialectKit) -> None:
    """The model was asked again; it is the text of its second answer."""
    met = meet(
        ask(kit, spin(), stream=True),
        [framewise(kit, again()), framewise(kit, Answer(endless("text").choices, tag="second"))],
        "chance_then_block",
    )
    assert len(met.app.heard) == 2
    assert len(told(met)) == 1
