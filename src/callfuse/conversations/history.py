"""The rounds of a request as they stand in it, timeline by timeline."""

from collections.abc import Iterable, Iterator
from itertools import chain

from callfuse.conversations.ledger import is_same_id
from callfuse.dialects.base import Request
from callfuse.model import Replayed, Round, ToolCall
from callfuse.model.signature import Signature
from callfuse.policy.ignored import ignoring
from callfuse.policy.settings import LoopSettings


class History:
    """What a request holds, read as far as one looks, and once more where it has been dropped.

    `rounds`: those since the last real user message, newest first.
    """

    __slots__ = ("_before", "_earlier", "_request", "_settings", "_unread", "rounds")

    def __init__(self, request: Request, settings: LoopSettings, at_once: int) -> None:
        self._request = request
        self._settings = settings
        self._unread = self._all()
        self.rounds = Replayed(iter(self._unread.__next__, None), at_once)
        self._before: Replayed[Round] | None = None
        self._earlier: list[list[Round]] | None = None

    def drop(self, keeps: int | None) -> None:
        """Let go of what has been read, and of all that reading it holds, but for so many of `rounds` (None: all)."""
        self._unread, self._before, self._earlier = self._all(), None, None
        if self.rounds.at(0) is not None:
            self.rounds.restart(iter(self._unread.__next__, None), keeps=keeps)

    def latest(self) -> Replayed[Round]:
        """The rounds of the newest timeline that has any."""
        if self.rounds.at(0):
            return self.rounds
        if self._earlier is not None:
            return Replayed(self._earlier[0] if self._earlier else [])
        if self._before is None:
            newest = next(filter(None, self._unread), None)
            self._before = Replayed(chain((newest,), iter(self._unread.__next__, None)) if newest else (), 1)
        return self._before

    def earlier(self) -> list[list[Round]]:
        """The rounds of each timeline before the last real user message, newest first."""
        if self._earlier is None:
            _ = [*self.rounds]  # what comes after them is then unread
            self._earlier = list(_timelines(chain(self._before or (), (None,), self._unread)))
        return self._earlier

    def calls_alike(self, id_: str, signature: Signature) -> Iterator[tuple[int, ToolCall]]:
        """The calls of all timelines that may have this id, and have this signature, from the front, with their
        positions."""
        for round_ in reversed([round_ for round_ in self._all() if round_ is not None]):
            for call in round_.calls:
                if is_same_id(call.id, id_) and call.signature == signature:
                    yield round_.position, call

    def _all(self) -> Iterator[Round | None]:
        """The rounds, newest first; None for a real user message."""
        rounds = self._request.rounds()
        return _ignoring(rounds, self._settings) if self._settings.ignores else rounds


def _ignoring(rounds: Iterable[Round | None], settings: LoopSettings) -> Iterator[Round | None]:
    for round_ in rounds:
        if round_ is not None:
            ignoring(round_.calls, settings)
        yield round_


def _timelines(history: Iterator[Round | None]) -> Iterator[list[Round]]:
    """The rounds of a history, newest first, parted at its real user messages."""
    rounds: list[Round] = []
    for round_ in history:
        if round_ is not None:
            rounds.append(round_)
        elif rounds:
            yield rounds
            rounds = []
    if rounds:
        yield rounds
