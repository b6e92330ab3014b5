"""Find histories that a client compacts again and again, without a call in between.

A compaction is recognised in the first request after it: a summary in the words of a known harness, or encrypted by the
vendor, without words of the model after it. Each summary differs from the one before, while a request that is sent
again has the same summary. A call ends a row, and so does a new message by a person.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import KeptRound, StormEntry
from callfuse.conversations.storms import Row, with_new
from callfuse.dialects.base import Request
from callfuse.dialects.history import digest_of
from callfuse.dialects.typed import Speech
from callfuse.harness import is_summary, is_word_behind_summary

KIND: Final = "compaction_storm"
WITHIN_S: Final = 3600.0
"""Compactions are counted within so many seconds: a slow model takes minutes for one summary."""
NEAR: Final = 16
"""How many messages at the end of a history are searched for a summary."""
NOTHING_SAID: Final = digest_of(())
"""Used as the digest of the user's text if there is none."""


class Compaction(NamedTuple):
    """A summary at the end of a history. Both are digests. `said`: of the user's last text besides the summary."""

    summary: bytes
    said: bytes

    @property
    def digest(self) -> bytes:
        """The digest of the compaction; it begins with `said`, so compactions after the same message begin alike."""
        return self.said + self.summary


def compaction_lane(lane: Lane) -> Lane:
    """Return the key under which the compactions of a lane are counted."""
    return lane._replace(source=KIND)


def read_compaction(request: Request) -> Compaction | None:
    """Return the summary at the end of a history, if the model has said nothing after it; else None."""
    summary, said, goes_on = b"", b"", False
    for at in reversed(range(max(0, request.length - NEAR), request.length)):
        speech = request.speech(at)
        if goes_on and speech.words:
            summary, goes_on = summary or _digest([speech.words]), False
            continue
        if speech.what is not Speech.NOTHING or request.has_result(at):
            break
        summaries, own, goes_on = _read_message(request, at)
        summary = summary or _digest(summaries)
        said = said or _digest(own)
    return Compaction(summary, said or NOTHING_SAID) if summary else None


def with_compaction(row: Sequence[StormEntry], found: Compaction, rounds: Sequence[KeptRound], now: float) -> Row:
    """Return a lane's row with one more compaction, without entries from before the lane's last call or the user's last
    message. `rounds`: the lane's rounds in the ledger."""
    called = max([one.time for one in rounds if one.delivered and one.time is not None], default=0.0)
    of_row = [one for one in row if one.time > called and one.digest.startswith(found.said)]
    return with_new(of_row, found.digest, now, WITHIN_S)


def _read_message(request: Request, at: int) -> tuple[list[str], list[str], bool]:
    """Return the summaries in a message that is not the model's, the other texts in it, and whether it has only the
    text that a harness writes after a summary by the model."""
    typed = request.typed_message(at)
    words = [one.text for one in typed.texts] if typed is not None else []
    summaries = [request.sealed_summary(at), *filter(is_summary, words)]
    own = [one for one in words if not (is_summary(one) or is_word_behind_summary(one))]
    return summaries, own, bool(words) and not (own or any(summaries))


def _digest(said: Sequence[str]) -> bytes:
    """Return a digest of texts; empty if the texts are empty."""
    return digest_of([one.encode("utf-8", "surrogatepass") for one in said]) if any(said) else b""
