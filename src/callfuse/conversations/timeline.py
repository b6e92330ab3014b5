"""One request's timeline: its own history merged with the lane's state in the ledger.

Two rules:

- When evidence is read follows a rule, not chance. A result is read (normalised, digested) the first time that it
  appears in a request as the newest round's. Its outcome is kept in the ledger from then on, whatever the client sends
  in its place later. Results of rounds that the ledger does not have are read when a detector needs them. So verdicts
  do not depend on earlier reads: the same conversation sent whole, cut, compacted or one round at a time gets the same
  verdicts.
- Only outcomes are lazy: rounds are plain lists, built once for each request.

Theory of operation. The request has rounds and outcomes; the ledger has times, steps on the ladder, withheld calls,
outcomes that have been read, and rounds that the client has dropped. Both are walked backwards and matched
(`conversations/matching.py`), so that a replay, a client's retry or a restarted guard neither adds nor erases evidence:

- A kept round from before the oldest round of the request was dropped by the client: it counts.
- A withheld call was never in any request: it counts at its old position. A call that was blocked before the last user
  message is kept (`conversations/blocks.py`), until a conversation without a session id begins anew.
- A round whose time is unknown counts as recent. If the ledger has dropped a lane, it knows when the lane was last
  used, and no round of the request is newer: rounds that are older than the ledger's memory are old.
- If the vendor has the conversation and the request only new items (a chain), all kept rounds count, and results that
  come without their calls are matched with the kept calls.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from callfuse.conversations.blocks import after_answer, earlier_blocks, is_typed_since, remember, with_last_outcomes
from callfuse.conversations.cut_off import going_on, with_answer
from callfuse.conversations.ledger import NO_BLOCKS, BlockMemory, CallKey, KeptCall, KeptRound, LaneState, Told
from callfuse.conversations.matching import NO_MATCH, LedgerMatch, RequestView, is_summed, match_kept, places_among
from callfuse.dialects.base import Request
from callfuse.dialects.history import digest_of
from callfuse.dialects.stateful import ChainedRequest
from callfuse.model import Delivery, PastCall, Round, Timeline, ToolCall
from callfuse.model.ids import bounded_id
from callfuse.model.outcomes.normalise import normalise
from callfuse.model.signature import Signature
from callfuse.model.spent import NOTHING_SPENT, Spent
from callfuse.model.timeline import NONE_CUT_OFF, CutOffKey
from callfuse.policy.ignored import ignore_in_rounds
from callfuse.policy.settings import LoopSettings

LONGEST_NOTE: Final = 8192
"""The most characters of the texts that are kept for one call. callfuse's own texts have a few hundred."""

LONGEST_AUTOMATIC: Final = 2000
"""In user messages up to this many characters, numbers are ignored when messages are compared."""


