"""Whatever breaks inside callfuse breaks at any point once: nothing is raised, no byte is lost, no call leaks.

In: an exchange in which the reader, the writer, the dialect or the judge raises at its k-th call, for every k.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from callfuse.guard.frames import MAX_CAUSE
from callfuse.model import Delivery
from callfuse.wire import EVENTS, Format, Framer, Payload
from tests.guard.driving import Outcome, Scene, each_kit, play, scene
from tests.guard.written import ANTHROPIC, event, message, text, tool_use
from tests.support.kits import DialectKit, stream_of
from tests.support.meeting import MARK, streamed_and_whole
from tests.support.model import Answer
from tests.support.plain import again, elsewhere, known_call, same_call, saying, spin, thinking
from tests.support.wire import frames

pytestmark = pytest.mark.slow

FIRST = b"call_first"


class Bug(Exception):
    """A mistake in callfuse."""


class Fuse:
    """Burns once, at the k-th call."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""

    def tick(self, where: str) -> None:
        """One call."""
        self.left -= 1
        if self.left == 0:
            self.where = where
            raise Bug(where)


class Faulty:
    """An object whose methods share a fuse; readers and writers that they make share it too."""

    def __init__(self, target: Any, fuse: Fuse) -> None:
        self._target = target
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return self._method(name, value) if callable(value) else value

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._target, name, value)

    def _method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if name == "reader":
                return Faulty(method(*args, **kwargs), self._fuse)
            if name == "is_end":  # compares two constants, behind all else that a frame goes through
                return method(*args, **kwargs)
            self._fuse.tick(f"{type(self._target).__name__}.{name}")
            made = method(*args, **kwargs)
            return Faulty(made, self._fuse) if name == "writer" else made

        return called


def broken(whole: Scene, part: str, fuse: Fuse) -> Scene:
    """The scene with one faulty part."""
    made = Scene(whole.dialect, whole.request, whole.judge)
    setattr(made, part, Faulty(getattr(whole, part), fuse))
    return made


def pieces(kit: DialectKit, answer: Answer, *, stream: bool) -> list[bytes]:
    """An answer in chunks: a frame each."""
    return frames(stream_of(kit, answer)) if stream else [kit.whole(answer)]


def outcomes(
    kit: DialectKit, part: str, ladder: str, *later: Answer, stream: bool, **settings: Any
) -> list[tuple[str, Outcome, Any]]:
    """What came of the exchange for each place at which the part can break."""
    first = saying(thinking(), "Let me look.", same_call("call_first"))
    answers = [pieces(kit, one, stream=stream) for one in (first, *(later or [elsewhere()]))]
    found: list[tuple[str, Outcome, Any]] = []
    for at in range(1, 1000):
        fuse = Fuse(at)
        guard = broken(scene(kit, ladder=ladder, stream=stream, **settings), part, fuse).guard(stream=stream)
        outcome = play(guard, *answers)
        if not fuse.where:
            return found
        found.append((fuse.where, outcome, guard))
    raise AssertionError("the exchange does not end")


@each_kit
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["block", "chance_then_block", "steer twice"])
@pytest.mark.parametrize("part", ["dialect", "judge"])
def test_a_bug_anywhere_is_survived(kit: DialectKit, stream: bool, ladder: str, part: str) -> None:
    """Before the verdict the answer leaves as it came; after it the call is gone, and the answer is a valid one."""
    first = b"".join(pieces(kit, saying(thinking(), "Let me look.", same_call("call_first")), stream=stream))
    tried = outcomes(kit, part, ladder, stream=stream)
    assert tried
    for where, outcome, guard in tried:
        if not any(verdict.withholds for verdict in guard.record.verdicts) and MARK.encode() not in outcome.out:
            assert outcome.out == first, where
        else:
            assert FIRST not in outcome.out, where
            assert MARK.encode() in outcome.out or b"call_second" in outcome.out, where
        if stream:
            assert kit.faults(outcome.out) == [], where
        kit.sdk(outcome.out, stream=stream)


