"""Lanes and sessions as bytes for a store: compact JSON with the version of its shape.

Reading bytes of another version, or of another program, raises `UnreadableError`.

A lane's value begins with the name of its session and a newline, so that a script can find the session without reading
the rest. Digests are in base64; the turns of the rounds, many of which are the same, stand in a list of their own.
"""

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, InstanceOf, TypeAdapter, ValidationError

from callfuse.conversations.ledger import KeptCall, KeptRound, LaneState, SessionState
from callfuse.dialects.base import NO_DIFFERENCE, Continuation
from callfuse.model import Delivery
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.policy.sections import ModelSettings, ToolSettings
from callfuse.policy.tiers import Overrides, given
from callfuse.wire.jsontext import NotJSON, dumps, loads

VERSION: Final = 4
"""Increased with every change of the shapes below."""

_DELIVERIES: Final = (Delivery.DELIVERED, Delivery.WITHHELD, Delivery.BLOCKED)
"""By their numbers; that a client has dropped a call is not kept, it shows."""
_PENDING, _TRANSIENT = 1, 2

Text = InstanceOf[str]
"""Any text, lone surrogates too, which pydantic's own texts may not hold."""
Base64 = str
Version = Literal[4]
Flags = Annotated[int, Field(ge=0, le=3)]
OutcomeShape = tuple[Base64, OutcomeKind, Text, Flags, Base64]
"""Digest, kind, text, flags, error."""
CallShape = tuple[Text, Text, Text, Base64, Annotated[int, Field(ge=0, le=2)], int, OutcomeShape | None]
"""Id, namespace, name, signature, delivery, step, outcome."""
RoundShape = tuple[int, float | None, Annotated[int, Field(ge=0)], list[CallShape]]
"""Position, time, which of the turns, calls."""
NoteShape = tuple[Text, Base64, int, Text]
"""Id, signature, how many of these stand before it, text."""
ContinuationShape = tuple[dict[Text, Text], Text, list[Text]]
LaneShape = tuple[
    Version,
    int,
    list[Base64],
    list[RoundShape],
    list[NoteShape],
    ContinuationShape | None,
]
"""Version, length, turns, rounds, notes, continuation."""
SessionShape = tuple[Version, ModelSettings, dict[Text, ToolSettings], list[Base64]]
"""Version, overrides, those of single tools, the turns whose commands have been run."""

_LANE: Final[TypeAdapter[LaneShape]] = TypeAdapter(LaneShape)
_SESSION: Final[TypeAdapter[SessionShape]] = TypeAdapter(SessionShape)


class UnreadableError(ValueError):
    """A value that this version of callfuse has not written."""


def lane_value(state: LaneState) -> bytes:
    """A lane's state as bytes; when it was last used is for the store to know."""
    places = {turn: at for at, turn in enumerate(dict.fromkeys(one.turn for one in state.rounds))}
    known = state.continuation
    shape = (
        VERSION,
        state.length,
        [_text(turn) for turn in places],
        [_round(one, places) for one in state.rounds],
        [(id_, _text(signature), before, text) for (id_, signature, before), text in state.notes.items()],
        None if known == NO_DIFFERENCE else _continuation(known),
    )
    return state.session.encode() + b"\n" + dumps(shape)


def lane_state(value: bytes) -> LaneState:
    """The state of a lane. Raises UnreadableError."""
    session, _, text = value.partition(b"\n")
    try:
        shape = _LANE.validate_python(loads(text))
        _, length, turns, rounds, notes, known = shape
        of_turn = [_bytes(turn) for turn in turns]
        return LaneState(
            tuple([_kept_round(one, of_turn) for one in rounds]),
            {(id_, _bytes(signature), before): text for id_, signature, before, text in notes},
            length,
            continuation=NO_DIFFERENCE if known is None else _kept_continuation(*known),
            session=session.decode(),
        )
    except (NotJSON, ValidationError, ValueError, IndexError) as error:
        raise UnreadableError(type(error).__name__) from None


def session_value(state: SessionState) -> bytes:
    """What a session has set, as bytes."""
    set_ = ModelSettings.model_validate(dict(state.overrides.values)).model_dump(mode="json", exclude_none=True)
    tools = {
        tool: ToolSettings.model_validate(dict(values)).model_dump(mode="json", exclude_none=True)
        for tool, values in state.overrides.tools.items()
    }
    return dumps((VERSION, set_, tools, [_text(turn) for turn in state.ran]))


def session_state(value: bytes) -> SessionState:
    """What a session has set. Raises UnreadableError."""
    try:
        _, set_, tools, ran = _SESSION.validate_python(loads(value))
        overrides = Overrides(given(set_), {tool: given(own) for tool, own in tools.items()})
        return SessionState(overrides, tuple([_bytes(turn) for turn in ran]))
    except (NotJSON, ValidationError, ValueError) as error:
        raise UnreadableError(type(error).__name__) from None


def _text(digest: bytes) -> Base64:
    return b2a_base64(digest, newline=False).decode()


def _bytes(text: Base64) -> bytes:
    return a2b_base64(text, strict_mode=True)


def _round(one: KeptRound, places: Mapping[bytes, int]) -> tuple[Any, ...]:
    return one.position, one.time, places[one.turn], [_call(call) for call in one.calls]


def _kept_round(one: RoundShape, turns: Sequence[bytes]) -> KeptRound:
    position, time, turn, calls = one
    return KeptRound(position, time, turns[turn], tuple([_kept_call(*call) for call in calls]))


def _call(call: KeptCall) -> tuple[Any, ...]:
    outcome = None if call.outcome is None else _outcome(call.outcome)
    return (
        call.id,
        call.namespace,
        call.name,
        _text(call.signature),
        _DELIVERIES.index(call.delivery),
        call.step,
        outcome,
    )


def _kept_call(
    id_: str, namespace: str, name: str, signature: Base64, delivery: int, step: int, outcome: OutcomeShape | None
) -> KeptCall:
    return KeptCall(
        id_,
        name,
        _bytes(signature),
        None if outcome is None else _kept_outcome(*outcome),
        _DELIVERIES[delivery],
        step,
        namespace,
    )


def _outcome(outcome: Outcome) -> tuple[Any, ...]:
    flags = _PENDING * outcome.pending | _TRANSIENT * outcome.transient
    return _text(outcome.digest), outcome.kind, outcome.text, flags, _text(outcome.error)


def _kept_outcome(digest: Base64, kind: OutcomeKind, text: str, flags: int, error: Base64) -> Outcome:
    return Outcome(
        _bytes(digest),
        kind,
        text,
        pending=bool(flags & _PENDING),
        transient=bool(flags & _TRANSIENT),
        error=_bytes(error),
    )


def _continuation(known: Continuation) -> tuple[Any, ...]:
    items = {id_: item.decode("utf-8", "surrogateescape") for id_, item in known.items.items()}
    return items, known.go_on, [item.decode("utf-8", "surrogateescape") for item in known.unanswered]


def _kept_continuation(items: dict[str, str], go_on: str, unanswered: list[str]) -> Continuation:
    return Continuation(
        {id_: item.encode("utf-8", "surrogateescape") for id_, item in items.items()},
        go_on,
        tuple([item.encode("utf-8", "surrogateescape") for item in unanswered]),
    )
