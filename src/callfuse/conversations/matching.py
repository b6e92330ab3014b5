"""Match the rounds in the ledger with the rounds of a request.

Rounds are compared by (id, signature), in order from the newest back:

- A kept round at or after the request's end is a discarded try, an answer that the client did not use: it is left out.
- If the request's newest round is not among the kept rounds, these belong to another timeline. The exception is a
  history that was rewritten: its newest round now follows another user message than before, and that message is a
  summary, or the round is nearer to the beginning than before.
- Calls without ids are identified by their signatures and their order: rounds before one that both know are matched in
  order, at any position. A second answer to the same request may be a discarded try, or the next round of a client that
  sends only its newest rounds. A result that has changed, even only by a time, shows that the call has run again.
  Otherwise, up to `MOST_TRIES` such answers are tries; if there are more, all of them are rounds.
- A history that has lost all its rounds was compacted if it got shorter, or if its last user message is a summary in
  the words of a known harness: the kept rounds count. In a session with a client's id, any shorter history was
  compacted, whatever its last user message is. Another summary is another compaction, the same summary is a retry.
- Any other shorter history without rounds may be a conversation of its own. If more than `MOST_LEFT` such histories
  were left in the middle of the same call, and have no other call, they are one conversation, and the kept rounds
  count.
"""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Final, NamedTuple, Self

from callfuse.conversations.ledger import KeptRound, LaneState, is_same_id
from callfuse.dialects.base import Request
from callfuse.harness import is_summary, is_word_behind_summary
from callfuse.model import NOWHERE, Round
from callfuse.model.ids import bounded_id
from callfuse.model.signature import Signature


class LedgerMatch(NamedTuple):
    """The kept rounds that belong to a request, oldest first.

    `kept[at]` is the request's round number `first`, counted from the newest (`at` None: the request has none of them);
    rounds newer than that are not in the ledger. `shift`: kept position minus request position of that round.
    `dropped_to`: a kept round that the request lacks was dropped by the client, and counts, if its shifted position is
    at most this. `left`: kept rounds of the histories before this one; `before`: the rounds in `left` that count,
    newest first.
    """

    kept: Sequence[KeptRound] = ()
    at: int | None = None
    first: int = 0
    shift: int = 0
    dropped_to: int = NOWHERE - 1
    left: Sequence[KeptRound] = ()
    before: Sequence[Round] = ()


NO_MATCH: Final = LedgerMatch()
MOST_TRIES: Final = 3
"""The most answers to one request, without ids and all with the call of its newest round, that may be tries. If there
are more, or if the client has dropped rounds before, the client counts as one that sends only its newest rounds:
nothing else distinguishes the two."""
LEFT: Final = b"left"
"""Replaces the digest of the user message in a round of a history that its client no longer continues."""
MOST_LEFT: Final = 2
"""The most histories, each left while the same call runs, that may be aborted runs, or agents with similar tasks."""
MOST_UNKNOWN: Final = 16
"""How many of the newest rounds are searched for one that the ledger knows."""


class RequestView(NamedTuple):
    """The newest timeline of a request, as the request contains it.

    `rounds`: newest first. `unique`: ids that only one call has (empty if the ledger has no rounds). `length`: messages
    in the request. `turn_at`, `turn`: position and digest of its last user message. `chained`: the vendor has the
    earlier messages. `named`: the client sent a session id.
    """

    rounds: Sequence[Round]
    unique: Set[str]
    length: int
    turn_at: int
    turn: bytes
    chained: bool
    named: bool

    @classmethod
    def of(cls, request: Request, rounds: Sequence[Round], state: LaneState, *, chained: bool, named: bool) -> Self:
        """Return the view of a request whose newest timeline has these rounds."""
        turn_at, turn = request.last_user_message(rounds[-1].position if rounds and not chained else None)
        unique = _unique_ids(rounds) if state.rounds else frozenset[str]()
        return cls(rounds, unique, request.length, turn_at, turn, chained, named)


def match_kept(view: RequestView, state: LaneState, request: Request) -> LedgerMatch:
    """Match the ledger's rounds (at least one) with the rounds of a request."""
    kept = [round_ for round_ in state.rounds if round_.turn == view.turn]
    if not view.rounds and not view.chained:
        return _match_compacted(view, kept, state, request)
    if not view.rounds:  # a reminder; or a message of a person, after which nothing is kept
        return LedgerMatch(kept, shift=kept[-1].position + 1, dropped_to=view.length) if kept else NO_MATCH
    anchor = _anchor(view, kept)
    if anchor is None:  # a summary may have taken the place of the user message
        kept = _of_last_turn(state, view.turn)
        anchor = _anchor_behind_summary(view, kept, request)
    match = NO_MATCH if anchor is None else _match_at(view, kept, *anchor)
    return _behind_left(match, view, state) if match.kept and state.rounds[0].turn == LEFT else match


