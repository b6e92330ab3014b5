"""The rounds of a request and those that the ledger has kept of its lane, matched and merged."""

from collections.abc import Iterable, Iterator, Sequence

from callfuse.conversations.ledger import KeptRound, is_same_id
from callfuse.model import Round


def merged(
    rounds: Iterable[Round],
    kept: list[KeptRound],
    at: int | None,
    shift: int,
    seen: dict[int, Round],
    *,
    with_all: bool,
) -> Iterator[Round]:
    """The rounds of request and ledger, newest first; those that are both stand in `seen`. `at`: which of those kept
    the first is.

    No method of a conversation: the generator of an object that holds it keeps a request's body until the collector
    comes.
    """
    for round_ in rounds:
        if at is None and kept:
            at = find(round_, kept, shift)
        if at is None:
            yield round_
            continue
        if at + 1 < len(kept):
            yield from [one.restored() for one in reversed(kept[at + 1 :]) if not one.delivered]
        known = kept[at]
        del kept[at:]
        at = None
        seen[id(known)] = round_
        yield _joined(round_, known)
    yield from (one.restored() for one in reversed(kept) if with_all or not one.delivered)


def find(round_: Round, kept: Sequence[KeptRound], shift: int) -> int | None:
    """Which of the kept rounds this is: the one at its very place, or else, where the client has dropped some, the
    newest that is the same. Ids may be missing or repeat, so that more than one can be the same."""
    there = round_.position + shift
    for at in reversed(range(len(kept))):
        if kept[at].position == there and _same(round_, kept[at]):
            return at
    return next((at for at in reversed(range(len(kept))) if _same(round_, kept[at])), None)


def _joined(round_: Round, kept: KeptRound) -> Round:
    """A round of the request with what the ledger knows of it."""
    round_.time = kept.time
    for call, known in zip(round_.calls, kept.delivered, strict=True):
        call.place = known.place
    if len(kept.calls) == len(kept.delivered):
        return round_
    gone = tuple(call.restored() for call in kept.calls if call.withheld)
    return Round(gone + round_.calls, round_.position, kept.time)


def _same(round_: Round, kept: KeptRound) -> bool:
    """Whether a round of the request is this kept one: the same calls under the same ids, where there are ids."""
    delivered = kept.delivered
    if len(delivered) != len(round_.calls):
        return False
    for mine, known in zip(round_.calls, delivered, strict=True):
        if mine.name != known.name or not is_same_id(mine.id, known.id) or mine.signature != known.signature:
            return False
    return True
