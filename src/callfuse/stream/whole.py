"""The guard of a whole (not streamed) answer: the same verdicts as for a stream, over a body that has not left yet.

It is driven like `StreamGuard`; until the end `feed` gives nothing, and `Step.out` is the whole body for the client.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from callfuse.dialects.base import AskError, Block, Dialect, Remembered, Reply, Request, WholeChoice, remembering
from callfuse.framing import Payload
from callfuse.jsontext import NotJSON, loads, loads_exact
from callfuse.model import ToolCall
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import Rung
from callfuse.stream.judge import Judge
from callfuse.stream.record import Record
from callfuse.stream.step import Step

_WIDE = re.compile(rb"\d{19}")
"""Integers that the fast parser may round."""


class WholeGuard:
    """Guards one client's whole answer, over as many answers as it takes."""

    def __init__(self, dialect: Dialect, request: Request, judge: Judge) -> None:
        self.record = Record(request.choices)
        self.complete = False
        self._dialect = dialect
        self._request = request
        self._judge = judge
        self._asked_body = request.body
        self._asked: list[Verdict] = []
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
        return bool(self._asked)

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
        if not self._asked:
            return self.fail("max_response_bytes")
        self._passes = self._silent = True
        return b""

    def finish(self) -> bytes:
        """The body is complete: it leaves, unless a verdict is due."""
        if self._passes:
            return b""
        try:
            self._read(bytes(self._body))
            self._verdicts = [one for choice in self._choices for one in self._judge.verdicts(choice.complete())]
        except NotJSON:
            self._passes = not self._asked
            return b"" if self._asked else bytes(self._body)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client must not notice
            return b"" if self._asked else self.fail(_cause(error))
        self.complete = True
        if self._verdicts:
            return b""
        self._asked = []
        return self._client

    def _read(self, body: bytes) -> None:
        payload = loads_exact(body) if _WIDE.search(body) else loads(body)
        if not isinstance(payload, dict):
            raise NotJSON("no object")
        choices = self._dialect.read_whole(payload)
        if self._asked and not choices:
            raise NotJSON("no answer of the dialect")
        client = body
        if self._first is not None:
            client = self._request.splice_whole(self._first, body, usage=self._judge.settings.usage)
        self._payload, self._choices, self._client = payload, choices, client

    def cut(self) -> bytes:
        """The upstream has broken off: what has come leaves as it came."""
        return b"" if self._passes or self._asked else bytes(self._body)

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
        self._asked = []
        guilty = {verdict.call for verdict in verdicts if verdict.withholds}
        lost = [at for at, choice in enumerate(self._choices) if choice.calls and guilty.issuperset(choice.calls)]
        if lost and self._dialect.is_unfinished([self._payload]) and any(v.rung is not Rung.STEER for v in verdicts):
            verdicts, guilty, lost = [replace(verdict, rung=None) for verdict in verdicts], set(), []
        self._keep(verdicts)
        if not guilty:
            return Step(self._client)
        if lost and all(verdict.rung is Rung.STEER for verdict in verdicts):
            return self._ask(verdicts)
        survivors = [call for choice in self._choices for call in choice.calls if call not in guilty]
        if survivors:
            self.record.note(survivors[0], [self._judge.guidance(one) for one in verdicts if one.withholds])
        return Step(self._thin(verdicts, lost))

    def answered(self) -> None:
        """The model has begun to answer the request of the last step: what is fed now is that answer."""
        try:
            self._first = self._thin(self._asked, [])
            self._judge.withheld([verdict.call for verdict in self._asked])
        except Exception as error:  # noqa: BLE001 - the answer then stands for itself
            self.record.fail_open.append(_cause(error))
        self.complete = self._recorded = self._passes = self._silent = False
        self._body.clear()

    def unanswered(self) -> Step:
        """The request of the last step has failed: the next rung."""
        verdicts = [self._judge.next_rung(verdict) for verdict in self._asked]
        self.record.replace_last(verdicts)
        self._recorded = True
        if verdicts[0].rung is Rung.STEER:
            self._asked = verdicts
            return Step(b"", self._asked_body)
        self._asked = []
        try:
            return Step(self._thin(verdicts, [0]))
        except Exception as error:  # noqa: BLE001 - see `act`
            return Step(self._own_answer(verdicts, error))

    def settle(self) -> None:
        """The answer has been delivered whole: keep its calls, unless a verdict has done so."""
        if self.complete and not self._recorded:
            self._keep(())

    def _keep(self, verdicts: Sequence[Verdict]) -> None:
        self._recorded = True
        if dialect := remembering(self._dialect):
            replies = [Reply(one.call, self._judge.guidance(one)) for one in verdicts if one.withholds]
            self.record.answers.append(Remembered(dialect.answer_id(self._payload), tuple(replies)))
        self.record.keep([call for choice in self._choices for call in choice.complete()], verdicts)

    def _ask(self, verdicts: Sequence[Verdict]) -> Step:
        """Ask the model again, or take the next rung where its turn cannot be put together."""
        try:
            turn = self._dialect.turn_of_whole(bytes(self._body), self._payload)
            replies = [Reply(verdict.call, self._judge.guidance(verdict)) for verdict in verdicts]
            self._asked_body = self._request.ask_again(self._asked_body, turn, replies)
        except AskError as error:
            self.record.unasked.append(error.part)
            last = [self._judge.blocked(verdict) for verdict in verdicts]
            self.record.replace_last(last)
            return Step(self._thin(last, [0]))
        self._asked = list(verdicts)
        return Step(b"", self._asked_body)

    def _thin(self, verdicts: Sequence[Verdict], lost: Sequence[int]) -> bytes:
        """The client's body without the withheld calls; a choice that loses all of them says why."""
        guilty: dict[ToolCall, Verdict] = {verdict.call: verdict for verdict in verdicts if verdict.withholds}
        places = [
            (at, place)
            for at, choice in enumerate(self._choices)
            for place, call in enumerate(choice.calls)
            if call in guilty
        ]
        blocks = {}
        for at in lost:
            said = dict.fromkeys(self._judge.block_text(guilty[call]) for call in self._choices[at].calls)
            finish = self._judge.settings.finish_reason
            blocks[at] = Block("\n\n".join(said), finish if finish != "stop" else None)
        return self._request.thin_whole(self._client, places, blocks)


def _cause(error: Exception) -> str:
    """An error as a cause for failing open."""
    return f"{type(error).__name__}: {error}"