@dataclass(frozen=True, slots=True)
class LaneEvidence:
    """The data of its conversation that an exchange keeps until its answer has come, without the request itself.

    `state` is the lane's state as it was read; `rounds` are those of this timeline with all outcomes read so far,
    oldest first, with their positions in this request; `length` is the number of messages in the request, `turn` the
    digest of its last real user message. `is_new`: a result has been read that the ledger does not have. `blocks`: the
    lane's memory of its blocks; `said`: the digests of that user message's text, if there are blocks. `left`: rounds of
    other exchanges that are left out here, so that the lane has to keep the calls blocked in them. `told`: findings
    that the model has learned about but not reacted to yet; `spoken`: a person has written since. `spent`: the amount
    spent before this exchange, for a budget. `cut_off`: as in `Timeline`.
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
    spent: Spent = NOTHING_SPENT
    cut_off: Mapping[CutOffKey, int] = field(default_factory=dict)

    def after(
        self,
        rounds: Sequence[Sequence[PastCall]],
        notes: Sequence[tuple[CallKey, str]],
        now: float,
        *,
        max_rounds: int,
        conversation: "Conversation | None" = None,
        told: Sequence[Told] = (),
        spent: Spent | None = None,
        cut_off: Sequence[tuple[ToolCall, str]] | None = None,
        is_text_blocked: bool = False,
    ) -> LaneState:
        """Return the lane's state with the rounds that the exchange has added, delivered `now` (seconds), and the texts
        for results; at most `max_rounds` of each, the newest. `conversation`: that of the exchange, needed if a call or
        a text was blocked. `told`: findings that the model has learned about but not reacted to yet. `spent`: the
        amount that the exchange has spent, if there is a budget for turns. `cut_off`: the calls that a limit has cut
        off in its answer, each with the text for its result; None if settings do not look for such calls.
        `is_text_blocked`: the answer ends in a block because its text was cut off."""
        brought = [keep_round(calls, self.length, now, self.turn) for calls in rounds]
        blocks = self.blocks
        if blocks.count or is_text_blocked or any(one.blocked for one in brought):
            window: Collection[Signature] = ()
            said = self.said
            if conversation is not None:
                past, said = conversation.timeline, conversation.said
                window = past.window(conversation.settings.window)
                brought = [with_last_outcomes(one, past, blocks) if one.blocked else one for one in brought]
            blocks = after_answer(blocks, brought, window, said, now, is_text_blocked=is_text_blocked)
            blocks = remember(blocks, self.left)
        kept, place = [*self.rounds, *brought], (self.length, self.turn, now)
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
            spent=NOTHING_SPENT
            if spent is None
            else self.spent.plus(spent._replace(turn=self.spent.turn or self.turn)),
            cut_off=()
            if cut_off is None
            else with_answer(self.state.cut_off, cut_off, self.cut_off, place, is_round=bool(brought)),
        )


def _with_text(before: str, text: str) -> str:
    """Return the texts of a call with one more, e.g. if a client without ids tries again; unchanged if they have this
    text already, or would become too long."""
    joined_length = len(before) + len("\n\n") + len(text)
    if joined_length > LONGEST_NOTE or text in before:
        return before
    return f"{before}\n\n{text}" if before else text


class Conversation(NamedTuple):
    """One request's history and timeline.

    `timelines`: the rounds of the request, split at its real user messages, the newest timeline first (which may be
    empty) and newest round first. `timeline` is the first of them merged with the ledger. `chained`: the vendor has the
    conversation, the request only new items. `brings_results`: the results of the newest round are new. `turn_at`: the
    position of the last user message.
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
        """The digests of the last user message's text."""
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
    """Return the conversation of a request, completed by the ledger's `state` of its lane. `named`: the client sent a
    session id; `now` is in seconds. `begun_with`: the state at the beginning of the exchange, if other exchanges have
    written since: a request that begins a conversation does not end their blocks."""
    chain = request.chain
    chained = chain is not None and chain.chained
    if chain is not None and state.rounds:
        _supply(chain, state.rounds)
    timelines = _timelines(request.rounds())
    for rounds in timelines:
        ignore_in_rounds(rounds, settings)
    _date(timelines[0], state)
    view = RequestView.of(request, timelines[0], state, chained=chained, named=named)
    match = match_kept(view, state, request) if state.rounds else NO_MATCH
    merged, kept, is_new = _merge(view, match)
    if view.rounds and not kept:
        newest = view.rounds[0]
        kept = [keep_round(newest.calls, newest.position, newest.time, view.turn)]
        is_new = kept[0].has_outcomes
    merged, has_blocks = _since_release(merged, timelines, match.kept, state.released)
    blocks = _remembered_blocks(view, match, state, request, begun_with) if state.blocks.count else NO_BLOCKS
    earlier = earlier_blocks(blocks)
    declares = request.declares if request.lists_tools else None
    spent = _spent(view, match, state, begun_with, settings)
    place = (request.length, view.turn, now)
    cut_off = going_on(state, place, settings.ttl_seconds) if state.cut_off else NONE_CUT_OFF
    return Conversation(
        request,
        settings,
        timelines,
        Timeline(
            merged, now, has_blocks=has_blocks, declares=declares, earlier_blocks=earlier, spent=spent, cut_off=cut_off
        ),
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
            spent=spent,
            cut_off=cut_off,
            spoken=bool(state.told and state.rounds and not match.kept) and view.turn != state.rounds[-1].turn,
        ),
        chained,
        brings_results=_brings_results(view, match),
        turn_at=view.turn_at,
    )


