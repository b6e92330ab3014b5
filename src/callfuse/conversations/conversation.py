"""The timeline of a request: its own history merged with what the ledger has kept of the lane.

The request gives rounds and outcomes; the ledger gives times, places on the ladder, withheld calls, and rounds that
the client has dropped. Both are read backwards and matched by (id, signature) in order, so that a replay, a client's
retry or a restarted guard neither adds nor erases evidence:

- A kept round at or behind the request's end is a try that the client did not take up: it is cut.
- Kept rounds among which the request's newest is not found are another run's: they are not this timeline's.
- A kept round from before the oldest one that the request still has was dropped by the client: it counts.
- A withheld call was never in any request: it counts where it stood.
- A history that has lost all its rounds and got shorter was compacted: what was kept counts. In a session that the
  client has named, that is so even where its summary stands as a user message.
- Where the vendor has the conversation and the request only what is new (a chain), all that was kept counts, and the
  results that come without their calls find them there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from callfuse.conversations.history import History
from callfuse.conversations.ledger import CallKey, KeptCall, KeptRound, LaneState
from callfuse.conversations.merging import find, merged
from callfuse.detect.same_error import may_end
from callfuse.dialects.base import Continuation, Request
from callfuse.model import MIN_WINDOW_CALLS, NOWHERE, READ_AT_ONCE, Replayed, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings

MANY: Final = 64
"""So many messages are not to be looked over twice, nor for nothing; with fewer it costs less than to prevent it."""

_NOTHING_SEEN: Final[Mapping[int, Round]] = {}


class Conversation:
    """One request's timeline, and the lane's state as the exchange will leave it.

    `named`: the client gave the session its id. `follower`: the request, if it is one to a vendor that remembers.
    `chained`: the vendor has the conversation, the request what is new.
    `brings_results`: those of the newest round have not come with a request before.
    `learned`: a lane's state worth keeping even where the exchange brings nothing: a history that the ledger does not
    know has been looked over, and shows no loop in hindsight. Once is enough.
    `notes`: the texts that results carry by what is kept of their calls; an empty one says that they carry no warning.
    """

    __slots__ = (
        "_anchor",
        "_at",
        "_has_dropped",
        "_is_calm",
        "_judged",
        "_kept",
        "_named",
        "_new_to",
        "_rounds",
        "_seen",
        "_shift",
        "_state",
        "_turn",
        "_turn_at",
        "brings_results",
        "chained",
        "history",
        "learned",
        "notes",
        "request",
        "settings",
        "timeline",
    )

    def __init__(
        self, request: Request, state: LaneState, now: float, settings: LoopSettings, *, named: bool = False
    ) -> None:
        self.request = request
        self.settings = settings
        self.brings_results = True
        self.learned: LaneState | None = None
        self.notes: Mapping[CallKey, str] = state.notes
        self._state = state
        self._named = named
        follower = request.continuing
        self.chained = follower is not None and follower.chained
        if follower is not None and state.rounds:
            calls = {call.id: call.restored for round_ in state.rounds for call in round_.delivered}
            follower.recall(calls, state.rounds[-1].turn)
        self.history = History(request, settings, 1 if state.rounds else READ_AT_ONCE)
        self._rounds = self.history.rounds
        self._turn_at = NOWHERE
        self._turn: bytes | None = None
        self._shift = 0
        self._has_dropped = False
        self._anchor: KeptRound | None = None
        self._is_calm = False
        self._judged = False
        self._seen: Mapping[int, Round] = _NOTHING_SEEN
        self._kept: Sequence[KeptRound] = ()
        self._at: int | None = None
        self._new_to = 0
        rounds, has_blocks = self._rounds, False
        if state.rounds and (kept := self._still_valid()):
            self._kept = kept
            has_blocks = True in [round_.blocked for round_ in kept]
            seen: dict[int, Round] = {}
            self._seen = seen
            both = merged(rounds, [*kept], self._at, self._shift, seen, with_all=self._has_dropped)
            rounds, self._new_to = Replayed(both, 1), self._known_to_be_new()
        self.timeline = Timeline(rounds, now, has_blocks=has_blocks, declares=request.declares, new_to=self._new_to)

    def drop_read(self) -> None:
        """Let go of the request's rounds, but for the newest and those that the ledger's are merged with, and of all
        that reading them holds; who asks for one has them read again."""
        self.history.drop(None if self._kept else 1)

    @property
    def continuation(self) -> Continuation:
        """In what the vendor's memory and the client's differ."""
        return self._state.continuation

    @property
    def session(self) -> str:
        """What logs call the session, where it is known by another name than its lane."""
        return self._state.session

    @property
    def is_merged(self) -> bool:
        """Whether the ledger has rounds of this timeline."""
        return bool(self._kept)

    def known_to(self, newest: Round) -> tuple[int, int]:
        """How many messages of the history, of which this is the newest round, were looked over before and showed no
        loop in hindsight, and how many were judged as well and showed none to be warned of."""
        state = self._state
        if self.chained or self._shift or not state.examined:
            return NOWHERE, NOWHERE
        if self._at is None:
            self._anchor = self._recognised(newest)
            if self._anchor is None:
                return NOWHERE, NOWHERE
        return state.examined, state.examined if state.judged else NOWHERE

    def looked_over(self, newest: Round | None, *, is_calm: bool, judged: bool) -> None:
        """Take note that the history up to its newest round was looked over: whether it shows no loop in hindsight
        (`is_calm`), and no call that is to be warned of where it was `judged` for these."""
        self._is_calm, self._judged = is_calm, judged
        state, length = self._state, self.request.length
        if newest is None or not is_calm or length < MANY or state.rounds or self._anchor or self.chained:
            return
        turn_at, turn = self.request.turn(newest.position)
        if self._rounds.at(0) is newest:
            self._turn_at, self._turn = turn_at, turn
        self._anchor = _kept(newest.calls, newest.position, None, turn)
        self.learned = replace(
            state, length=length, turn_at=turn_at, examined=length, judged=judged, anchor=self._anchor
        )

    def _recognised(self, newest: Round) -> KeptRound | None:
        """What the ledger has of the newest round, where that is of no timeline that it has rounds of."""
        kept = self._state.rounds if self._state.anchor is None else (self._state.anchor, *self._state.rounds)
        there = [one for one in kept if one.position == newest.position]
        at = find(newest, there, 0)
        if at is None:
            return None
        last = self._state.turn_at
        if 0 <= last < newest.position and self.request.turn(last + 1)[1] == there[at].turn:  # mostly: and no walk
            return there[at]
        return there[at] if self.request.turn(newest.position)[1] == there[at].turn else None

    def _still_valid(self) -> list[KeptRound]:
        """The kept rounds that belong to this history, oldest first."""
        length = self.request.length
        newest = self._rounds.at(0)
        if newest is None:
            self._turn_at, self._turn = self.request.turn()
            if self.chained:
                return []
            return self._compacted(self._turn_at, self._turn)
        last, at = self._state.turn_at, None
        if 0 <= last < newest.position and not self.chained:  # no walk where all goes on as it was
            kept, at = self._of_turn(newest, last + 1)
        if at is None or kept[at].position != newest.position:
            kept, at = self._of_turn(newest)
        if at is None:
            return []
        self._at, self._shift = at, kept[at].position - newest.position
        self._has_dropped = self.chained or self._shift != 0
        self.brings_results = all(call.outcome is None for call in kept[at].delivered)
        later = [one for one in kept[at + 1 :] if not one.delivered and one.position - self._shift < length]
        return kept[: at + 1] + later

    def may_fail_again(self, rounds: Timeline | Replayed[Round] | None = None) -> bool:
        """Whether a streak of one error may end with the newest round of the timeline, or of these: False is sure, and
        mostly known without a look at results."""
        shortest, past = self.settings.shortest_streak, rounds or self.timeline
        if not shortest:
            return False
        if self._new_to:  # then all these rounds are kept
            kept = self._kept[-min(shortest, MIN_WINDOW_CALLS) :]
            if len({call.name for one in kept for call in one.delivered}) > 1:
                return False
            if len(self._kept) < shortest and not self._state.complete_from:
                return False
        elif past.at(shortest - 1) is None:
            return False
        return may_end(past, self.settings)

    def _known_to_be_new(self) -> int:
        """In a window of so many rounds, those that are kept show that no call of the newest round has come before.

        Most rounds of most histories need then not be read. 0 where nobody knows: where not all goes on as it was.
        """
        newest, last, size = self._rounds.at(0), self._state.rounds[-1], self.settings.reach
        if newest is None or self._shift or self.chained or self._at is None or self._kept[self._at] is not last:
            return 0
        most = max(size, MIN_WINDOW_CALLS)
        before = self._kept[-1 - most : -1]
        if len(before) < most:
            is_whole = self._state.complete_from == 0
        else:
            is_whole = before[0].position >= self._state.complete_from and () not in [one.delivered for one in before]
        if not is_whole or last.delivered != last.calls:
            return 0
        calls = [call for one in before for call in one.calls]
        if "" in [call.name for call in calls]:  # which fills no window
            return 0
        ids = {"", *[call.id for call in calls]}
        for call in newest.calls:
            if not call.name or call.id in ids or call.ignore:  # nothing may have been ignored when those were kept
                return 0
        return size if newest.signatures.isdisjoint([call.signature for call in calls]) else 0

    def _of_turn(self, newest: Round, end: int | None = None) -> tuple[list[KeptRound], int | None]:
        """The kept rounds since the last real user message before `end`, and which of them is the request's newest."""
        self._turn_at, self._turn = self.request.turn(end)
        kept = [round_ for round_ in self._state.rounds if round_.turn == self._turn]
        return kept, find(newest, kept, 0)

    def _compacted(self, turn_at: int, turn: bytes) -> list[KeptRound]:
        """What of the kept rounds belongs to a history without rounds."""
        length = self.request.length
        kept = [one for one in self._state.rounds if one.turn == turn]
        is_shorter = length < self._state.length
        if is_shorter and not kept and self._named:
            last = self._state.rounds[-1].turn
            kept = [replace(one, turn=turn) for one in self._state.rounds if one.turn == last]
        elif not is_shorter or turn_at == length - 1:
            return [one for one in kept if turn_at < one.position < length]
        self._has_dropped = True
        return kept

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
            self._turn_at, self._turn = self.request.turn()
        newest = self._rounds.at(0)
        if newest is not None and self.chained:
            _ = [call.outcome for call in newest.calls]  # read now: no later request holds its results
        seen, kept = self._seen, [*self._kept[-max_rounds:]]
        complete_from = max(0, self._state.complete_from - self._shift) if kept else 0
        if newest is not None and self._shift < 0:
            complete_from = newest.position  # something has come in before it
        if self.chained:
            complete_from = self.request.length + 1  # nobody knows what the vendor has
        if seen or self._shift:
            kept = [self._moved(round_) if self._shift or id(round_) in seen else round_ for round_ in kept]
        if newest is not None and not kept:
            kept.append(_kept(newest.calls, newest.position, None, self._turn))
            complete_from = newest.position
        kept += [_kept(calls, self.request.length, now, self._turn) for calls in rounds]
        if len(kept) >= max_rounds:
            kept = kept[-max_rounds:]
            complete_from = max(complete_from, kept[0].position)
        texts = dict(self._state.notes)
        for call, text in notes:
            key = (call.id, call.signature, sum(1 for _ in self.history.calls_alike(call.id, call.signature)))
            before = texts.get(key, "")
            if key not in texts or text not in before:  # a client that tries again without ids
                texts[key] = f"{before}\n\n{text}" if before else text
        length = self.request.length
        return LaneState(
            tuple(kept),
            dict(list(texts.items())[-max_rounds:]),
            length,
            self._turn_at,
            examined=length if self._is_calm else 0,
            judged=self._judged,
            complete_from=complete_from,
            anchor=self._anchor if newest is None else None,
        )

    def _moved(self, kept: KeptRound) -> KeptRound:
        """A kept round at its place in this request's history, with the outcomes that have been read since."""
        seen = self._seen.get(id(kept))
        outcomes = [call.seen_outcome for call in seen.calls] if seen else []
        if not self._shift and not any(outcomes):
            return kept
        read = iter(outcomes)
        calls = tuple(
            call if call.withheld or not outcomes else call._replace(outcome=next(read) or call.outcome)
            for call in kept.calls
        )
        return replace(kept, position=kept.position - self._shift, calls=calls)


def _kept(calls: Sequence[ToolCall], position: int, time: float | None, turn: bytes) -> KeptRound:
    """A round as the ledger keeps it."""
    kept = tuple(
        KeptCall(
            call.id,
            call.name,
            call.signature,
            outcome=call.seen_outcome,
            withheld=call.withheld,
            blocked=call.blocked,
            place=call.place,
            namespace=call.namespace,
        )
        for call in calls
    )
    return KeptRound(position, time, turn, kept)
