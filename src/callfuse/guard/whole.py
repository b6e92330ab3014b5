"""The guard of a whole (not streamed) answer: the same verdicts as for a stream, over a body that has not left yet.

It is driven like `StreamGuard`; until the end `feed` gives nothing, and `Step.out` is the whole body for the client.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from callfuse.dialects.base import Dialect, Request, WholeChoice
from callfuse.guard.course import Course, all_ask
from callfuse.guard.judge import Judge
from callfuse.guard.step import Step
from callfuse.model import ToolCall
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.wire import Payload
from callfuse.wire.jsontext import NotJSON, loads, loads_exact

_WIDE = re.compile(rb"\d{19}")
"""Integers that the fast parser may round."""


class WholeGuard:
    """Guards one client's whole answer, over as many answers as it takes."""

    def __init__(self, dialect: Dialect, request: Request, judge: Judge) -> None:
        self._course = Course(dialect, request, judge)
        self.record = self._course.record
        self.complete = False
        self._dialect = dialect
        self._request = request
        self._judge = judge
        self._first: bytes | None = None
        self._recorded = False
        self._passes = False
        self._silent = False
        self._body = bytearray()
        self._client = b""
        self._payload: Payload = {}
        self._choices: list[WholeChoice] = []
        self._verdicts: list[Verdict] = []

    @property
    def due(self) -> bool:
        """Whether a verdict is wanted."""
        return bool(self._verdicts)

    @property
    def holding(self) -> bool:
        """A whole answer that is held needs no sign of life: nothing of it has begun."""
        return False

    @property
    def pending(self) -> bool:
        """Whether another answer is awaited."""
        return bool(self._course.asked)

    @property
    def held_bytes(self) -> int:
        """Bytes that wait."""
        return 0 if self._passes else len(self._body)

    def feed(self, chunk: bytes) -> bytes:
        """Nothing, as long as the body is within the limit."""
        if self._passes:
            return b"" if self._silent else chunk
        self._body += chunk
        if len(self._body) <= self._judge.settings.max_response_bytes:
            return b""
        if not self.pending:
            return self.fail("max_response_bytes")
        self._passes = self._silent = True
        return b""

    def finish(self) -> bytes:
        """The body is complete: it leaves, unless a verdict is due."""
        if self._passes:
            return b""
        try:
            payload, choices, client = self._read(bytes(self._body))
            verdicts = [one for choice in choices for one in self._judge.verdicts(choice.complete())]
        except NotJSON:
            self._passes = not self.pending
            return b"" if self.pending else bytes(self._body)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must not notice
            return b"" if self.pending else self.fail(_cause(error))
        self.complete = True
        self._payload, self._choices, self._client, self._verdicts = payload, choices, client, verdicts
        if verdicts:
            return b""
        self._course.settled()
        return client

    def _read(self, body: bytes) -> tuple[Payload, list[WholeChoice], bytes]:
        """An answer, its choices, and the client's body with it."""
        payload = loads_exact(body) if _WIDE.search(body) else loads(body)
        if not isinstance(payload, dict):
            raise NotJSON("no object")
        choices = [
            replace(choice, calls=tuple(self._judge.apply_ignored_arguments(choice.calls)))
            for choice in self._dialect.read_whole(payload)
        ]
        if self.pending and not choices:
            raise NotJSON("no answer of the dialect")
        client = body
        if self._first is not None:
            usage, foreign = self._judge.settings.usage, self._course.foreign
            client = self._request.splice_whole(self._first, body, usage=usage, foreign=foreign)
        return payload, choices, client

    def cut(self) -> bytes:
        """The upstream has broken off: what has come leaves as it came."""
        return b"" if self._passes or self.pending else bytes(self._body)

    def fail(self, cause: str) -> bytes:
        """An error or a limit before the verdict: what is held leaves, and the rest passes."""
        self.record.fail_open.append(cause)
        self._passes = True
        out = bytes(self._body)
        if not self._judge.settings.fail_closed:
            return out
        self._silent = True
        return self._request.own_answer(texts.unjudged(""))

    def verdicts(self) -> list[Verdict]:
        """What policy says about the calls of the answer."""
        return self._verdicts

    def act(self, verdicts: Sequence[Verdict]) -> Step:
        """Carry the verdicts out, as policy gave them or a callback changed them."""
        try:
            return self._act(verdicts)
        except Exception as error:  # noqa: BLE001 - from the verdict on the call is gone, whatever goes wrong
            self._course.settled()
            return Step(self._own_answer(verdicts, error))

    def _own_answer(self, verdicts: Sequence[Verdict], error: Exception) -> bytes:
        """A block that is callfuse's own from the first byte, where the vendor's answer cannot be changed."""
        self.record.fail_open.append(f"{_cause(error)} (while acting)")
        try:
            said = dict.fromkeys(self._judge.block_text(verdict) for verdict in verdicts)
        except Exception:  # noqa: BLE001 - then without the reasons
            said = {texts.unjudged(""): None}
        return self._request.own_answer("\n\n".join(said))

    def _act(self, verdicts: Sequence[Verdict]) -> Step:
        self._verdicts = []
        self._course.settled()
        guilty = {verdict.call for verdict in verdicts if verdict.withholds}
        lost = [at for at, choice in enumerate(self._choices) if choice.calls and guilty.issuperset(choice.calls)]
        if lost:
            verdicts = self._course.as_one(verdicts)
        asks = all_ask(verdicts)
        if lost and not asks and self._dialect.is_unfinished([self._payload]):
            verdicts, guilty, lost = [replace(verdict, rung=None) for verdict in verdicts], set(), []
        self._keep(verdicts)
        if not guilty:
            return Step(self._client)
        if lost and asks:
            return self._ask(verdicts)
        self._course.note([call for choice in self._choices for call in choice.calls if call not in guilty], verdicts)
        return Step(self._thin(verdicts, lost))

    def answered(self) -> None:
        """The model has begun to answer the request of the last step: what is fed now is that answer."""
        try:
            self._first = self._thin(self._course.asked, [])
            self._course.answered()
        except Exception as error:  # noqa: BLE001 - the answer then stands for itself
            self.record.fail_open.append(_cause(error))
        self.complete = self._recorded = self._passes = self._silent = False
        self._body.clear()

    def unanswered(self) -> Step:
        """The request of the last step has failed: the next rung."""
        self._recorded = True
        verdicts = self._course.asked
        try:
            if ask := self._course.next():
                return Step(b"", ask)
            verdicts = self._course.settled()
            return Step(self._thin(verdicts, [0]))
        except Exception as error:  # noqa: BLE001 - see `act`
            self._course.settled()
            return Step(self._own_answer(verdicts, error))

    def settle(self) -> None:
        """The answer has been delivered whole: keep its calls, unless a verdict has done so."""
        if self.complete and not self._recorded:
            self._keep(())

    def _keep(self, verdicts: Sequence[Verdict]) -> None:
        self._recorded = True
        calls = [call for choice in self._choices for call in choice.complete()]
        self._course.keep(calls, verdicts, lambda: [self._payload])

    def _ask(self, verdicts: Sequence[Verdict]) -> Step:
        """Ask the model again, or take the next rung where its turn cannot be put together."""
        turn = partial(self._dialect.turn_of_whole, bytes(self._body), self._payload)
        ask = self._course.ask(verdicts, turn)
        return Step(b"", ask) if ask else Step(self._thin(self._course.settled(), [0]))

    def _thin(self, verdicts: Sequence[Verdict], lost: Sequence[int]) -> bytes:
        """The client's body without the withheld calls; a choice that loses all of them says why."""
        guilty: dict[ToolCall, Verdict] = {verdict.call: verdict for verdict in verdicts if verdict.withholds}
        places = [
            (at, place)
            for at, choice in enumerate(self._choices)
            for place, call in enumerate(choice.calls)
            if call in guilty
        ]
        blocks = {at: self._course.block(guilty[call] for call in self._choices[at].calls) for at in lost}
        return self._request.thin_whole(self._client, places, blocks)


def _cause(error: Exception) -> str:
    """An error as a cause for failing open."""
    return f"{type(error).__name__}: {error}"