def _since_release(
    merged: list[Round], timelines: list[list[Round]], kept: Sequence[KeptRound], released: float
) -> tuple[list[Round], bool]:
    """Return the merged rounds since an operator's reset, if there was one, and whether one of them was blocked. The
    newest timeline is split there, as by a user message."""
    if not released:
        return merged, True in [round_.blocked for round_ in kept]
    since = _places_since(timelines[0], released)
    timelines[:1] = [timelines[0][:since], timelines[0][since:]]
    blocked = any(round_.blocked and not _is_before(round_.time, released) for round_ in kept)
    return merged[: _places_since(merged, released)], blocked


def _places_since(rounds: Sequence[Round], released: float) -> int:
    """Count the rounds, newest first, up to the oldest one that came after an operator's reset."""
    return max((at + 1 for at, round_ in enumerate(rounds) if not _is_before(round_.time, released)), default=0)


def _is_before(time: float | None, released: float) -> bool:
    """Whether a round came before an operator's reset, if there was one. A round whose time is unknown counts as
    before."""
    return bool(released) and (time is None or time <= released)


def _date(rounds: Iterable[Round], state: LaneState) -> None:
    """Give rounds of a lane that the ledger has dropped the time of the lane's last use. After an operator's reset,
    give rounds without a time, from the first later round on, the time of that round: their ids may be the client's."""
    if state.last_used is not None:
        for round_ in rounds:
            round_.time = state.last_used
    if state.released:
        after = next((one for one in state.rounds if one.time is not None and one.time > state.released), None)
        for round_ in rounds:
            if after is not None and round_.time is None and round_.position >= after.position:
                round_.time = after.time


def _supply(chain: ChainedRequest, rounds: Sequence[KeptRound]) -> None:
    """Supply the chain with the delivered calls of kept rounds, by their whole ids."""
    known = {call.id: call for round_ in rounds for call in round_.delivered}
    chain.recall(lambda id_: (kept := known.get(bounded_id(id_))) and kept.call(id_), rounds[-1].turn)


def _spent(
    view: RequestView, match: LedgerMatch, state: LaneState, begun_with: LaneState | None, settings: LoopSettings
) -> Spent:
    """Return the amount spent for the budget of a request; for a turn, without the turn before.

    The turn is the one in the lane's state if the ledger has its rounds, or if its first request is sent again. If
    other exchanges have begun the turn, it includes what a late exchange of the turn before spends, so that nothing is
    lost.
    """
    spent = state.spent
    if settings.budget.by != "turn" or match.kept or (begun_with is not None and spent.turn != begun_with.spent.turn):
        return spent
    is_again = view.turn == spent.turn and (view.chained or view.turn_at < state.length)
    return spent if is_again else NOTHING_SPENT


def _brings_results(view: RequestView, match: LedgerMatch) -> bool:
    """Whether the results of the newest round are new."""
    if match.at is None:
        return bool(view.rounds) or not view.chained
    return match.first > 0 or not match.kept[match.at].has_outcomes