@each_kit
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["block", "chance_then_block", "steer twice"])
def test_a_bug_in_writing_leaks_nothing(kit: DialectKit, stream: bool, ladder: str) -> None:
    """What cannot be written rightly is at least not the call, and the answer ends."""
    for where, outcome, _ in outcomes(kit, "request", ladder, stream=stream):
        assert FIRST not in outcome.out, where
        assert outcome.out, where


@each_kit
@streamed_and_whole
@pytest.mark.parametrize("part", ["dialect", "judge", "request"])
def test_a_bug_on_any_rung_is_survived(kit: DialectKit, stream: bool, part: str) -> None:
    """The model is asked on every rung in turn and never listens: whatever breaks, no call that was judged gets out."""
    later = [
        saying(thinking(), f"Try {tag}.", same_call(f"call_{tag}"), tag=tag) for tag in ("second", "third", "last")
    ]
    for where, outcome, guard in outcomes(kit, part, "every rung", *later, stream=stream):
        for verdict in guard.record.verdicts:
            assert not (verdict.withholds and verdict.call.id.encode() in outcome.out), where
        if part != "request":
            kit.sdk(outcome.out, stream=stream)
            assert not stream or kit.faults(outcome.out) == [], where


@each_kit
@streamed_and_whole
def test_under_fail_closed_no_bug_lets_a_call_go(kit: DialectKit, stream: bool) -> None:
    """What could not be judged is replaced by a block message, in a valid answer."""
    for part in ("dialect", "judge"):
        for where, outcome, _ in outcomes(kit, part, "block", stream=stream, fail_closed=True):
            assert FIRST not in outcome.out, where
            assert MARK.encode() in outcome.out, where
            kit.sdk(outcome.out, stream=stream)


@each_kit
def test_a_bug_beside_a_survivor_loses_no_survivor(kit: DialectKit) -> None:
    """Or it blocks the round, visibly."""
    answer = saying("Both.", same_call("call_first"), known_call("call_sibling"))
    chunks = frames(stream_of(kit, answer))
    for at in range(1, 1000):
        fuse = Fuse(at)
        guard = broken(scene(kit, spin(beside=True)), "request", fuse).guard()
        outcome = play(guard, chunks)
        if not fuse.where:
            assert b"call_sibling" in outcome.out
            return
        assert FIRST not in outcome.out or outcome.out == b"".join(chunks), fuse.where
        assert b"call_sibling" in outcome.out or MARK.encode() in outcome.out, fuse.where


@each_kit
def test_a_malformed_frame_in_a_hold_ends_it(kit: DialectKit) -> None:
    """Before the hold it only passes; within, it, all before it and all behind it leave in order, however cut."""
    chunks = frames(stream_of(kit, again()))
    opens = next(at for at, chunk in enumerate(chunks) if FIRST in chunk and b"search" in chunk)
    last = max(at for at, chunk in enumerate(chunks) if kit.called.encode() in chunk)
    for at in range(1, len(chunks)):
        spoiled = [*chunks[:at], b"data: {broken\n\n", *chunks[at:]]
        for cut in (spoiled, [b"".join(spoiled)]):
            out = play(scene(kit).guard(), cut).out
            if at <= opens:
                assert b"{broken" in out
                assert MARK.encode() in out
            elif at <= last:
                assert out == b"".join(spoiled)


class FaultyForm:
    """A format whose framer and whose payloads share a fuse."""

    def __init__(self, form: Format, fuse: Fuse) -> None:
        self._form = form
        self._fuse = fuse
        self.frame_end = form.frame_end
        self.ordered = form.ordered
        self.text = form.text
        self.with_text = form.with_text

    def framer(self) -> Framer:
        """One that raises when it is fed."""
        framer: Framer = Faulty(self._form.framer(), self._fuse)
        return framer

    def payload(self, frame: bytes) -> Payload | None:
        """Raises if it is its turn."""
        self._fuse.tick("payload")
        return self._form.payload(frame)


