"""Write the texts that are added to results for the model: warnings, and notes on calls withheld beside them.

A warning is a pure function of the conversation: every executed call that had a finding when it came gets a warning,
and so does every round with a loop in its results, also in earlier timelines. So the same history always gets the same
bytes, and prompt caches keep hitting. A text that a callback has changed is kept with the call, and has priority.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from callfuse.conversations.cut_off import carriers
from callfuse.conversations.ledger import CallKey
from callfuse.conversations.timeline import Conversation
from callfuse.detect import Engine, can_fire, hindsight_can_fire, most_counted
from callfuse.dialects.base import Note
from callfuse.model import NOWHERE, PastCall, Round, Timeline, ToolCall
from callfuse.model.facts import Facts
from callfuse.model.ids import bounded_id
from callfuse.model.signature import Signature
from callfuse.policy import texts
from callfuse.policy.ladder import capped, would_have_warned
from callfuse.policy.rungs import Rung
from callfuse.policy.settings import LoopSettings

MAX_ROUNDS_BEFORE: Final = 1000
"""At most this many rounds before a call count for its warning, so that a long history costs linear time; fewer if no
limit needs as many. The longest streak of a default limit is 100 rounds."""
MANY_REPEATS: Final = 32
"""If more calls than this repeat earlier ones, notes are written in a thread: judging such a call may take 0.5 ms."""


def notes_for(conversation: Conversation) -> list[Note]:
    """Return the texts to add to the results of a request, with the calls of these results."""
    kept = conversation.evidence.state.notes
    if not (kept or conversation.timeline.rounds or any(conversation.timelines)):
        return []
    histories = _histories(conversation)
    notes = [*_warnings(conversation, histories)] if conversation.settings.warns else []
    if late := [*_hindsight_notes(conversation, histories)]:
        warned_at = {note.position for note in notes}
        notes += [note for note in late if note.position not in warned_at]
    return _as_changed(notes, kept, conversation) if kept else notes


def _as_changed(notes: list[Note], kept: Mapping[CallKey, str], conversation: Conversation) -> list[Note]:
    """Return the notes with the texts that a callback has changed. `kept`: these texts by call; an empty text removes a
    note."""
    index = _CallIndex(conversation)
    silent: set[tuple[int, Signature]] = set()
    own: list[Note] = []
    for (id_, signature, before), text in kept.items():
        there = index.find(id_, signature, before)
        if there is not None and text:
            own.append(Note(*there, text))
        elif there is not None:
            silent.add((there[0], signature))
    return [note for note in notes if (note.position, note.call.signature) not in silent] + own


def newest_result(conversation: Conversation) -> tuple[CallKey, ToolCall] | None:
    """Return the key in the ledger, and the call, whose result gets the note on the newest round's results."""
    rounds = conversation.timeline.rounds
    past = _last_known(rounds[0]) if rounds else None
    if past is None:
        return None
    id_ = bounded_id(past.id)
    return (id_, past.signature, _CallIndex(conversation).count(id_, past.signature) - 1), past.call


def _last_known(round_: Round) -> PastCall | None:
    """Return the last executed call of a round whose result is known."""
    return next((one for one in reversed(round_.calls) if not one.withheld and one.outcome is not None), None)


def note_keys(conversation: Conversation, notes: Sequence[tuple[ToolCall, str]]) -> list[tuple[CallKey, str]]:
    """Return texts for calls of the answer to this request, with the keys under which the ledger keeps them."""
    index = _CallIndex(conversation)
    return [
        ((id_, call.signature, index.count(id_, call.signature)), text)
        for call, text in notes
        for id_ in [bounded_id(call.id)]
    ]


