"""Laws 1, 2 and 12 for answers that the vendor itself has ended because the model repeats itself.

Every byte leaves as it came; it is told, however the bytes are cut, and without reading text for it.
"""

import json
import logging
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callfuse.dialects import DIALECTS
from callfuse.guard import growing_texts
from callfuse.guard.assembly import Assembly
from tests.laws.test_runaway import CONVERSATIONS, FRESH
from tests.laws.test_runaway_text import endless, told
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, Session, ask, framewise, in_session, meet, reply, streamed_and_whole
from tests.support.model import Answer, History, Quirks, Round
from tests.support.plain import RESULT, again, new_call, saying, spin
from tests.support.rules import violations
from tests.support.scripted import Reply, whole
from tests.support.streams import chunkings

CHAT, OLLAMA = [next(kit for kit in KITS if kit.name == name) for name in ("openai-chat", "ollama")]
REASONS = pytest.mark.parametrize("reason", ["repetition", "repetition_truncation", "repetition_detected"])
ABORTED = b'{"error":"prediction aborted, token repeat limit reached"}\n'


def ended(script: Reply, reason: str = "repetition") -> Reply:
    """An answer of OpenAI's format with this reason for its end."""
    end = re.compile(rb'("finish_reason": ?)"[a-z_]+"')
    chunks = tuple(end.sub(rb'\1"' + reason.encode() + b'"', chunk) for chunk in script.chunks)
    if script.ends:
        return replace(script, chunks=chunks)
    return whole(chunks[0])


def aborted(answer: Answer) -> Reply:
    """An answer of Ollama's that ends in the error."""
    script = framewise(OLLAMA, answer)
    return replace(script, chunks=(*script.chunks[:-1], ABORTED))


@streamed_and_whole
@CONVERSATIONS
@REASONS
def test_it_is_told_and_every_byte_leaves(stream: bool, history: History, reason: str) -> None:
    """Once, as a warning, with the vendor's reason; beside calls, too."""
    for more in ((), (new_call(),)):
        for spaced in (False, True):
            answer = replace(saying("Let me see.", *more), quirks=Quirks(spaced=spaced))
            script = ended(reply(CHAT, answer, stream=stream), reason)
            met = meet(ask(CHAT, history, stream=stream), [script])
            assert met.body == script.body
            assert ["tool=(finish), repeats=1/1" in line and "action=warn" in line for line in told(met)] == [True]
            assert f"signature=(finish):{reason}" in told(met)[0]


@streamed_and_whole
@CONVERSATIONS
def test_the_reason_beside_it(stream: bool, history: History) -> None:
    """vLLM says more under another key, which stays where a gateway makes the finish reason an ordinary one."""
    beside = b'stop","stop_reason":"repetition_detected'
    for more in ((), (new_call(),)):
        script = ended(reply(CHAT, saying("Let me see.", *more), stream=stream), beside.decode())
        met = meet(ask(CHAT, history, stream=stream), [script])
        assert (beside in met.body, met.body) == (True, script.body)
        assert ["signature=(finish):repetition_detected" in line for line in told(met)] == [True]
    both = ended(reply(CHAT, saying("Let me see."), stream=stream), 'repetition","stop_reason":"repetition_detected')
    assert len(told(meet(ask(CHAT, history, stream=stream), [both]))) == 1
    for other in ('stop","stop_reason":null,"x":"repetition', 'stop","stop_reason":128009,"x":"repetition'):
        script = ended(reply(CHAT, saying("Let me see."), stream=stream), other)
        assert told(meet(ask(CHAT, history, stream=stream), [script])) == []


@CONVERSATIONS
def test_ollamas_error(history: History) -> None:
    """Its end is an error in the stream, and told."""
    for more in ((), (new_call(),)):
        script = aborted(saying("Let me see.", *more))
        met = meet(ask(OLLAMA, history, stream=True), [script])
        assert met.body == script.body
        assert ["signature=(finish):token repeat limit reached" in line for line in told(met)] == [True]
    other = replace(script, chunks=(*script.chunks[:-1], OLLAMA.error()))
    assert told(meet(ask(OLLAMA, history, stream=True), [other])) == []


