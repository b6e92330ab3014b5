"""One request's timeline: its own history merged with what the ledger has kept of the lane.

Two rules:

- Evidence is read by a rule, never by the way. A result is read (normalised, digested) the first time that it appears
  in a request as the newest round's, and its outcome is kept in the ledger from then on, whatever the client shows in
  its place later. Results of rounds that the ledger does not know are read when a detector asks for them. So no
  verdict depends on who has looked: the same conversation shown whole, cut, compacted or one round at a time gives
  the same verdicts.
- Nothing here is lazy but outcomes: rounds are plain lists, built once a request.

Theory of operation. The request gives rounds and outcomes; the ledger gives times, steps on the ladder, withheld calls,
outcomes that have been read, and rounds that the client has dropped. Both are walked backwards and matched by (id,
signature) in order, so that a replay, a client's retry or a restarted guard neither adds nor erases evidence:

- A kept round at or behind the request's end is a try that the client did not take up: it is left out.
- Kept rounds among which the request's newest is not found belong to another timeline, unless the history has been
  rewritten: then the newest round stands behind another user message than it was made for, and behind a summary or
  nearer to the beginning than before.
- Calls without ids are told by their signatures and their order: rounds before one that both know are matched in order,
  wherever they stand. An answer to the same request once more may be a try, or the next round of a client that shows
  only its newest rounds. A result that has changed, if only by a time, shows that the call has run again; else the
  first few count as tries, and all of them once there are more.
- A kept round from before the oldest one that the request still has was dropped by the client: it counts.
- A withheld call was never in any request: it counts where it stood. One that was blocked before the last user message
  is remembered (`conversations/blocks.py`), until a conversation without a session's id begins afresh.
- A history that has lost all its rounds was compacted if it got shorter, or if a summary in the words of a known
  harness is its last user message: what was kept counts. In a session that the client has named, any shorter history
  was compacted, whatever its last user message says. Another summary is another compaction, the same one a try.
- A round whose time is unknown counts as recent. Of a lane that the ledger has forgotten it knows when that was last
  used, and no round that the request still has is younger: what is older than the ledger's memory is old.
- Where the vendor has the conversation and the request only what is new (a chain), all that was kept counts, and the
  results that come without their calls find them there.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from callfuse.conversations.blocks import after_round, earlier_blocks, is_typed_since, remember, with_last_outcomes
from callfuse.conversations.ledger import (
    NO_BLOCKS,
    BlockMemory,
    CallKey,
    KeptCall,
    KeptRound,
    LaneState,
    Told,
    is_same_id,
)
from callfuse.dialects.base import Request
from callfuse.dialects.history import digest_of
from callfuse.harness import is_summary
from callfuse.model import NOWHERE, Delivery, PastCall, Round, Timeline, ToolCall
from callfuse.model.ids import bounded_id
from callfuse.model.outcomes.normalise import normalise
from callfuse.model.signature import Signature
from callfuse.policy.ignored import ignore_in_rounds
from callfuse.policy.settings import LoopSettings

LONGEST_NOTE: Final = 8192
"""Characters of the texts that are kept for one call. callfuse's own are a few hundred long."""

LONGEST_AUTOMATIC: Final = 2000
"""Characters of a user message up to which its numbers do not count where messages are compared."""


