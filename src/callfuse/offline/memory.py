"""Keep the findings of judged runs, so that only the new rounds of a longer run must be judged.

A verdict depends only on the settings, the earlier rounds of the turn and the call itself. So the findings of a round
are kept under a digest of all these: equal digests have equal verdicts.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from threading import Lock
from typing import Final, NamedTuple

from callfuse.model import PastCall, Round, ToolCall
from callfuse.offline.runs import RecordedRun
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import LoopSettings
from callfuse.wire.jsontext import dumps

MAX_BYTES: Final = 16 * 1024 * 1024
"""The most bytes that are kept: about 40,000 rounds, because few have findings."""
_ROUND: Final = 350
"""Estimated bytes of a round without a finding, and of a finding without its texts."""
_FINDING: Final = 1200
_DIGEST_SIZE: Final = 16
_NO_CALL: Final = ToolCall("", "", "")
_CLEAN: Final[tuple["KnownCall", ...]] = ()


class KnownCall(NamedTuple):
    """The finding of one call of a round. `of`: the index in the round of the call in the verdict."""

    verdict: Verdict | None
    of: int
    step: int

    def verdict_for(self, round_: Round) -> Verdict | None:
        """Return the verdict on an equal call of a round."""
        return None if self.verdict is None else replace(self.verdict, call=round_.calls[self.of].call)


class Recalled(NamedTuple):
    """The known part of a turn. `rounds`: its first rounds, each with the findings of its calls; `digests`: for each
    round, that of it and all before."""

    rounds: Sequence[tuple[KnownCall, ...]]
    digests: Sequence[bytes]


NOTHING: Final = Recalled((), ())


class VerdictMemory:
    """The findings of rounds by digest, at most `max_bytes` bytes. The least recently used are dropped first.
    Thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.size = 0
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._settings: LoopSettings | None = None
        self._digest = b""
        self._known: OrderedDict[bytes, tuple[tuple[KnownCall, ...], int]] = OrderedDict()

    def recall(self, run: RecordedRun, rounds: Sequence[Round], settings: LoopSettings) -> Recalled:
        """Return the known rounds of a turn, oldest first."""
        digests = _digests(run, rounds, self._key_of(settings))
        found = []
        with self._lock:
            for digest, round_ in zip(digests, rounds, strict=True):
                if digest not in self._known:
                    break
                self._known.move_to_end(digest)
                calls, _ = self._known[digest]
                found.append(calls or (KnownCall(None, 0, 0),) * len(round_.calls))
        return Recalled(found, digests)

    def keep(self, digest: bytes, calls: Sequence[KnownCall]) -> None:
        """Keep the findings in the calls of a round."""
        known, size = _CLEAN, _ROUND
        if any(one.verdict is not None or one.step for one in calls):
            known = tuple(one._replace(verdict=one.verdict and replace(one.verdict, call=_NO_CALL)) for one in calls)
            size += sum(map(_size_of, known))
        with self._lock:
            _, before = self._known.pop(digest, (None, 0))
            self._known[digest] = known, size
            self.size += size - before
            while self.size > self._max_bytes:
                _, (_, gone) = self._known.popitem(last=False)
                self.size -= gone

    def _key_of(self, settings: LoopSettings) -> bytes:
        """Return a key for settings. They are one object until they change, unless a model has its own."""
        with self._lock:
            if settings is not self._settings:
                text = settings.model_dump_json().encode("utf-8", "surrogatepass")
                self._settings, self._digest = settings, blake2b(text, digest_size=_DIGEST_SIZE).digest()
            return self._digest


def _digests(run: RecordedRun, rounds: Sequence[Round], start: bytes) -> list[bytes]:
    """Return the digest of each round, including those before it. Call this before reading outcomes, which drops
    results."""
    digest, found = start, []
    for round_ in rounds:
        state = blake2b(digest, digest_size=_DIGEST_SIZE)
        for past in round_.calls:
            for part in _parts(past, is_declared=None if run.known is None else past.call.full_name in run.known):
                state.update(b"%d:%b" % (len(part), part))
        digest = state.digest()
        found.append(digest)
    return found


def _parts(past: PastCall, *, is_declared: bool | None) -> Sequence[bytes]:
    """Return everything of a call that judging may read."""
    call = past.call
    texts = (
        part.encode("utf-8", "surrogatepass") for part in (call.id, call.namespace, call.name, call.kind, call.text)
    )
    return *texts, dumps([is_declared, past.result])


def _size_of(call: KnownCall) -> int:
    if call.verdict is None:
        return 0
    finding = call.verdict.finding
    texts = (finding.tool, finding.previous or "", *finding.calls, *finding.pattern)
    return _FINDING + 4 * sum(map(len, texts))
