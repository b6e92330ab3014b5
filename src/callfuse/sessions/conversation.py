"""The timeline of a request: its own history merged with what the ledger has kept of the lane.

The request gives rounds and outcomes; the ledger gives times, places on the ladder, withheld calls, and rounds that
the client has dropped. Both are read backwards and matched by (id, signature) in order, so that a replay, a client's
retry or a restarted guard neither adds nor erases evidence:

- A kept round at or behind the request's end is a try that the client did not take up: it is cut.
- A kept round from before the oldest one that the request still has was dropped by the client: it counts.
- A withheld call was never in any request: it counts where it stood.
- A history that has lost all its rounds and got shorter was compacted: what was kept counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from callfuse.dialects.base import Request
from callfuse.model import Round, Timeline, ToolCall
from callfuse.sessions.ledger import CallKey, KeptCall, KeptRound, LaneState


class Conversation:
    """One request's timeline, and the lane's state as the exchange will leave it."""

    def __init__(self, request: Request, state: LaneState, now: float) -> None:
        self._request = request
        self._state = state
        self._turn: bytes | None = None
        self._shift = 0
        self._compacted = False
        self._seen: dict[KeptRound, Round] = {}
        self._kept = self._still_valid() if state.rounds else []
        has_blocks = any(call.blocked for round_ in self._kept for call in round_.calls)
        self.timeline = Timeline(self._merged(), now, has_blocks=has_blocks)

    @property
    def notes(self) -> Mapping[CallKey, str]:
        """The texts that results of surviving calls carry."""
        return self._state.notes

    def _still_valid(self) -> list[KeptRound]:
        """The kept rounds that belong to this history, oldest first."""
        turn_at, self._turn = self._request.turn()
        kept = [round_ for round_ in self._state.rounds if round_.turn == self._turn]
        length = self._request.length
        newest = next(self._request.rounds(), None)
        if newest is None:
            self._compacted = length < self._state.length and turn_at < length - 1
            return kept if self._compacted else [one for one in kept if turn_at < one.position < length]
        at = next((at for at in reversed(range(len(kept))) if _same(newest, kept[at])), None)
        if at is None:
            return [one for one in kept if turn_at < one.position < length]
        self._shift = kept[at].position - newest.position
        later = [one for one in kept[at + 1 :] if not one.delivered and one.position - self._shift < length]
        return kept[: at + 1] + later

    def _merged(self) -> Iterator[Round]:
        """The rounds of request and ledger, newest first."""
        kept = list(self._kept)
        for round_ in self._request.rounds():
            if round_ is None:
                break
            at = next((at for at in reversed(range(len(kept))) if _same(round_, kept[at])), None)
            if at is None:
                yield round_
                continue
            yield from (one.restored() for one in reversed(kept[at + 1 :]) if not one.delivered)
            yield self._joined(round_, kept[at])
            del kept[at:]
        dropped = bool(self._shift) or self._compacted
        yield from (one.restored() for one in reversed(kept) if dropped or not one.delivered)

    def _joined(self, round_: Round, kept: KeptRound) -> Round:
        """A round of the request with what the ledger knows of it."""
        self._seen[kept] = round_
        round_.time = kept.time
        for call, known in zip(round_.calls, kept.delivered, strict=True):
            call.place = known.place
        gone = tuple(call.restored() for call in kept.calls if call.withheld)
        return Round(gone + round_.calls, round_.position, kept.time)

    def after(
        self,
        rounds: Sequence[Sequence[ToolCall]],
        notes: Sequence[tuple[ToolCall, str]],
        now: float,
        *,
        max_rounds: int,
    ) -> LaneState:
        """The lane's state with the rounds that this exchange has brought."""
        if self._turn is None:
            self._turn = self._request.turn()[1]
        kept = [self._moved(round_) for round_ in self._kept]
        for calls in rounds:
            kept_calls = tuple(
                KeptCall(
                    call.id,
                    call.name,
                    call.signature,
                    withheld=call.withheld,
                    blocked=call.blocked,
                    place=call.place,
                )
                for call in calls
            )
            kept.append(KeptRound(self._request.length, now, self._turn, kept_calls))
        texts = dict(self._state.notes)
        for call, text in notes:
            key = (call.id, call.signature)
            texts[key] = f"{texts[key]}\n\n{text}" if key in texts else text
        return LaneState(kept[-max_rounds:], dict(list(texts.items())[-max_rounds:]), self._request.length)

    def _moved(self, kept: KeptRound) -> KeptRound:
        """A kept round at its place in this request's history, with the outcomes that have been read since."""
        calls = kept.calls
        if (seen := self._seen.get(kept)) is not None:
            outcomes = iter([call.seen_outcome for call in seen.calls])
            calls = tuple(
                call if call.withheld else replace(call, outcome=next(outcomes) or call.outcome) for call in calls
            )
        return replace(kept, position=kept.position - self._shift, calls=calls)


def _same(round_: Round, kept: KeptRound) -> bool:
    """Whether a round of the request is this kept one: the same calls, under their ids or at its very place."""
    delivered = kept.delivered
    if len(delivered) != len(round_.calls):
        return False
    pairs = list(zip(round_.calls, delivered, strict=True))
    if kept.position != round_.position and any(mine.id != known.id for mine, known in pairs):
        return False
    return all(mine.name == known.name and mine.signature == known.signature for mine, known in pairs)
