"""Find equal answers in a row in the history of a request, and the warnings to add because of them.

A call, a result and a text by callfuse end such a row. The warnings are a pure function of the history, like the notes
in results: the same conversation always gets the same bytes, and prompt caches keep hitting.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from callfuse.dialects.base import Request
from callfuse.dialects.typed import Speech
from callfuse.model import Finding
from callfuse.model.finding import NO_TOOL
from callfuse.model.outcomes.normalise import normalise
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict, capped, decide_before
from callfuse.policy.settings import LoopSettings
from callfuse.wire.jsontext import Edit

KIND: Final = "monologue"
LEAST: Final = 20
"""The fewest characters of an answer that counts: "Done." may answer many different messages."""


class EqualAnswers(NamedTuple):
    """A row of equal answers: their number, a digest of their text, and the position of the user's message after the
    last one. `is_pending`: the next answer has not come yet."""

    times: int
    digest: bytes
    at: int
    is_pending: bool = False


class ShownMonologue(NamedTuple):
    """The monologues in a history. `verdict`: on the pending answer, None if there is no finding; `warning`: the edits
    that warn the model before that answer. `earlier`: the edits with the warnings that it got before."""

    verdict: Verdict | None = None
    warning: Sequence[Edit] = ()
    earlier: Sequence[Edit] = ()


NO_MONOLOGUE: Final = ShownMonologue()


def equal_answers(request: Request) -> Iterator[EqualAnswers]:
    """Yield, for each user message after an answer (the last one, if several), how many equal answers precede it."""
    count, digest, words, user = 0, b"", list[str](), -1
    for at in range(request.length):
        said, own = request.speech(at), request.own_text(at)
        if said.what is Speech.WORDS and said.words and not own:
            if user >= 0:
                yield EqualAnswers(count, digest, user)
            words.append(said.words)
            user = -1
        elif said.what is not Speech.NOTHING or own or request.has_result(at):
            count, digest, words, user = 0, b"", [], -1
        elif own is None:
            if words:
                before, digest, words = digest, _digest(words), []
                count = count + 1 if digest and digest == before else 1
            user = at
    if user >= 0:
        yield EqualAnswers(count, digest, user, is_pending=True)


def _digest(words: list[str]) -> bytes:
    """Return a digest of an answer, without white space, times and ids; empty for an answer that is too short."""
    text = " ".join("\n".join(words).split())
    return blake2b(normalise(text, keep_numbers=True), digest_size=16).digest() if len(text) >= LEAST else b""


def verdict_on(equal: EqualAnswers, settings: LoopSettings) -> Verdict | None:
    """Return the verdict on a row of equal answers, by the settings alone; None if the row is short or the kind off."""
    limit = settings.limit_of(KIND)
    if not 0 < limit <= equal.times:
        return None
    finding = Finding(KIND, NO_TOOL, equal.digest, equal.times, limit, settings.ttl_seconds, hard=False)
    return decide_before(finding, capped(settings.ladder, finding, settings.detectors))


def read_monologue(request: Request, settings: LoopSettings, judge: Callable[[Finding], Verdict]) -> ShownMonologue:
    """Return the monologues in the history of a request. `judge` returns the verdict on a finding in this exchange."""
    earlier = list[Edit]()
    for equal in equal_answers(request):
        if (then := verdict_on(equal, settings)) is None:
            continue
        warning = request.append_to_user(equal.at, texts.warning(then.call, then.finding, settings, request.model))
        if equal.is_pending:
            verdict = judge(then.finding)
            return ShownMonologue(verdict if warning or verdict.blocks else verdict.observed(), warning, earlier)
        earlier += warning if then.warns else ()
    return ShownMonologue(earlier=earlier) if earlier else NO_MONOLOGUE