@dataclass(frozen=True, slots=True)
class LaneEvidence:
    """What an exchange needs to keep of its conversation until its answer has come: nothing of the request itself.

    `state` is the lane's state as it was; `rounds` are those of this timeline with all outcomes read so far, oldest
    first, at their places in this request; `length` is the number of messages in the request, `turn` the digest of its
    last real user message. `is_new`: a result has been read that the ledger does not have. `blocks`: what the lane
    remembers of its blocks, `said` what identifies the text of that user message there, if there are any. `left`:
    rounds of other exchanges that are left out here, so that the lane has to remember what was blocked in them. `told`:
    findings that the model knows of and has not answered yet; `spoken`: a person has spoken since.
    """

    state: LaneState
    rounds: tuple[KeptRound, ...]
    length: int
    turn: bytes
    is_new: bool
    blocks: BlockMemory = NO_BLOCKS
    left: tuple[KeptRound, ...] = ()
    said: tuple[bytes, ...] = ()
    told: tuple[Told, ...] = ()
    spoken: bool = False

    def after(
        self,
        rounds: Sequence[Sequence[PastCall]],
        notes: Sequence[tuple[CallKey, str]],
        now: float,
        *,
        max_rounds: int,
        conversation: "Conversation | None" = None,
        told: Sequence[Told] = (),
    ) -> LaneState:
        """The lane's state with the rounds that the exchange has brought, delivered `now` (seconds), and the texts that
        calls carry; at most `max_rounds` of each, the newest. `conversation`: that of the exchange, needed if a call
        was blocked. `told`: findings that the model knows of now and has not answered yet."""
        brought = [keep_round(calls, self.length, now, self.turn) for calls in rounds]
        blocks = self.blocks
        if blocks.count or any(one.blocked for one in brought):
            window: Collection[Signature] = ()
            said = self.said
            if conversation is not None:
                past, said = conversation.timeline, conversation.said
                window = past.window(conversation.settings.window)
                brought = [with_last_outcomes(one, past, blocks) if one.blocked else one for one in brought]
            blocks = remember(self._blocks_after(brought, window, said, now), self.left)
        kept = [*self.rounds, *brought]
        texts = dict(self.state.notes)
        for key, text in notes:
            texts[key] = _with_text(texts[key], text) if key in texts else text[:LONGEST_NOTE]
        return LaneState(
            tuple(kept[-max_rounds:]),
            dict(list(texts.items())[-max_rounds:]),
            self.length,
            session=self.state.session,
            blocks=blocks,
            told=tuple(told),
        )

    def _blocks_after(
        self, brought: Sequence[KeptRound], window: Collection[Signature], said: Sequence[bytes], now: float
    ) -> BlockMemory:
        """What the lane remembers of its blocks after these rounds; `window`: that before them, newest first. `said`:
        what identifies the text of the last user message."""
        blocks = self.blocks
        for one in brought:
            blocks = after_round(blocks, one, window if one.blocked else (), said, now)
        return replace(blocks, said=said[-1]) if said else blocks


def _with_text(before: str, text: str) -> str:
    """The texts of a call with one more, as of a client that tries again without ids; as they are if they have it, or
    no room for it."""
    joined_length = len(before) + len("\n\n") + len(text)
    if joined_length > LONGEST_NOTE or text in before:
        return before
    return f"{before}\n\n{text}" if before else text


class Conversation(NamedTuple):
    """One request's history and timeline.

    `timelines`: the rounds of the request, parted at its real user messages, the newest timeline first (which may be
    empty) and newest round first. `timeline` is the first of them merged with the ledger. `chained`: the vendor has the
    conversation, the request only what is new. `brings_results`: the newest round's have come for the first time.
    `turn_at`: the position of the last user message.
    """

    request: Request
    settings: LoopSettings
    timelines: list[list[Round]]
    timeline: Timeline
    evidence: LaneEvidence
    chained: bool
    brings_results: bool
    turn_at: int

    @property
    def said(self) -> tuple[bytes, ...]:
        """What identifies the text of the last user message."""
        known = self.evidence
        return known.said or _said(self.request, self.turn_at, known.turn, known.blocks, chained=self.chained)


def read_conversation(
    request: Request,
    state: LaneState,
    now: float,
    settings: LoopSettings,
    *,
    named: bool = False,
    begun_with: LaneState | None = None,
) -> Conversation:
    """The conversation of a request, as the ledger's `state` of its lane completes it. `named`: the client gave the
    session its id; `now` is in seconds. `begun_with`: the state that its exchange has begun with, where other
    exchanges have written meanwhile: what these have blocked, a request that begins a conversation does not end."""
    chain = request.chain
    chained = chain is not None and chain.chained
    if chain is not None and state.rounds:
        chain.recall(_KeptCalls(state.rounds), state.rounds[-1].turn)
    timelines = _timelines(request.rounds())
    for rounds in timelines:
        ignore_in_rounds(rounds, settings)
    _date(timelines[0], state.last_used)
    view = _view_of(request, timelines[0], state, chained=chained, named=named)
    match = _match(view, state, request) if state.rounds else _NOTHING
    merged, kept, is_new = _merge(view, match)
    if view.rounds and not kept:
        newest = view.rounds[0]
        kept = [keep_round(newest.calls, newest.position, newest.time, view.turn)]
        is_new = kept[0].has_outcomes
    has_blocks = True in [round_.blocked for round_ in match.kept]
    blocks = _remembered_blocks(view, match, state, request, begun_with) if state.blocks.count else NO_BLOCKS
    earlier = earlier_blocks(blocks)
    declares = request.declares if request.lists_tools else None
    return Conversation(
        request,
        settings,
        timelines,
        Timeline(merged, now, has_blocks=has_blocks, declares=declares, earlier_blocks=earlier),
        LaneEvidence(
            state,
            tuple(kept),
            request.length,
            view.turn,
            is_new=is_new,
            blocks=blocks,
            left=_left_of_others(match, state, begun_with),
            said=_said_for(blocks, view, request),
            told=_still_told(view, match, state, request) if state.told else (),
            spoken=bool(state.told and state.rounds and not match.kept) and view.turn != state.rounds[-1].turn,
        ),
        chained,
        brings_results=_brings_results(view, match),
        turn_at=view.turn_at,
    )