def _match_at(view: RequestView, kept: list[KeptRound], first: int, at: int) -> LedgerMatch:
    """Match the kept rounds with a request whose round number `first` is `kept[at]`."""
    tries = _equal_tries(view, kept, at) if first == 0 else []
    if tries and len(tries) > (0 if _goes_on(view, kept, at) else MOST_TRIES):
        begin = kept[at].position  # one after another, as in a history that has them all with their results
        rounds = enumerate([kept[at], *tries])
        kept = [*kept[:at], *[replace(one, position=begin + 2 * number) for number, one in rounds]]
        at, tries = len(kept) - 1, []
    shift = kept[at].position - view.rounds[first].position
    later = [one for one in kept[at + 1 :] if not one.delivered and one.position - shift < view.length]
    dropped_to = view.length if view.chained or shift else view.turn_at
    return LedgerMatch([*kept[: at + 1], *later, *tries], at, first, shift, dropped_to)


def _equal_tries(view: RequestView, kept: Sequence[KeptRound], at: int) -> list[KeptRound]:
    """Return the answers to the request with the newest round `kept[at]` that no id distinguishes from that round. They
    may be discarded tries, or rounds of a client that sends only its newest round."""
    newest = view.rounds[0]
    answered = view.length + kept[at].position - newest.position
    return [one for one in kept[at + 1 :] if one.position == answered and one.delivered and _is_same(newest, one)]


def _goes_on(view: RequestView, kept: Sequence[KeptRound], at: int) -> bool:
    """Whether the request, whose newest round is `kept[at]`, cannot be a retry. Either the client has dropped rounds of
    this timeline, because the oldest would come before its user message; or the results of the calls have changed, even
    only by a time, so that the calls have run again."""
    if at > 0 and kept[0].position - kept[at].position + view.rounds[0].position <= view.turn_at:
        return True
    pairs = zip(view.rounds[0].calls, kept[at].delivered, strict=True)
    return any(None not in (mine.outcome, known.outcome) and mine.outcome != known.outcome for mine, known in pairs)


def _anchor_behind_summary(view: RequestView, kept: Sequence[KeptRound], request: Request) -> tuple[int, int] | None:
    """Return the `_anchor` of a request with another user message than the kept rounds: its newest round, identified by
    its ids. Without ids, after a summary or in a session with a client's id, it must be the last delivered round.

    The round must be nearer to the beginning than before, unless the user message is a harness's summary."""
    newest = view.rounds[0]
    summed = is_summed(view, request)
    if (view.named or summed) and not any(one.id for one in newest.calls):
        at = next((at for at in range(len(kept) - 1, -1, -1) if kept[at].delivered), None)
        at = None if at is None or not _is_same(newest, kept[at]) else at
    else:
        at = _find(newest, kept, 0, view.unique, only_known=True)
    if at is None or not (summed or newest.position < kept[at].position):
        return None
    return 0, at


def is_summed(view: RequestView, request: Request) -> bool:
    """Whether the last user message is a summary in the words of a harness that has compacted its history or, in a
    session with a client's id, the text that a harness writes after the model's own summary."""
    typed = request.typed_message(view.turn_at) if view.turn_at >= 0 else None
    if typed is not None and typed.texts and all(is_summary(one.text) for one in typed.texts):
        return True
    return _is_told_to_go_on(view, request)


def _is_told_to_go_on(view: RequestView, request: Request) -> bool:
    """Whether the last user message is the text that a harness always writes after a summary by the model: a shorter
    history is then another compaction, not a retry. Only in named sessions, because nothing else distinguishes
    conversations."""
    typed = request.typed_message(view.turn_at) if view.named and view.turn_at >= 0 else None
    return typed is not None and bool(typed.texts) and all(is_word_behind_summary(one.text) for one in typed.texts)


def _anchor(view: RequestView, kept: Sequence[KeptRound]) -> tuple[int, int] | None:
    """Find the newest round that the ledger knows: its indexes in the request and among the kept rounds.

    The ledger has no round for an answer that could not be recorded (several choices, a limit).
    """
    for first, round_ in enumerate(view.rounds[:MOST_UNKNOWN]):
        at = _find(round_, kept, 0, view.unique, only_known=first > 0)
        if at is not None:
            return first, at
    return None