@pytest.mark.parametrize("kit", [CHAT, OLLAMA], ids=lambda kit: kit.name)
@CONVERSATIONS
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_cut_does_not_matter(kit: DialectKit, history: History, data: st.DataObject) -> None:
    """Cut anywhere: the same bytes, the same log."""
    more = data.draw(st.sampled_from([(), (new_call(),)]))
    answer = saying("Let me see: ", '{"finish_reason":"repetition"}', *more)
    script = aborted(answer) if kit is OLLAMA else ended(framewise(kit, answer))
    scripts = [script.cut((script.body,)), script.cut(data.draw(chunkings(script.body)))]
    first, *others = [meet(ask(kit, history, stream=True), [one]) for one in (script, *scripts)]
    assert len(told(first)) == 1
    for other in others:
        assert (other.body, other.log) == (first.body, first.log)


@streamed_and_whole
@CONVERSATIONS
def test_other_ends_are_not_told(stream: bool, history: History) -> None:
    """Nor is a text that speaks of it, nor what is off; what only observes does not warn."""
    for text in ("repetition", '"finish_reason":"repetition"', "repeat", '"error"'):
        for kit in (CHAT, OLLAMA):
            script = reply(kit, saying(text, new_call()), stream=stream)
            met = meet(ask(kit, history, stream=stream), [script])
            assert (met.body, told(met)) == (script.body, [])
    script = ended(reply(CHAT, saying("Let me see."), stream=stream))
    off: Any
    for off in (False, {"finish": "off"}):
        assert told(meet(ask(CHAT, history, stream=stream), [script], detectors={"runaway": off})) == []
    for own in ({"finish": "observe"}, {"most": "observe"}):
        met = meet(ask(CHAT, history, stream=stream), [script], detectors={"runaway": own})
        assert ["action=observe" in line for line in told(met)] == [True]


@streamed_and_whole
@CONVERSATIONS
def test_it_is_told_once(stream: bool, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not beside the text that was found, nor for each choice, nor where the reason is given twice."""
    monkeypatch.setattr(growing_texts, "UNREAD", 5_000)
    script = ended(reply(CHAT, endless("text"), stream=stream))
    assert ["tool=(text)" in line for line in told(meet(ask(CHAT, history, stream=stream), [script]))] == [True]
    two = Answer((saying("So.").choices[0],) * 2)
    met = meet(ask(CHAT, history, stream=stream, n=2), [ended(reply(CHAT, two, stream=stream))])
    assert len(told(met)) == 1


def test_no_text_is_read_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an answer that ends so only the frame that says so is."""
    fed: list[bytes] = []
    feed = Assembly.feed

    def noting(self: Assembly, chunk: bytes) -> bytes:
        fed.append(chunk)
        return feed(self, chunk)

    monkeypatch.setattr(Assembly, "feed", noting)
    monkeypatch.setattr(growing_texts, "UNREAD", 10**6)
    script = ended(framewise(CHAT, endless("text")))
    assert len(told(meet(ask(CHAT, FRESH, stream=True), [script]))) == 1
    assert [b"repetition" in chunk for chunk in fed] == [True]


def test_the_second_answer_ends_so() -> None:
    """The model was asked again."""
    scripts = [framewise(CHAT, again()), ended(framewise(CHAT, saying("So.", tag="second")))]
    met = meet(ask(CHAT, spin(), stream=True), scripts, "chance_then_block")
    assert (len(met.app.heard), len(told(met))) == (2, 1)


@streamed_and_whole
def test_the_next_turn(stream: bool) -> None:
    """The model is warned in the result of the call of the same answer."""
    call = new_call()
    history = History((*FRESH.turns, Round((call,), (RESULT,))))

    async def talk(session: Session) -> None:
        script = ended(reply(CHAT, saying("So.", call), stream=stream))
        await session.exchange(ask(CHAT, FRESH, stream=stream), script)
        await session.exchange(ask(CHAT, history, stream=stream), reply(CHAT, saying("Ok."), stream=stream))

    _, second = in_session(talk, "block").meetings
    [heard] = second.app.heard
    [(_, result)] = CHAT.results(heard.body)
    assert MARK in result
    assert "an answer that the vendor has ended because it repeats itself" in result
    assert violations(CHAT.name, json.loads(heard.body)) == []


def test_a_format_has_one_mark_beside_that_of_calls() -> None:
    """A chunk of text is searched for two marks at most."""
    assert [one.name for one in DIALECTS if one.kept_mark and one.repeats.mark] == []


def test_it_is_logged_as_a_warning() -> None:
    """As other loops."""
    met = meet(ask(CHAT, FRESH, stream=True), [ended(framewise(CHAT, saying("So.")))])
    assert [level for _, level, text in met.log if "kind=runaway" in text] == [logging.WARNING]