def _date(rounds: Iterable[Round], last_used: float | None) -> None:
    """Give rounds of a lane that the ledger has forgotten the time when that was last used (None: it has not)."""
    if last_used is not None:
        for round_ in rounds:
            round_.time = last_used


class _KeptCalls(Mapping[str, Callable[[], ToolCall]]):
    """The delivered calls of kept rounds, by their whole ids: how to make each."""

    def __init__(self, rounds: Iterable[KeptRound]) -> None:
        self._calls = {call.id: call for round_ in rounds for call in round_.delivered}

    def __getitem__(self, id_: str) -> Callable[[], ToolCall]:
        return partial(self._calls[bounded_id(id_)].call, id_)

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)


def _brings_results(view: "_RequestView", match: "_Match") -> bool:
    """Whether the results of the newest round have come for the first time."""
    if match.at is None:
        return bool(view.rounds) or not view.chained
    return match.first > 0 or not match.kept[match.at].has_outcomes


def _timelines(history: Iterable[Round | None]) -> list[list[Round]]:
    """The rounds of a history (newest first, None for a real user message), parted at its real user messages. Older
    timelines without a round are left out."""
    rounds: list[Round] = []
    timelines = [rounds]
    for round_ in history:
        if round_ is not None:
            rounds.append(round_)
        elif rounds or len(timelines) == 1:
            rounds = []
            timelines.append(rounds)
    return timelines if rounds or len(timelines) == 1 else timelines[:-1]


class _Match(NamedTuple):
    """The kept rounds that belong to a request, oldest first.

    `kept[at]` is the request's round number `first`, counted from the newest (`at` None: the request has none of them);
    rounds newer than that are not in the ledger. `shift`: kept position minus request position of that round.
    `dropped_to`: a kept round that the request lacks was dropped by the client, and counts, if its shifted position is
    at most this.
    """

    kept: Sequence[KeptRound] = ()
    at: int | None = None
    first: int = 0
    shift: int = 0
    dropped_to: int = NOWHERE - 1


_NOTHING: Final = _Match()
MOST_TRIES: Final = 3
"""Answers to one request, without ids and all with the call that it shows, that may be tries of its client. After more
of them, or where it has dropped rounds before, the client is taken for one that shows only its newest rounds: nothing
else tells the two apart."""
MOST_UNKNOWN: Final = 16
"""How many of the newest rounds are searched for one that the ledger knows."""


class _RequestView(NamedTuple):
    """The newest timeline as the request has it.

    `rounds`: newest first. `unique`: ids that only one call has (empty if the ledger has no rounds). `length`: messages
    in the request. `turn_at`, `turn`: position and digest of its last user message. `chained`: the vendor has the rest.
    `named`: the client sent a session id.
    """

    rounds: Sequence[Round]
    unique: Set[str]
    length: int
    turn_at: int
    turn: bytes
    chained: bool
    named: bool


def _view_of(
    request: Request, rounds: Sequence[Round], state: LaneState, *, chained: bool, named: bool
) -> _RequestView:
    """Make the view of a request whose newest timeline has these rounds."""
    turn_at, turn = request.last_user_message(rounds[-1].position if rounds and not chained else None)
    unique = _unique_ids(rounds) if state.rounds else frozenset[str]()
    return _RequestView(rounds, unique, request.length, turn_at, turn, chained, named)


