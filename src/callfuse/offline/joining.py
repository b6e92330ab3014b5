"""Join the records of one conversation into one run, because each request repeats the history.

A conversation replaces an earlier one that it continues: it has the same session (if any), system prompt and first user
message, and begins with all calls of the earlier one, by ids and arguments. A conversation whose calls are all in
another one is left out. Anything else is a run of its own, including branches, and continuations after a client has
compacted its history.

Conversations that may still be continued are kept, up to `limit_bytes` bytes of JSON. If there are more, the oldest
counts as complete. If it is continued later, its calls count again.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Final

from callfuse.dialects.base import Request
from callfuse.dialects.history import digest_of
from callfuse.model import NOWHERE, PastCall, Round
from callfuse.offline.runs import RecordedConversation, RecordedRun, UsedTokens

LIMIT_BYTES: Final = 64 * 2**20
"""The most bytes of JSON of unfinished conversations."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A run that may be continued, with the digests of all its beginnings and the size of its record in bytes."""

    run: RecordedRun
    beginnings: list[bytes]
    size: int


class Joining:
    """Takes conversations in the order of the records, and yields runs once they are complete."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._size = 0
        self._open: OrderedDict[bytes, _Open] = OrderedDict()
        self._whole: dict[bytes, bytes] = {}
        """Digests of whole conversations, by the digest of each of their beginnings."""

    def take(self, run: RecordedRun, parts: list[bytes], size: int) -> Iterator[RecordedRun]:
        """Keep a run with the digests of its beginnings and the size of its request, and yield runs that no longer
        fit."""
        whole = parts[-1]
        if self._whole.get(whole, whole) != whole:
            return
        earlier = next((one for one in reversed(parts) if one in self._whole), None)
        if earlier is not None and self._whole[earlier] == earlier:
            run = run.after(self._remove(earlier))
        self._open[whole] = _Open(run, parts, size)
        self._whole |= dict.fromkeys(parts, whole)
        self._size += size
        while self._size > self._limit and len(self._open) > 1:
            yield self._remove(next(iter(self._open)))

    def rest(self) -> Iterator[RecordedRun]:
        """Yield all runs that are left."""
        while self._open:
            yield self._remove(next(iter(self._open)))

    def _remove(self, whole: bytes) -> RecordedRun:
        one = self._open.pop(whole)
        self._size -= one.size
        for beginning in one.beginnings:
            if self._whole.get(beginning) == whole:
                del self._whole[beginning]
        return one.run


def run_of(conversation: RecordedConversation, *, most: int | None = None) -> RecordedRun:
    """Convert a conversation to a run of its `most` newest rounds, including messages of persons; None for all."""
    label, request, answer, texts, tokens = conversation
    turns: list[list[Round]] = [[Round(tuple(map(PastCall, answer)), NOWHERE)]] if answer else [[]]
    for round_ in islice(request.rounds(), most):  # newest first
        if round_ is None:
            turns.append([])
        else:
            turns[-1].append(round_)
    turns = [rounds[::-1] for rounds in reversed(turns) if rounds]
    names = {call.name for rounds in turns for round_ in rounds for call in round_.calls}
    known = frozenset(filter(request.declares, names)) if request.lists_tools else None
    run = RecordedRun(label.id, label.source, label.model or request.model, label.success, turns, known, texts)
    if tokens is None:
        return run
    before = sum(map(len, turns)) - bool(answer)
    return replace(run, used=(UsedTokens(before, bool(answer), tokens),))


def beginnings(run: RecordedRun, request: Request, session: str) -> list[bytes]:
    """Digests of a conversation before its first round, after the first round, and so on to its end."""
    digest = digest_of((session.encode("utf-8", "replace"), *request.opening()))
    digests = [digest]
    for rounds in run.turns:
        for round_ in rounds:
            calls = (part for call in round_.calls for part in (call.id.encode("utf-8", "replace"), call.signature))
            digest = blake2b(b"\x00".join((digest, *calls)), digest_size=16).digest()
            digests.append(digest)
    return digests