@each_kit
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_bug_in_the_format_is_survived(kit: DialectKit, ladder: str) -> None:
    """All that came leaves, or the call does not."""
    chunks = pieces(kit, saying("Let me look.", same_call("call_first")), stream=True)
    for at in range(1, 1000):
        fuse, made = Fuse(at), scene(kit, ladder=ladder)
        guard = made.guard(FaultyForm(EVENTS, fuse))
        outcome = play(guard, chunks, pieces(kit, elsewhere(), stream=True))
        if not fuse.where:
            return
        assert outcome.out == b"".join(chunks) or FIRST not in outcome.out, fuse.where
        assert outcome.out, fuse.where


@each_kit
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_call_that_is_blocked_is_on_record(kit: DialectKit, stream: bool, ladder: str) -> None:
    """Whatever broke while the verdict was carried out: the log, the counts and the ledger know of the block."""
    for where, outcome, guard in outcomes(kit, "dialect", ladder, again(tag="second"), stream=stream):
        if MARK.encode() in outcome.out:
            assert any(verdict.blocks for verdict in guard.record.verdicts), where
            assert guard.record.rounds[-1][0].delivery is Delivery.BLOCKED, where


class Broken(Fuse):
    """Burns at the k-th call and at every one behind it: a mistake that every other way out meets again."""

    def tick(self, where: str) -> None:
        """One call."""
        self.left -= 1
        if self.left <= 0:
            self.where = self.where or where
            raise Unspeakable(where)


class Unspeakable(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise Bug("no words")


@each_kit
@streamed_and_whole
@pytest.mark.parametrize("fail_closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
@pytest.mark.parametrize("part", ["dialect", "judge", "request"])
def test_nothing_raises_however_often_it_breaks(
    kit: DialectKit, stream: bool, ladder: str, part: str, fail_closed: bool
) -> None:
    """From any point on everything fails, the ways out too: no method raises, and with `fail_closed` no held call
    leaves."""
    first = saying(thinking(), "Let me look.", same_call("call_first"))
    answers = [pieces(kit, one, stream=stream) for one in (first, elsewhere())]
    for at in range(1, 1000):
        fuse, made = Broken(at), scene(kit, ladder=ladder, stream=stream, fail_closed=fail_closed)
        guard = broken(made, part, fuse).guard(stream=stream)
        outcome = play(guard, *answers)
        assert guard.cut() + guard.fail("late") + guard.finish() is not None
        guard.close()
        if not fuse.where:
            return
        judged = any(verdict.withholds for verdict in guard.record.verdicts)
        assert FIRST not in outcome.out or not (fail_closed or judged), fuse.where
    raise AssertionError("the exchange does not end")


ODD_INDEXES: list[Any] = [2, -1, 10**30, 1.5, None, "x", [], {}]
ODD_BLOCKS: list[Any] = [
    *(None, 5, "x" * 1000, [], {}, {"type": []}),
    *({"type": "text", "text": 5}, {"type": "tool_use", "name": {}}),
]


@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_malformed_block_behind_a_held_call_ends_in_a_block(ladder: str) -> None:
    """Whatever stands for an index, or for the block itself: with `fail_closed` nothing raises, and the call that waits
    is withheld."""
    whole = message(text(0, "Let me look."), tool_use(1))
    for index, begun in product(ODD_INDEXES, ODD_BLOCKS):
        odd = event({"type": "content_block_start", "index": index, "content_block": begun})
        spoiled = [*whole[:-2], odd, *whole[-2:]]
        guard = scene(ANTHROPIC, ladder=ladder, fail_closed=True).guard()
        out = play(guard, spoiled, message(text(0, "Else."))).out
        assert FIRST not in out, (index, begun)
        assert max(map(len, guard.record.fail_open), default=0) <= MAX_CAUSE
