"""The texts that a request's results carry to the model: warnings, and notes on calls that were withheld beside them.

A warning is a pure function of the conversation: every executed call that was a finding when it came has one, in
earlier timelines too, so that the same history always reads the same and prompt caches keep hitting.
"""

from collections.abc import Iterator
from itertools import islice

from callfuse.detect import Engine
from callfuse.dialects.base import Note, Request
from callfuse.model import NOWHERE, Round, Timeline
from callfuse.policy import texts
from callfuse.policy.settings import LoopSettings, Rung
from callfuse.sessions.conversation import Conversation, calls_alike


def notes_for(request: Request, conversation: Conversation, settings: LoopSettings) -> list[Note]:
    """What is to be added to the results of a request."""
    notes: list[Note] = []
    if Rung.WARN in settings.ladder:
        for rounds in [list(conversation.timeline)] if conversation.chained else _timelines(request):
            notes += _warnings(rounds, settings, request.model)
    for (id_, signature, before), text in conversation.notes.items():
        found = next(islice(calls_alike(request, id_, signature), before, None), None)
        if found is not None:
            notes.append(Note(*found, text))
    return notes


def _timelines(request: Request) -> Iterator[list[Round]]:
    """The rounds of each timeline of the history, newest first."""
    rounds: list[Round] = []
    for round_ in request.rounds():
        if round_ is not None:
            rounds.append(round_)
        elif rounds:
            yield rounds
            rounds = []
    if rounds:
        yield rounds


def _warnings(rounds: list[Round], settings: LoopSettings, model: str) -> Iterator[Note]:
    """A note for each call that was found looping when it came. Rounds are newest first, their times unknown."""
    for at, round_ in enumerate(rounds):
        engine = Engine(Timeline(rounds[at + 1 :]), settings)
        if round_.position == NOWHERE or not engine.suspects():
            continue
        for call, finding in engine.judge_round(round_.calls):
            yield Note(round_.position, call, texts.warning(call, finding, settings, model))
