"""Law 10, a block never looks retryable: it is an ordinary assistant message, and says what was stopped."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.config import ACTING
from tests.support.kits import DialectKit, stream_of
from tests.support.meeting import MARK, Session, ask, every_dialect, in_session, meet, reply, streamed_and_whole
from tests.support.model import Round
from tests.support.plain import OTHER_RESULT, RESULT, again, elsewhere, new_call, same_call, saying, spin, thinking
from tests.support.scripted import Reply, whole
from tests.support.streams import KNOWN, answers, looping


@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_a_block_is_an_ordinary_answer(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """HTTP 200, the words of the model, then callfuse's own, and the dialect's ordinary end."""
    answer = data.draw(answers(kit, [KNOWN[0]], plain=True))
    request = ask(kit, data.draw(looping()), stream=stream, n=len(answer.choices))
    met = meet(request, [reply(kit, answer, stream=stream)])
    assert met.client.status == 200
    for at, view in enumerate(kit.sdk(met.body, stream=stream)):
        assert view.finish == kit.stopped
        assert view.calls == ()
        assert view.text.startswith(answer.text(at))
        said = view.text[len(answer.text(at)) :].strip()
        assert said.startswith(MARK)
        assert "search" in said
        assert "3" in said


@every_dialect
def test_a_whole_block_says_so_in_a_header(kit: DialectKit) -> None:
    """Whole answers that were touched carry `x-callfuse-action`, and the length of what they carry."""
    met = meet(ask(kit, spin(), stream=False), [reply(kit, again(), stream=False)])
    assert met.client.header(b"x-callfuse-action") == b"block; kind=repeat; count=3"
    assert met.client.header(b"content-length") in (None, str(len(met.body)).encode())
    assert met.client.header(b"etag") is None
    json.loads(met.body)


@every_dialect
def test_a_successful_steer_says_so_in_a_header(kit: DialectKit) -> None:
    """The header names the rung that was taken last."""
    replies = [reply(kit, again(), stream=False), reply(kit, elsewhere(), stream=False)]
    met = meet(ask(kit, spin(), stream=False), replies, "chance_then_block")
    action = met.client.header(b"x-callfuse-action")
    assert action is not None
    assert action.startswith(b"steer")
    looping_on = [reply(kit, again(), stream=False), reply(kit, again(tag="second"), stream=False)]
    blocked = meet(ask(kit, spin(), stream=False), looping_on, "chance_then_block").client.header(b"x-callfuse-action")
    assert blocked is not None
    assert blocked.startswith(b"block")


LIMITED = {
    "openai-chat": (b'"finish_reason":"tool_calls"', b'"finish_reason":"length"'),
    "anthropic": (b'"stop_reason":"tool_use"', b'"stop_reason":"max_tokens"'),
    "ollama": (b'"done_reason":"stop"', b'"done_reason":"length"'),
    "gemini": (b'"finishReason":"STOP"', b'"finishReason":"MAX_TOKENS"'),
    "cohere-v2": (b'"finish_reason":"TOOL_CALL"', b'"finish_reason":"MAX_TOKENS"'),
}
"""How a dialect ends an answer of calls, and one that the limit to its length has ended."""


@every_dialect
@streamed_and_whole
def test_a_whole_call_before_the_limit_is_blocked(kit: DialectKit, stream: bool) -> None:
    """Though the limit to its length ended the answer; the reason for that stays."""
    if kit.name not in LIMITED:
        pytest.skip("its end is no text that could be replaced")
    ended, limited = LIMITED[kit.name]
    body = (stream_of(kit, again()) if stream else kit.whole(again())).replace(ended, limited)
    assert limited in body
    met = meet(ask(kit, spin(), stream=stream), [Reply((body,)) if stream else whole(body)])
    (view,) = kit.read(met.body, stream=stream)
    assert view.calls == ()
    assert MARK in view.text
    assert limited in met.body


@every_dialect
@pytest.mark.parametrize("before", [2, 3, 4])
def test_the_header_counts(kit: DialectKit, before: int) -> None:
    """The count is that of the streak, with the pending call."""
    met = meet(ask(kit, spin(before), stream=False), [reply(kit, again(), stream=False)])
    assert met.client.header(b"x-callfuse-action") == b"block; kind=repeat; count=%d" % (before + 1)


@every_dialect
@pytest.mark.parametrize("ladder", ACTING)
def test_an_untouched_answer_has_no_header(kit: DialectKit, ladder: str) -> None:
    """The header stands on touched answers only."""
    met = meet(ask(kit, spin(), stream=False), [reply(kit, saying(new_call()), stream=False)], ladder)
    assert met.client.header(b"x-callfuse-action") is None


@every_dialect
@streamed_and_whole
def test_the_block_text_is_a_setting(kit: DialectKit, stream: bool) -> None:
    """Every placeholder is filled in, and the text still begins with the mark."""
    words = "{tool_name} x{count}/{max_repeats} in {window}: {previous_result} ({model})"
    scripts = [reply(kit, again(text=""), stream=stream)]
    met = meet(ask(kit, spin(), stream=stream), scripts, error_messages={"block": words})
    (view,) = kit.sdk(met.body, stream=stream)
    assert view.text.startswith(MARK)
    assert "search x3/3 in " in view.text
    assert RESULT in view.text
    assert "-test)" in view.text


@every_dialect
@streamed_and_whole
def test_thinking_survives_a_block(kit: DialectKit, stream: bool) -> None:
    """Reasoning that went before the call is delivered as it came."""
    met = meet(ask(kit, spin(), stream=stream), [reply(kit, saying(thinking(), same_call()), stream=stream)])
    (view,) = kit.read(met.body, stream=stream)
    assert view.thinking == thinking().text
    assert view.text.startswith(MARK)
    if kit.name == "anthropic":
        assert thinking().signature.encode() in met.body


@every_dialect
def test_after_a_block_the_session_goes_on(kit: DialectKit) -> None:
    """Another call is free; the blocked one is refused until a new call has been executed, and then may run once."""
    looping_on, free = reply(kit, again(), stream=True), reply(kit, saying(new_call()), stream=True)
    went_on = Round((new_call(),), (OTHER_RESULT,))

    async def talk(session: Session) -> None:
        await session.exchange(ask(kit, spin(), stream=True), looping_on)
        await session.exchange(ask(kit, spin(), stream=True), looping_on)
        await session.exchange(ask(kit, spin(), stream=True), free)
        await session.exchange(ask(kit, spin().and_then(went_on), stream=True), looping_on)

    first, refused, other, returned = in_session(talk).meetings
    assert b"call_first" not in first.body
    assert b"call_first" not in refused.body
    assert other.body == other.app.replies[0].body
    assert b"call_first" in returned.body
