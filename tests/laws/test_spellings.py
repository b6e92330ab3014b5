"""JSON may spell any character of a key or a text as an escape: however an answer is spelled, the verdict is the same.

What looks for a mark in the bytes, to save a parse, must not be fooled by another spelling of it.
"""

import logging
import random
import re

from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects import DIALECTS
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, ask, every_dialect, meet, reply, streamed_and_whole
from tests.support.plain import again, elsewhere, spin
from tests.support.scripted import Reply, whole
from tests.support.wire import frames, quiet, with_payloads

_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_CHARACTER = re.compile(rb"\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)


def spelled(body: bytes, dice: random.Random, share: float) -> bytes:
    """A body of JSON, lines of it or events, with this share of the ASCII characters in its strings as escapes."""

    def escape(character: re.Match[bytes]) -> bytes:
        said = character.group()
        if len(said) > 1 or said >= b"\x80" or dice.random() > share:
            return said
        return (b"\\u%04x" if dice.random() < 0.5 else b"\\u%04X") % ord(said)

    if body.startswith(b"\0"):
        return with_payloads(body, lambda payload: spelled(payload, dice, share))
    return _STRING.sub(lambda text: b'"' + _CHARACTER.sub(escape, text.group(1)) + b'"', body)


def respelled(script: Reply, seed: int, share: float, *, stream: bool) -> Reply:
    """An answer in another spelling: a frame a chunk where it is streamed."""
    body = spelled(script.body, random.Random(seed), share)
    return Reply(tuple(frames(body)), script.status, script.headers) if stream else whole(body)


shares = st.sampled_from([0.1, 0.5, 1.0])


@every_dialect
@streamed_and_whole
@given(seed=st.integers(0, 999), share=shares)
def test_no_spelling_hides_a_call(kit: DialectKit, stream: bool, seed: int, share: float) -> None:
    """The call that repeats is withheld, also where no chunk has a key as it usually stands."""
    script = respelled(reply(kit, again(), stream=stream), seed, share, stream=stream)
    met = meet(ask(kit, spin(), stream=stream), [script])
    (view,) = kit.read(met.body, stream=stream)
    assert view.calls == ()
    assert MARK in view.text


@every_dialect
@streamed_and_whole
@given(seed=st.integers(0, 999), share=shares)
def test_no_spelling_hides_a_call_that_is_only_watched(kit: DialectKit, stream: bool, seed: int, share: float) -> None:
    """Its finding is logged, and its bytes pass."""
    script = respelled(reply(kit, again(), stream=stream), seed, share, stream=stream)
    met = meet(ask(kit, spin(), stream=stream), [script], "observe")
    assert met.body == script.body
    assert met.log_at(logging.INFO)


@every_dialect
@streamed_and_whole
@given(seed=st.integers(0, 999), share=shares)
def test_another_spelling_of_an_innocent_answer_passes(kit: DialectKit, stream: bool, seed: int, share: float) -> None:
    """Byte for byte, though it was held."""
    script = respelled(reply(kit, elsewhere(), stream=stream), seed, share, stream=stream)
    met = meet(ask(kit, spin(), stream=stream), [script])
    assert quiet(met.body) == quiet(script.body) if stream else met.body == script.body


def test_marks_are_such_that_their_spellings_are_told() -> None:
    """Letters, underscores and the quotes of a key: what else they held might be escaped unnoticed."""
    for dialect in DIALECTS:
        assert re.fullmatch(rb'"?[A-Za-z_]+"?', dialect.call_mark)
        assert re.fullmatch(rb"[A-Za-z_]*", dialect.early_mark)