def _match(view: _RequestView, state: LaneState, request: Request) -> _Match:
    """Match the ledger's rounds (at least one) with the rounds of a request."""
    kept = [round_ for round_ in state.rounds if round_.turn == view.turn]
    if not view.rounds:
        return _match_chained(view, kept) if view.chained else _match_compacted(view, kept, state, request)
    anchor = _anchor(view, kept)
    if anchor is None:  # a summary may have taken the place of the user message
        kept = _of_last_turn(state, view.turn)
        anchor = _anchor_behind_summary(view, kept, request)
    return _NOTHING if anchor is None else _match_at(view, kept, *anchor)


def _match_at(view: _RequestView, kept: list[KeptRound], first: int, at: int) -> _Match:
    """Match the kept rounds with a request whose round number `first` is `kept[at]`."""
    tries = _equal_tries(view, kept, at) if first == 0 else []
    if tries and len(tries) > (0 if _goes_on(view, kept, at) else MOST_TRIES):
        kept = [*kept[:at], *_one_behind_another([kept[at], *tries])]
        at, tries = len(kept) - 1, []
    shift = kept[at].position - view.rounds[first].position
    later = [one for one in kept[at + 1 :] if not one.delivered and one.position - shift < view.length]
    dropped_to = view.length if view.chained or shift else view.turn_at
    return _Match([*kept[: at + 1], *later, *tries], at, first, shift, dropped_to)


def _equal_tries(view: _RequestView, kept: Sequence[KeptRound], at: int) -> list[KeptRound]:
    """The answers to this same request, whose newest round is `kept[at]`, that no id tells from that round. They may be
    tries that the client did not take up, or the rounds of a client that shows only its newest one."""
    newest = view.rounds[0]
    answered = view.length + kept[at].position - newest.position
    return [one for one in kept[at + 1 :] if one.position == answered and one.delivered and _is_same(newest, one)]


def _goes_on(view: _RequestView, kept: Sequence[KeptRound], at: int) -> bool:
    """Whether the request, whose newest round is `kept[at]`, cannot be a try: the client has dropped rounds of this
    timeline before, as none could stand where the ledger has them, or the calls have brought something else since, if
    only another time, so that they have run again."""
    if at > 0 and kept[0].position - kept[at].position + view.rounds[0].position <= view.turn_at:
        return True
    pairs = zip(view.rounds[0].calls, kept[at].delivered, strict=True)
    return any(None not in (mine.outcome, known.outcome) and mine.outcome != known.outcome for mine, known in pairs)


def _one_behind_another(rounds: Sequence[KeptRound]) -> list[KeptRound]:
    """Rounds at the places that they have in a history which shows them all, each with its results behind it."""
    begin = rounds[0].position
    return [replace(one, position=begin + 2 * number) for number, one in enumerate(rounds)]


def _anchor_behind_summary(view: _RequestView, kept: Sequence[KeptRound], request: Request) -> tuple[int, int] | None:
    """The same as `_anchor` of a request whose user message was not that of the kept rounds: its newest round, known by
    its ids, or behind a summary and in a session that the client has named, as the last one that was delivered there.

    It stands nearer to the beginning than before, unless a harness has said that it has put a summary there."""
    newest = view.rounds[0]
    summed = _is_summed(view, request)
    if (view.named or summed) and not any(one.id for one in newest.calls):
        at = next((at for at in range(len(kept) - 1, -1, -1) if kept[at].delivered), None)
        at = None if at is None or not _is_same(newest, kept[at]) else at
    else:
        at = _find(newest, kept, 0, view.unique, only_known=True)
    if at is None or not (summed or newest.position < kept[at].position):
        return None
    return 0, at


def _is_summed(view: _RequestView, request: Request) -> bool:
    """Whether the last user message is a summary in the words of a harness that has compacted its history."""
    typed = request.typed_message(view.turn_at) if view.turn_at >= 0 else None
    return typed is not None and bool(typed.texts) and all(is_summary(one.text) for one in typed.texts)


def _anchor(view: _RequestView, kept: Sequence[KeptRound]) -> tuple[int, int] | None:
    """The newest round that the ledger knows: its indexes in the request and among the kept rounds.

    Of an answer that could not be recorded (several choices, a limit) the ledger does not have the round.
    """
    for first, round_ in enumerate(view.rounds[:MOST_UNKNOWN]):
        at = _find(round_, kept, 0, view.unique, only_known=first > 0)
        if at is not None:
            return first, at
    return None