def _timelines(history: Iterable[Round | None]) -> list[list[Round]]:
    """Split the rounds of a history (newest first, None for a real user message) at its real user messages. Older
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


def _merge(view: RequestView, match: LedgerMatch) -> tuple[list[Round], list[KeptRound], bool]:
    """Merge the rounds of request and ledger, newest first. Also return the rounds that the ledger is to keep, oldest
    first, and whether a result was read that the ledger did not have."""
    if not match.kept:
        return [*view.rounds, *match.before], [*match.left], False
    places = places_among(view, match)
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
    rounds += match.before
    if match.shift:
        kept = [replace(one, position=one.position - match.shift) for one in kept]
    kept = [*match.left, *kept[::-1]]
    kept += [keep_round(one.calls, one.position, one.time, view.turn) for one in view.rounds[: match.first][::-1]]
    return rounds, kept, read_any


def _taken_up(kept: Sequence[KeptRound], begin: int, end: int) -> list[KeptRound]:
    """Return the kept rounds from `begin` on, newest first, without tries that the client replaced by `kept[end]`."""
    rounds = [*kept[begin:end]][::-1]
    if rounds and end < len(kept):
        place = kept[end].position
        return [one for one in rounds if one.position != place or not one.delivered]
    return rounds


def _said(request: Request, turn_at: int, turn: bytes, blocks: BlockMemory, *, chained: bool) -> tuple[bytes, ...]:
    """Return the digests of the user message at `turn_at`: first `turn`, which in a chain also depends on the place,
    then the digest of the text alone, without numbers and times. If the request does not have the text, the second
    digest is the kept one."""
    typed = request.typed_message(turn_at) if turn_at >= 0 else None
    if typed is not None:
        return turn, digest_of(map(_without_numbers, (one.text for one in typed.texts)))
    return (turn, blocks.said) if chained and blocks.said else (turn,)


def _said_for(blocks: BlockMemory, view: RequestView, request: Request) -> tuple[bytes, ...]:
    """Return the digests of the last user message for a lane that remembers blocks; empty for any other lane."""
    return _said(request, view.turn_at, view.turn, blocks, chained=view.chained) if blocks.count else ()


def _without_numbers(text: str) -> bytes:
    """Return a text for comparison without numbers and times, which harnesses put into their messages. A text that is
    long, or has no letters, is unchanged."""
    if len(text) > LONGEST_AUTOMATIC or not any(map(str.isalpha, text)):
        return text.encode("utf-8", "surrogatepass")
    return normalise(text)


def _begins_anew(view: RequestView, state: LaneState, request: Request) -> bool:
    """Whether a request begins a new conversation: no model has said anything in it. In a named session, such a request
    with a new text follows a compaction and does not begin one."""
    if view.chained or view.rounds or not is_unanswered(request) or is_summed(view, request):
        return False
    return not view.named or view.turn in state.blocks.turns


def _has_dropped_all(view: RequestView, state: LaneState, request: Request) -> bool:
    """Whether a harness has dropped the answers from its history and continues: after the task, it repeats an earlier
    message."""
    if view.chained or view.rounds or not is_unanswered(request):
        return False
    typed = [at for at in range(request.length) if request.typed_message(at) is not None]
    return len(typed) > 1 and not is_typed_since(
        state.blocks, _said(request, view.turn_at, view.turn, state.blocks, chained=view.chained)
    )


def is_unanswered(request: Request) -> bool:
    """Whether a request has no call and no text by a model."""
    return not any(request.rounds()) and all(request.own_text(at) is None for at in range(request.length))


def _still_told(view: RequestView, match: LedgerMatch, state: LaneState, request: Request) -> tuple[Told, ...]:
    """Return the findings that the model has learned about but not reacted to yet, with their positions in this
    request: none at the beginning of a new conversation, and none of an answer that the client discarded before a
    retry."""
    if _begins_anew(view, state, request):
        return ()
    if not match.kept:
        return state.told
    there = {one.position for one in match.kept}
    return tuple([one._replace(position=one.position - match.shift) for one in state.told if one.position in there])


def _remembered_blocks(
    view: RequestView, match: LedgerMatch, state: LaneState, request: Request, begun_with: LaneState | None
) -> BlockMemory:
    """Return the lane's memory of its blocks, including the calls blocked before the last user message of this request.

    A discarded try belongs to the same user message, so its blocks are not added. The beginning of a new conversation
    ends all blocks, unless other exchanges have blocked calls since this one began.
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


def _left_of_others(match: LedgerMatch, state: LaneState, begun_with: LaneState | None) -> tuple[KeptRound, ...]:
    """Return the rounds that other exchanges have added since this one began, and that its request does not have: they
    are not discarded tries."""
    if begun_with is None:
        return ()
    known = {id(one) for one in match.kept}
    return tuple([one for one in state.rounds if id(one) not in known and one not in begun_with.rounds])


def _complete(round_: Round, kept: KeptRound, unique: Set[str], *, newest: bool) -> tuple[KeptRound, bool]:
    """Complete a round of the request from the ledger: its time, steps and outcomes. Return the kept round with the
    outcomes of results that have come since, and whether there were any.

    The result of a call without an id is read as long as its round is the newest: the call may have run again.
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
    """Return a round of the request with the calls that were withheld beside its own."""
    gone = tuple([call.past() for call in kept.calls if call.withheld])
    return Round(gone + round_.calls, round_.position, kept.time)


def keep_round(calls: Sequence[PastCall], position: int, time: float | None, turn: bytes) -> KeptRound:
    """Return a round in the ledger's form, and read its results. `position` is its message's place in the history,
    `turn` the digest of the user message before it."""
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
