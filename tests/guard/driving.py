"""Guards driven by hand, without an event loop: an exchange as a function from answers to the client's bytes.

In: a dialect kit, a history, the model's answers in chunks. Out: the client's bytes and the guard's record. The order
of calls on the guard is the one that its module describes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from callfuse.boundary import Boundary
from callfuse.conversations.ledger import LaneState
from callfuse.conversations.timeline import read_conversation
from callfuse.dialects import DIALECTS, Dialect
from callfuse.dialects.base import Request
from callfuse.guard.assembly import Assembly
from callfuse.guard.guard import Guard
from callfuse.guard.judge import Judge
from callfuse.guard.queue import Trace
from callfuse.guard.record import ExchangeRecord
from callfuse.guard.step import Step
from callfuse.policy.settings import LoopSettings
from callfuse.wire import EVENTS, WHOLE, Format
from callfuse.wire.jsontext import loads
from tests.support.config import LADDERS, tool_call_loop
from tests.support.kits import KITS, DialectKit
from tests.support.model import History
from tests.support.plain import spin

EVENT_KITS = [kit for kit in KITS if kit.name in ("openai-chat", "anthropic")]
each_kit = pytest.mark.parametrize("kit", EVENT_KITS, ids=lambda kit: kit.name)
"""The dialects over server-sent events, whose frames these tests take apart."""


class CaughtGuard(Guard):
    """A guard, and what its caller does if `feed` raises."""

    def feed(self, chunk: bytes) -> bytes:
        """What leaves, whatever goes wrong."""
        with Boundary() as failed:
            return super().feed(chunk)
        return self.recover(failed)


@dataclass(slots=True)
class Scene:
    """All that a guard of one exchange is made from."""

    dialect: Dialect
    request: Request
    judge: Judge

    def guard(self, form: Format | None = None, *, stream: bool = True, trace: Trace | None = None) -> Guard:
        """A guard that follows its answer from the start."""
        guard = CaughtGuard(self.dialect, form or (EVENTS if stream else WHOLE), choices=self.request.choices)
        guard.follow(self.request, self.judge, trace)
        return guard


def record_of(assembly: Assembly, choices: int = 1) -> ExchangeRecord:
    """What is on record of an answer that was delivered."""
    record = ExchangeRecord(choices)
    assembly.finish()
    assembly.settle(record)
    return record


def dialect_of(kit: DialectKit) -> Dialect:
    """The dialect that a kit tests."""
    return next(dialect for dialect in DIALECTS if dialect.name == kit.name)


def read(kit: DialectKit, body: bytes) -> Request:
    """A request as the dialect reads it."""
    request = dialect_of(kit).read_request(body, loads(body))
    assert request is not None
    return request


def scene(
    kit: DialectKit,
    history: History | bytes | None = None,
    ladder: str | list[str] = "block",
    *,
    stream: bool = True,
    n: int = 1,
    may_ask: bool = True,
    **settings: Any,
) -> Scene:
    """An exchange about a history (or a request body); as a rule one in which the same call has come twice."""
    body = history if isinstance(history, bytes) else kit.request(history or spin(), stream=stream, n=n)
    request = read(kit, body)
    chosen = LoopSettings.model_validate(tool_call_loop(LADDERS.get(str(ladder), ladder), **settings))
    timeline = read_conversation(request, LaneState(), 0.0, chosen).timeline
    judge = Judge(timeline, chosen, model=request.model, may_ask=may_ask and request.choices == 1)
    return Scene(dialect_of(kit), request, judge)


@dataclass(slots=True)
class Outcome:
    """What came of an exchange: the client's bytes, the bodies with which the model was asked again."""

    out: bytes = b""
    asked: list[bytes] = field(default_factory=list)
    complete: bool = False


def play(guard: Guard, *answers: Sequence[bytes] | None) -> Outcome:
    """Drive a guard through the model's answers; None is a request that fails."""
    done = Outcome()
    first, *later = answers
    assert first is not None
    step = _feed(guard, first, done)
    while step is not None and step.ask is not None:
        done.asked.append(step.ask.body)
        answer = later.pop(0) if later else None
        if answer is not None:
            guard.begin_next_answer()
            step = _feed(guard, answer, done)
        if guard.pending and (step is None or answer is None or step.ask is None):
            step = guard.escalate()
            done.out += step.out
    guard.settle()
    done.complete = guard.complete
    return done


def _feed(guard: Guard, chunks: Sequence[bytes], done: Outcome) -> Step | None:
    """One answer, up to the verdict over it."""
    for chunk in (*chunks, None):
        done.out += guard.finish() if chunk is None else guard.feed(chunk)
        if guard.needs_verdict:
            step = guard.apply(guard.verdicts())
            done.out += step.out
            if step.ask is not None:
                return step
    return None
