"""Asking again: within one exchange the model gets a second chance, and the client one continuous answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import JSON_REQUEST
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, Meeting, ask, every_dialect, meet, reply, streamed_and_whole
from tests.support.model import Answer, seen
from tests.support.plain import RESULT, again, elsewhere, new_call, same_call, saying, spin, thinking
from tests.support.rules import violations
from tests.support.streams import KNOWN, answers, chunkings, fresh, looping, styles
from tests.support.wire import is_insertion

CHANCE = "chance_then_block"


def joined(kit: DialectKit, first: Answer, second: Answer) -> str:
    """The text of two answers as one message has it."""
    gap = "\n\n" if kit.one_text and first.text() and second.text() else ""
    return first.text() + gap + second.text()


@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_a_new_course_continues_the_same_answer(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """The client has the first answer's words, then the second's words and calls, in one valid message."""
    history = data.draw(looping())
    first = data.draw(answers(kit, [KNOWN[0]], many=False, plain=True))
    which = data.draw(st.sampled_from([[], [fresh(0)], [fresh(0), fresh(1)]]))
    second = data.draw(answers(kit, which, many=False, plain=True, tag="second"))
    scripts = [reply(kit, answer, stream=stream) for answer in (first, second)]
    scripts = [script.cut(data.draw(chunkings(script.body))) for script in scripts]
    request = ask(kit, history, stream=stream, style=data.draw(styles()))
    met = meet(request, scripts, CHANCE)
    assert met.client.complete
    assert len(met.app.heard) == 2
    if stream:
        assert kit.faults(met.body) == []
    (view,) = kit.sdk(met.body, stream=stream)
    assert view.text == joined(kit, first, second)
    assert view.calls == tuple(seen(call) for call in second.calls())
    assert view.finish == (kit.called if which else kit.stopped)
    assert b"call_first" not in met.body
    _asked_rightly(kit, met)


def _asked_rightly(kit: DialectKit, met: Meeting) -> None:
    original, amended = (heard.body for heard in met.app.heard)
    assert is_insertion(original, amended), "the second request is the first with the model's turn put in"
    assert violations(kit.name, json.loads(amended)) == []
    told = kit.results(amended)[-1]
    assert told[0].startswith("call_first")
    assert told[1].startswith(MARK)


@every_dialect
@streamed_and_whole
def test_the_guidance_says_what_happened(kit: DialectKit, stream: bool) -> None:
    """It names the tool, the count and what came back, and gives no call to copy."""
    replies = [reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream)]
    met = meet(ask(kit, spin(), stream=stream), replies, CHANCE)
    _, guidance = kit.results(met.app.heard[1].body)[-1]
    assert "search" in guidance
    assert "3" in guidance
    assert RESULT in guidance
    assert "zebra" not in guidance


@every_dialect
@streamed_and_whole
def test_the_models_turn_goes_back_as_it_came(kit: DialectKit, stream: bool) -> None:
    """Reasoning and its signature, text, the call's id and its arguments: each byte as the vendor wrote it."""
    first = saying(thinking(), "Let me look.", same_call("call_first"))
    replies = [reply(kit, first, stream=stream), reply(kit, elsewhere(), stream=stream)]
    met = meet(ask(kit, spin(), stream=stream), replies, CHANCE)
    said = kit.said(met.app.heard[1].body)
    assert (said.thinking, said.text) == (thinking().text, "Let me look.")
    (call,) = said.calls
    assert (call.name, call.arguments) == ("search", same_call().arguments)
    assert call.id in ("call_first", "")


@every_dialect
@streamed_and_whole
def test_the_first_answers_name_stays(kit: DialectKit, stream: bool) -> None:
    """One answer has one name, the first's."""
    replies = [reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream)]
    met = meet(ask(kit, spin(), stream=stream), replies, CHANCE)
    (lineage,) = kit.lineage(met.body, stream=stream)
    assert lineage.endswith("first")


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize(("usage", "wanted"), [("last", (11, 14)), ("sum", (22, 14))])
def test_tokens(kit: DialectKit, stream: bool, usage: str, wanted: tuple[int, int]) -> None:
    """Output tokens are those of both answers; input tokens the last answer's, or of both where that is set."""
    replies = [reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream)]
    met = meet(ask(kit, spin(), stream=stream), replies, CHANCE, usage=usage)
    assert kit.tokens(met.body, stream=stream) == wanted


