"""The texts that a request's results carry to the model: warnings, and notes on calls that were withheld beside them.

A warning is a pure function of the conversation: every executed call that was a finding when it came has one, in
earlier timelines too, so that the same history always reads the same and prompt caches keep hitting.
"""

from collections.abc import Iterator

from callfuse.detect import Engine
from callfuse.dialects.base import Note, Request
from callfuse.model import NOWHERE, Round, Timeline
from callfuse.policy import texts
from callfuse.policy.settings import LoopSettings, Rung
from callfuse.sessions.conversation import Conversation


def notes_for(request: Request, conversation: Conversation, settings: LoopSettings) -> list[Note]:
    """What is to be added to the results of a request."""
    notes: list[Note] = []
    if Rung.WARN in settings.ladder:
        current = list(conversation.timeline)
        notes += _warnings(current, settings, request.model)
        for timeline in _earlier(request):
            notes += _warnings(timeline, settings, request.model)
    if known := conversation.notes:
        ids = {id_ for id_, _ in known}
        for round_ in filter(None, request.rounds()):
            for call in round_.calls:
                if call.id in ids and (text := known.get((call.id, call.signature))):
                    notes.append(Note(round_.position, call, text))
    return notes


def _earlier(request: Request) -> Iterator[list[Round]]:
    """The rounds of each timeline before the current one, newest first."""
    rounds: list[Round] | None = None
    for round_ in request.rounds():
        if round_ is None:
            if rounds:
                yield rounds
            rounds = []
        elif rounds is not None:
            rounds.append(round_)
    if rounds:
        yield rounds


def _warnings(rounds: list[Round], settings: LoopSettings, model: str) -> Iterator[Note]:
    """A note for each executed call that was found looping when it came. Rounds are newest first."""
    for at, round_ in enumerate(rounds):
        engine = Engine(Timeline(rounds[at + 1 :], round_.time or 0.0), settings)
        executed = [call for call in round_.calls if not call.withheld]
        if not executed or round_.position == NOWHERE or not engine.suspects():
            continue
        for call, finding in engine.judge_round(executed):
            yield Note(round_.position, call, texts.warning(call, finding, settings, model))