class _CallIndex:
    """Indexes the calls of all timelines, from the front, by signature and id, to read a history once for all notes.

    Ids are in their kept form (`bounded_id`); an empty id fits any (`is_same_id`).
    """

    __slots__ = ("_calls", "_places")

    def __init__(self, conversation: Conversation) -> None:
        self._calls: dict[Signature, list[tuple[int, ToolCall]]] = {}
        self._places: dict[tuple[str, Signature], list[int]] = {}
        for rounds in reversed(conversation.timelines):
            for round_ in reversed(rounds):
                for past in round_.calls:
                    equal = self._calls.setdefault(past.signature, [])
                    self._places.setdefault((bounded_id(past.id), past.signature), []).append(len(equal))
                    equal.append((round_.position, past.call))

    def count(self, id_: str, signature: Signature) -> int:
        """Count the calls that may have this id and have this signature."""
        if not id_:
            return len(self._calls.get(signature, ()))
        return len(self._places.get((id_, signature), ())) + len(self._places.get(("", signature), ()))

    def find(self, id_: str, signature: Signature, before: int) -> tuple[int, ToolCall] | None:
        """Return the position and the call that has `before` such calls before it; None if there is no such call."""
        if self.count(id_, signature) <= before:
            return None
        equal = self._calls[signature]
        if not id_:
            return equal[before]
        places = self._places.get((id_, signature), []) + self._places.get(("", signature), [])
        return equal[sorted(places)[before]]


def _histories(conversation: Conversation) -> list[Timeline]:
    """Return each timeline as the request contains it, newest first, without times, which only the ledger has; for a
    chain, the merged timeline with its times."""
    request, merged = conversation.request, conversation.timeline
    declares = request.declares if request.lists_tools else None
    if conversation.chained:
        return [Timeline(merged.rounds, declares=declares, facts=merged.facts)]
    return [
        Timeline(rounds, declares=declares, timed=False, facts=merged.facts if merged.rounds == rounds else None)
        for rounds in conversation.timelines
    ]


def _warnings(conversation: Conversation, histories: Sequence[Timeline]) -> Iterator[Note]:
    """Yield a note for each call that was found looping when it came, if the ladder of its tool warns."""
    settings, request = conversation.settings, conversation.request
    most = min(MAX_ROUNDS_BEFORE, most_counted(settings) + settings.reach)
    for whole in histories:
        for at in _places_to_look(whole.facts, settings):
            round_ = whole.rounds[at]
            if round_.position == NOWHERE or not can_fire(whole, settings, at + 1, round_):
                continue
            executed = [one for one in round_.calls if not one.withheld]
            came = {id(one.call): one for one in executed}
            engine = Engine(whole.before(at, most), settings)
            for call, found in engine.judge_round([one.call for one in executed]):
                outcome = came[id(call)].outcome
                finding = found.given(outcome.digest) if outcome else found
                own = settings.for_tool(call.full_name).settings
                if would_have_warned(finding, capped(own.ladder, finding, own.detectors)):
                    yield Note(round_.position, call, texts.warning(call, finding, settings, request.model))


def _places_to_look(facts: Facts, settings: LoopSettings) -> Sequence[int]:
    """Return the indexes of rounds whose calls may have a warning: only a few if warnings come only from a cap."""
    least = settings.rounds_before_warning
    if not least:
        return range(len(facts.rounds))
    again = facts.again
    return [at for at, round_ in enumerate(facts.rounds) if again[at] >= least or len(round_.calls) > 1]


def _hindsight_notes(conversation: Conversation, histories: Sequence[Timeline]) -> Iterator[Note]:
    """Yield a note on the last result of each round with a loop in its results, unless the tool's ladder only observes;
    and on the results of calls that were cut off according to the ledger."""
    settings, request = conversation.settings, conversation.request
    for whole in histories:
        if not hindsight_can_fire(whole, settings):
            continue
        engine = Engine(whole, settings)
        for round_, finding in zip(engine.past.rounds, engine.hindsights(), strict=True):
            past = _last_known(round_)
            if finding is None or past is None or round_.position == NOWHERE:
                continue
            own = settings.for_tool(past.full_name).settings
            cap = own.detectors.cap(finding.kind, hard=finding.hard, waits=finding.waits)
            if not own.observes and cap is not Rung.OBSERVE:
                yield Note(round_.position, past.call, texts.warning(past.call, finding, settings, request.model))
    if (known := conversation.evidence.state.cut_off) and settings.warns and not conversation.chained:
        yield from [Note(*one) for one in carriers(known, conversation.timelines)]