@every_dialect
@streamed_and_whole
def test_a_second_answer_that_loops_on_is_blocked(kit: DialectKit, stream: bool) -> None:
    """The same signature again takes the next rung: the client has the words of both and the block."""
    replies = [reply(kit, again(), stream=stream), reply(kit, again(text="Once more.", tag="second"), stream=stream)]
    met = meet(ask(kit, spin(), stream=stream), replies, CHANCE)
    assert len(met.app.heard) == 2
    (view,) = kit.sdk(met.body, stream=stream)
    assert (view.calls, view.finish) == ((), kit.stopped)
    assert view.text.index("Let me look.") < view.text.index("Once more.") < view.text.index(MARK)
    assert b"call_second" not in met.body
    if stream:
        assert kit.faults(met.body) == []


@every_dialect
@streamed_and_whole
def test_a_new_call_beside_the_loop_in_the_second_answer(kit: DialectKit, stream: bool) -> None:
    """In the second answer the new call is delivered and the looping one withheld: the chance is used up."""
    second = saying(same_call("call_second"), new_call("call_third"), tag="second")
    met = meet(ask(kit, spin(), stream=stream), [reply(kit, a, stream=stream) for a in (again(), second)], CHANCE)
    (view,) = kit.sdk(met.body, stream=stream)
    assert [call.id for call in view.calls] == ["call_third"]
    assert view.finish == kit.called
    assert len(met.app.heard) == 2


@every_dialect
def test_thoughts_of_two_answers_never_stand_in_one_message(kit: DialectKit) -> None:
    """Once a block of the first answer is out, the second's thinking is not passed on; its text and calls are."""
    second = saying(thinking(), "Another way.", new_call("call_second"), tag="second")
    met = meet(ask(kit, spin(), stream=True), [reply(kit, a, stream=True) for a in (again(), second)], CHANCE)
    (view,) = kit.sdk(met.body, stream=True)
    assert view.text.endswith("Another way.")
    if kit.name == "anthropic":
        assert view.thinking == ""
    silent = meet(ask(kit, spin(), stream=True), [reply(kit, a, stream=True) for a in (again(text=""), second)], CHANCE)
    assert kit.sdk(silent.body, stream=True)[0].thinking == thinking().text


@every_dialect
@streamed_and_whole
def test_each_call_of_the_app_is_an_exchange_of_its_own(kit: DialectKit, stream: bool) -> None:
    """The second call has its own scope, path, credential and length, and no key that would replay the first answer."""
    headers = (*JSON_REQUEST, (b"idempotency-key", b"once"))
    replies = [reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream)]
    met = meet(ask(kit, spin(), stream=stream, headers=headers), replies, CHANCE)
    one, two = met.app.heard
    assert (one.path, one.query) == (two.path, two.query)
    assert one.header(b"authorization") == two.header(b"authorization")
    assert two.header(b"content-length") == str(len(two.body)).encode()
    assert (one.header(b"idempotency-key"), two.header(b"idempotency-key")) == (b"once", None)


@every_dialect
def test_several_choices_are_never_asked_again(kit: DialectKit) -> None:
    """Where the client asked for several answers, each is blocked by itself."""
    if kit.most_choices == 1:
        pytest.skip(f"{kit.name} has one choice")
    first = Answer(((same_call("call_one"),), (same_call("call_two"),)))
    met = meet(ask(kit, spin(), stream=True, n=2), [reply(kit, first, stream=True)], CHANCE)
    assert len(met.app.heard) == 1
    views = kit.sdk(met.body, stream=True)
    assert [view.calls for view in views] == [(), ()]
    assert all(view.text.startswith(MARK) for view in views)


@every_dialect
def test_two_chances_are_two(kit: DialectKit) -> None:
    """A ladder of two steers and a block ends in a block when the model never changes course."""
    replies = [reply(kit, again(tag=tag), stream=True) for tag in ("first", "second", "third")]
    met = meet(ask(kit, spin(), stream=True), replies, "steer twice")
    assert 2 <= len(met.app.heard) <= 3
    (view,) = kit.sdk(met.body, stream=True)
    assert (view.calls, view.finish) == ((), kit.stopped)
    assert MARK in view.text
