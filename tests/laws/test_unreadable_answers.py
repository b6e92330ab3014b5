"""Answers that some client reads: guarded where Python's own `json` reads them, else told of, and blocked on wish."""

import json
from collections.abc import Callable

import pytest

from callfuse.wire.values import MOST_VALUES
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, ask, every_dialect, meet
from tests.support.plain import again, spin
from tests.support.scripted import Reply, whole

ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"]


def answer(kit: DialectKit, change: Callable[[str], str] = lambda text: text, encoding: str = "utf-8") -> Reply:
    """A whole answer about a loop, changed."""
    return whole(change(kit.whole(again()).decode()).encode(encoding))


def beside(value: str) -> Callable[[str], str]:
    """Puts a value beside all others of an answer."""
    return lambda text: "{" + value + "," + text.lstrip()[1:]


@every_dialect
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_other_encodings_are_guarded(kit: DialectKit, encoding: str, ladder: str) -> None:
    """The call does not come, and what comes in its place can be read; without a loop every byte stays."""
    replies = [answer(kit, encoding=encoding)] * 2
    met = meet(ask(kit, spin(), stream=False), replies, ladder)
    (view,) = kit.sdk(met.body, stream=False)
    assert view.calls == ()
    assert MARK in view.text
    assert meet(ask(kit, spin(1), stream=False), replies, ladder).body == replies[0].body


@pytest.mark.slow
@every_dialect
def test_log_probabilities_are_no_burden(kit: DialectKit) -> None:
    """However many there are, the call is withheld."""
    many = json.dumps([{"token": "x", "bytes": [1, 2, 3]}] * (MOST_VALUES // 4))
    met = meet(ask(kit, spin(), stream=False), [answer(kit, beside(f'"logprobs":{many}'))])
    assert MARK in met.body.decode()
    assert b"call_first" not in met.body


UNREADABLE = {
    "deep": '"deep":' + "[" * 200_000 + "]" * 200_000,
    "long": '"long":' + "1" * 600,
    "many": '"many":[' + "1," * MOST_VALUES + "1]",
}


@every_dialect
@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_told(kit: DialectKit, value: str) -> None:
    """It passes as it came, and the log says so; under `fail_closed` no call of it does."""
    reply = answer(kit, beside(value))
    met = meet(ask(kit, spin(), stream=False), [reply])
    assert met.body == reply.body
    assert sum("unreadable JSON" in text for _, _, text in met.log) == 1
    closed = meet(ask(kit, spin(), stream=False), [reply], fail_closed=True)
    (view,) = kit.sdk(closed.body, stream=False)
    assert view.calls == ()
    assert MARK in view.text