def _match_chained(view: _RequestView, kept: list[KeptRound]) -> _Match:
    """Match the kept rounds with a request of a chain that has no rounds: a reminder, or a message of a person, behind
    which nothing is kept."""
    return _Match(kept, shift=kept[-1].position + 1, dropped_to=view.length) if kept else _NOTHING


def _match_compacted(view: _RequestView, kept: list[KeptRound], state: LaneState, request: Request) -> _Match:
    """Match the kept rounds with a request that has no rounds. Those that the client has dropped stand before its user
    message from then on."""
    is_shorter = view.length < state.length
    summed = _is_summed(view, request)
    if not kept and (summed or (is_shorter and view.named)):
        kept = _of_last_turn(state, view.turn)
    elif not (kept and is_shorter) or view.turn_at == view.length - 1:
        return _Match(
            [one for one in kept if (summed or view.turn_at < one.position) and one.position < view.length],
            dropped_to=view.turn_at if summed else NOWHERE - 1,
        )
    return _Match(kept, shift=kept[-1].position - view.turn_at, dropped_to=view.turn_at)


def _of_last_turn(state: LaneState, turn: bytes) -> list[KeptRound]:
    """The kept rounds of the newest user message, as if they had been made for that with the digest `turn`."""
    last = state.rounds[-1].turn
    return [replace(one, turn=turn) for one in state.rounds if one.turn == last]


def _merge(view: _RequestView, match: _Match) -> tuple[list[Round], list[KeptRound], bool]:
    """The rounds of request and ledger, newest first; the kept rounds as they stand then, oldest first; and whether a
    result was read that the ledger did not have."""
    if not match.kept:
        return [*view.rounds], [], False
    places = _places(view, match)
    rounds: list[Round] = [*view.rounds[: match.first]]
    kept: list[KeptRound] = []
    read_any = match.first > 0
    end = len(match.kept)
    for round_, at in zip(view.rounds[match.first :], places, strict=True):
        if at is None:
            rounds.append(round_)
            continue
        if at + 1 < end:
            between = _taken_up(match.kept, at + 1, end)
            kept += between
            rounds += [one.past() for one in between if not one.delivered]
        known, read = _complete(round_, match.kept[at], view.unique, newest=round_ is view.rounds[0])
        read_any |= read
        kept.append(known)
        rounds.append(round_ if len(known.calls) == len(known.delivered) else _with_withheld(round_, known))
        end = at
    for one in _taken_up(match.kept, 0, end):
        kept.append(one)
        if one.position - match.shift <= match.dropped_to or not one.delivered:
            rounds.append(one.past())
    if match.shift:
        kept = [replace(one, position=one.position - match.shift) for one in kept]
    kept.reverse()
    kept += [keep_round(one.calls, one.position, None, view.turn) for one in view.rounds[: match.first][::-1]]
    return rounds, kept, read_any


def _taken_up(kept: Sequence[KeptRound], begin: int, end: int) -> list[KeptRound]:
    """The kept rounds from `begin` on, newest first, without tries in place of which the client took up `kept[end]`."""
    rounds = [*kept[begin:end]][::-1]
    if rounds and end < len(kept):
        place = kept[end].position
        return [one for one in rounds if one.position != place or not one.delivered]
    return rounds


def _places(view: _RequestView, match: _Match) -> list[int | None]:
    """Where the rounds of a request, from `first` on, stand among the kept ones: falling indexes, None for a round that
    the ledger does not know."""
    left = [*match.kept]
    known = {tuple([call.signature for call in one.delivered]) for one in left}
    places: list[int | None] = []
    at = match.at
    for round_ in view.rounds[match.first :]:
        if at is None and left and tuple([call.signature for call in round_.calls]) in known:
            at = len(left) - 1  # as nearly always
            if left[at].position != round_.position + match.shift or not _is_same(round_, left[at]):
                at = _find_in_order(round_, left, match.shift, view.unique)
        places.append(at)
        if at is not None:
            del left[at:]
        at = None
    return places