def _match_compacted(view: RequestView, kept: list[KeptRound], state: LaneState, request: Request) -> LedgerMatch:
    """Match the kept rounds with a request that has no rounds. From then on, rounds that the client has dropped have
    positions before its user message."""
    is_shorter = view.length < state.length
    summed = is_summed(view, request)
    if not kept and (summed or (is_shorter and view.named)):
        kept = _of_last_turn(state, view.turn)
    elif not (kept and is_shorter) or (view.turn_at == view.length - 1 and not _is_told_to_go_on(view, request)):
        match = LedgerMatch(
            [one for one in kept if (summed or view.turn_at < one.position) and one.position < view.length],
            dropped_to=view.turn_at if summed else NOWHERE - 1,
        )
        return match if match.kept else _behind_left(match, view, state)
    return LedgerMatch(kept, shift=kept[-1].position - view.turn_at, dropped_to=view.turn_at)


def _behind_left(match: LedgerMatch, view: RequestView, state: LaneState) -> LedgerMatch:
    """Put left histories before a match. Each was left while a call was running, and had earlier results: a client that
    only extracts data never sends results. They are dropped once any history has another call."""
    left = [one for one in state.rounds if one.turn == LEFT]
    if not match.kept:
        last = state.rounds[len(left) :]
        shown = [one.has_outcomes for one in last]
        if view.length >= state.length or len(last) < 2 or shown != [True] * (len(last) - 1) + [False]:
            return match
        left += [replace(one, turn=LEFT) for one in last]
    if len({call.signature for one in (*left, *match.kept) for call in one.delivered}) > 1:
        return match
    are_one = sum(not one.has_outcomes for one in left) > MOST_LEFT
    return match._replace(left=left, before=[one.past() for one in left[::-1]] if are_one else ())


def _of_last_turn(state: LaneState, turn: bytes) -> list[KeptRound]:
    """Return the kept rounds of the newest user message, with the digest `turn` in place of that message's digest."""
    return [replace(one, turn=turn) for one in state.rounds if one.turn == state.rounds[-1].turn]


def places_among(view: RequestView, match: LedgerMatch) -> list[int | None]:
    """Return, for the rounds of a request from `first` on, their indexes among the kept rounds, which fall; None for a
    round that the ledger does not have."""
    left = [*match.kept]
    known: Set[tuple[Signature, ...]] | None = None
    places: list[int | None] = []
    at = match.at
    for round_ in view.rounds[match.first :]:
        if at is None and left:
            if left[-1].position == round_.position + match.shift and _is_same(round_, left[-1]):  # as nearly always
                at = len(left) - 1
            else:
                known = known or {tuple([call.signature for call in one.delivered]) for one in match.kept}
                if tuple([call.signature for call in round_.calls]) in known:
                    at = _find_in_order(round_, left, match.shift, view.unique)
        places.append(at)
        if at is not None:
            del left[at:]
        at = None
    return places


def _find(
    round_: Round,
    kept: Sequence[KeptRound],
    shift: int,
    unique: Set[str],
    *,
    only_known: bool = False,
) -> int | None:
    """Return the index of the kept round that equals this round: at the same position, else the newest equal one; None
    if there is none.

    Ids may be missing or repeat, so several kept rounds can be equal (`unique`: ids that occur once in this request).
    An equal round at an earlier position, or with `only_known` at any other position, is accepted only if its ids
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
    """Return the index as `_find` does; else that of the newest equal round, as the round after `kept` is matched."""
    at = _find(round_, kept, shift, unique)
    if at is not None:
        return at
    return next((at for at in range(len(kept) - 1, -1, -1) if _is_same(round_, kept[at])), None)


def _unique_ids(rounds: Sequence[Round]) -> Set[str]:
    """Return the ids that only one call of these rounds has."""
    ids = [call.call.id for round_ in rounds for call in round_.calls]
    unique = {*ids}
    if len(unique) == len(ids):  # as nearly always
        unique.discard("")
        return unique
    counts = Counter(ids)
    return {id_ for id_, count in counts.items() if count == 1 and id_}


def _is_same(round_: Round, kept: KeptRound) -> bool:
    """Whether a round of the request is this kept round: the same calls with the same ids, if there are ids."""
    calls, delivered = round_.calls, kept.delivered
    if len(delivered) != len(calls):
        return False
    for mine, known in zip(calls, delivered, strict=True):
        call = mine.call
        if (call._signature or call.signature) != known.signature:
            return False
        if call.name != known.name and bounded_id(call.name) != known.name:
            return False
        if call.id != known.id and not is_same_id(bounded_id(call.id), known.id):
            return False
    return True