def _said(request: Request, turn_at: int, turn: bytes, blocks: BlockMemory, *, chained: bool) -> tuple[bytes, ...]:
    """What identifies the text of the user message at `turn_at`: its digest `turn`, which in a chain holds the place as
    well, and then that of the text alone, without the numbers and times in it, which is known from before where the
    request does not hold it."""
    typed = request.typed_message(turn_at) if turn_at >= 0 else None
    if typed is not None:
        return turn, digest_of(map(_without_numbers, (one.text for one in typed.texts)))
    return (turn, blocks.said) if chained and blocks.said else (turn,)


def _said_for(blocks: BlockMemory, view: _RequestView, request: Request) -> tuple[bytes, ...]:
    """What a lane that remembers blocks needs to know of the last user message; empty for any other."""
    return _said(request, view.turn_at, view.turn, blocks, chained=view.chained) if blocks.count else ()


def _without_numbers(text: str) -> bytes:
    """A text for comparison: harnesses count what they say, or say when. A long one, or one of nothing else, is as it
    is."""
    if len(text) > LONGEST_AUTOMATIC or not any(map(str.isalpha, text)):
        return text.encode("utf-8", "surrogatepass")
    return normalise(text)


def _begins_anew(view: _RequestView, state: LaneState, request: Request) -> bool:
    """Whether a request is the beginning of a new conversation: no model has said anything in it. In a named session it
    may be a summary: then its text is new."""
    if view.chained or view.rounds or not _is_unanswered(request) or _is_summed(view, request):
        return False
    return not view.named or view.turn in state.blocks.turns


def _has_dropped_all(view: _RequestView, state: LaneState, request: Request) -> bool:
    """Whether a harness has dropped the answers from its history and goes on: behind the task it says what it has said
    before."""
    if view.chained or view.rounds or not _is_unanswered(request):
        return False
    typed = [at for at in range(request.length) if request.typed_message(at) is not None]
    return len(typed) > 1 and not is_typed_since(
        state.blocks, _said(request, view.turn_at, view.turn, state.blocks, chained=view.chained)
    )


def _is_unanswered(request: Request) -> bool:
    """Whether nothing in a request was said by a model yet."""
    return not any(request.rounds()) and all(request.own_text(at) is None for at in range(request.length))


def _still_told(view: _RequestView, match: _Match, state: LaneState, request: Request) -> tuple[Told, ...]:
    """What the model was told and has not answered yet, at its place in this request: nothing at the beginning of a new
    conversation, and nothing of an answer that the client did not take up, so that it sends the same request again."""
    if _begins_anew(view, state, request):
        return ()
    if not match.kept:
        return state.told
    there = {one.position for one in match.kept}
    return tuple([one._replace(position=one.position - match.shift) for one in state.told if one.position in there])


def _remembered_blocks(
    view: _RequestView, match: _Match, state: LaneState, request: Request, begun_with: LaneState | None
) -> BlockMemory:
    """What the lane remembers of its blocks, with those that the last user message of this request has ended.

    A try that the client did not take up was made for the same user message, so none of it is ended. The beginning of a
    new conversation ends all, but not what others have blocked since it has begun.
    """
    dropped = _has_dropped_all(view, state, request)
    ends_all = begun_with is None or begun_with.blocks == state.blocks
    if ends_all and not dropped and _begins_anew(view, state, request):
        return NO_BLOCKS
    current = {one.position for one in match.kept}
    ended = [
        one
        for one in state.rounds
        if one.position not in current and (dropped or not (one.turn == view.turn and one.position > view.turn_at))
    ]
    return remember(state.blocks, ended)


def _left_of_others(match: _Match, state: LaneState, begun_with: LaneState | None) -> tuple[KeptRound, ...]:
    """The rounds that other exchanges have brought since this one has begun, and that its request leaves out: they are
    no tries of its client."""
    if begun_with is None:
        return ()
    known = {id(one) for one in match.kept}
    return tuple([one for one in state.rounds if id(one) not in known and one not in begun_with.rounds])


def _find(
    round_: Round,
    kept: Sequence[KeptRound],
    shift: int,
    unique: Set[str],
    *,
    only_known: bool = False,
) -> int | None:
    """The index of the kept round that is this one: the one at the same position, else the newest equal one; None if
    there is none.

    Ids may be missing or repeat (`unique`: those that do not in this request), so several kept rounds can be equal. An
    equal round at a position before this one, or with `only_known` at any other position, is accepted only if its ids
    identify it: it may be another round with an equal call.
    """
    there = round_.position + shift
    if kept and kept[-1].position == there and _is_same(round_, kept[-1]):  # as nearly always, walking backwards
        return len(kept) - 1
    for at in range(len(kept) - 1, -1, -1):
        if kept[at].position == there and _is_same(round_, kept[at]):
            return at
    same = [at for at in range(len(kept)) if _is_same(round_, kept[at])]
    if not same:
        return None
    is_known = len(same) == 1 and unique >= {one.id for one in round_.calls}
    return same[-1] if is_known or (kept[same[-1]].position > there and not only_known) else None


def _find_in_order(round_: Round, kept: Sequence[KeptRound], shift: int, unique: Set[str]) -> int | None:
    """As `_find`, of a round before one that is known to be the one behind `kept`: then the newest equal one is it."""
    at = _find(round_, kept, shift, unique)
    if at is not None:
        return at
    return next((at for at in range(len(kept) - 1, -1, -1) if _is_same(round_, kept[at])), None)


def _unique_ids(rounds: Sequence[Round]) -> Set[str]:
    """The ids that only one call of these rounds has."""
    ids = [call.call.id for round_ in rounds for call in round_.calls]
    unique = {*ids}
    if len(unique) == len(ids):  # as nearly always
        unique.discard("")
        return unique
    counts = Counter(ids)
    return {id_ for id_, count in counts.items() if count == 1 and id_}


def _is_same(round_: Round, kept: KeptRound) -> bool:
    """Whether a round of the request is this kept one: the same calls under the same ids, where there are ids."""
    calls, delivered = round_.calls, kept.delivered
    if len(delivered) != len(calls):
        return False
    if len(calls) == 1:
        return _is_same_call(calls[0].call, delivered[0])
    return all(_is_same_call(mine.call, known) for mine, known in zip(calls, delivered, strict=True))


def _is_same_call(call: ToolCall, known: KeptCall) -> bool:
    return (
        (call._signature or call.signature) == known.signature
        and (call.name == known.name or bounded_id(call.name) == known.name)
        and (call.id == known.id or is_same_id(bounded_id(call.id), known.id))
    )


def _complete(round_: Round, kept: KeptRound, unique: Set[str], *, newest: bool) -> tuple[KeptRound, bool]:
    """Give a round of the request what the ledger knows of it: its time, steps and outcomes. Returns the kept round
    with the outcomes of results that have come since, and whether there were any.

    The result of a call without an id is read as long as its round is the newest: it may have run again there.
    """
    round_.time = kept.time
    read_any = False
    calls: list[KeptCall] = []
    for mine, known in zip(round_.calls, kept.delivered, strict=True):
        mine.step = known.step
        if known.outcome is not None:
            may_be_another = newest and not mine.call.id
            mine.recall(known.outcome, certain=mine.call.id in unique or not (mine.call.id or newest))
            if may_be_another and mine.outcome is not None and mine.outcome != known.outcome:
                read_any = True
                known = known._replace(outcome=mine.outcome)
        elif mine.outcome is not None:
            read_any = True
            known = known._replace(outcome=mine.outcome)
        calls.append(known)
    if not read_any:
        return kept, False
    delivered = iter(calls)
    return replace(kept, calls=tuple([one if one.withheld else next(delivered) for one in kept.calls])), True


def _with_withheld(round_: Round, kept: KeptRound) -> Round:
    """A round of the request with the calls that were withheld beside its own."""
    gone = tuple([call.past() for call in kept.calls if call.withheld])
    return Round(gone + round_.calls, round_.position, kept.time)


def keep_round(calls: Sequence[PastCall], position: int, time: float | None, turn: bytes) -> KeptRound:
    """A round as the ledger keeps it, its results read. `position` is its message's place in the history, `turn` the
    digest of the user message that it was made for."""
    kept = [
        KeptCall(
            bounded_id(one.id),
            bounded_id(one.name),
            one.signature,
            one.outcome,
            Delivery.DELIVERED if one.delivery is Delivery.DROPPED else one.delivery,
            one.step,
            bounded_id(one.call.namespace),
        )
        for one in calls
    ]
    return KeptRound(position, time, turn, tuple(kept))
