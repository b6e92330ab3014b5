"""Encode lanes and sessions as bytes for a store, and decode them: compact JSON with a format version.

Decoding bytes of an earlier version, or of another program, raises `UnreadableError`.

While processes of two versions share a store, the older one reads the items that it knows of a newer value, and never
overwrites it (`is_foreign`). For that to work, every version follows three rules: a value begins with the two lines
below and a JSON array, whose first item is the version; a new field is a new item at the end, and increases the
version; items of earlier versions do not change.

A value begins with two lines that scripts can find without parsing the rest: the lane's session id (empty if it has
none, and for sessions), and the revision. Digests are base64. Many rounds have the same turn, so turns are a list that
rounds refer to by index.
"""

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Annotated, Any, Final, Literal

from pydantic import Field, InstanceOf, TypeAdapter, ValidationError

from callfuse.conversations.ledger import (
    NO_BLOCKS,
    BlockMemory,
    CutOff,
    KeptCall,
    KeptRound,
    LaneState,
    SessionState,
    StormEntry,
    Told,
)
from callfuse.dialects.stateful import NO_DIFFERENCE, Continuation
from callfuse.model import Delivery
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.model.spent import NOTHING_SPENT, Spent
from callfuse.policy.allowed import Allowance
from callfuse.policy.sections import ModelSettings, ToolSettings
from callfuse.policy.settings import NO_OVERRIDES
from callfuse.policy.tiers import Overrides, explicit_values
from callfuse.wire.jsontext import NotJSON, dumps, loads

VERSION: Final = 7
"""Increased with every change of the shapes below. Values of versions 4 to 6 can be read, too: versions 4 and 5 had
fewer items, and none had a revision."""

_DELIVERIES: Final = (Delivery.DELIVERED, Delivery.WITHHELD, Delivery.BLOCKED)
"""Stored by index. DROPPED is not stored, because each request shows which calls its client has dropped."""
_PENDING, _TRANSIENT, _UNKNOWN_TOOL = 1, 2, 4

_FRAME: Final = re.compile(rb"[^\n]*\n[0-9a-f]*\n\[(\d{1,9})[,\]]")
_LANE_ITEMS: Final = 11
_SESSION_ITEMS: Final = 8
Text = InstanceOf[str]
"""Any string, including lone surrogates, which pydantic's `str` refuses."""
Base64 = str
Version = Literal[7, 6]
OldVersion = Literal[5]
OlderVersion = Literal[4]
Flags = Annotated[int, Field(ge=0, le=7)]
OutcomeShape = tuple[Base64, OutcomeKind, Text, Flags, Base64]
"""Digest, kind, text, flags, error."""
CallShape = tuple[Text, Text, Text, Base64, Annotated[int, Field(ge=0, le=2)], int, OutcomeShape | None]
"""Id, namespace, name, signature, delivery, step, outcome."""
RoundShape = tuple[int, float | None, Annotated[int, Field(ge=0)], list[CallShape]]
"""Position, time, index of the turn, calls."""
NoteShape = tuple[Text, Base64, int, Text]
"""Id, signature, number of equal calls before it, text."""
ContinuationShape = tuple[dict[Text, Text], Text, list[Text]]
Count = Annotated[int, Field(ge=0)]
BlocksShape = tuple[Count, Count, list[CallShape], list[Base64], list[Base64], float, Base64]
"""Blocks, those in a row, blocked calls, turns, known signatures, time, last user message."""
ToldShape = tuple[Text, Text, Base64, int, Text, Count, bool]
"""Id and kind of a finding, signature, position, arm, rounds since, whether results must show the last one."""
OlderLaneShape = tuple[OlderVersion, int, list[Base64], list[RoundShape], list[NoteShape], ContinuationShape | None]
OldLaneShape = tuple[
    OldVersion,
    int,
    list[Base64],
    list[RoundShape],
    list[NoteShape],
    ContinuationShape | None,
    BlocksShape | None,
]
LaneShape = tuple[
    Version,
    int,
    list[Base64],
    list[RoundShape],
    list[NoteShape],
    ContinuationShape | None,
    BlocksShape | None,
    list[ToldShape],
]
"""Version, length, turns, rounds, notes, continuation, blocks, texts for the model."""
SpentShape = tuple[float, Count, Count, Count, Count, bool, Base64, float]
"""Since when, calls, tokens, estimated ones, money, whether the model was warned, turn, end of the period."""
StormShape = tuple[Base64, float]
"""Digest and time of an entry that is counted to find storms."""
LongLaneShape = tuple[
    Version,
    int,
    list[Base64],
    list[RoundShape],
    list[NoteShape],
    ContinuationShape | None,
    BlocksShape | None,
    list[ToldShape],
    SpentShape | None,
    list[StormShape],
]
"""The same, with budget use if there is a budget, and the entries that are counted to find storms."""
CutOffShape = tuple[int, Base64, float, Text, Text, Base64, Count, Text]
"""Position, turn, time, id, tool, digest of the beginning, answers in a row, text."""
LongestLaneShape = tuple[
    Version,
    int,
    list[Base64],
    list[RoundShape],
    list[NoteShape],
    ContinuationShape | None,
    BlocksShape | None,
    list[ToldShape],
    SpentShape | None,
    list[StormShape],
    list[CutOffShape],
]
"""The same, with the calls that were cut off."""
OldSessionShape = tuple[OlderVersion, ModelSettings, dict[Text, ToolSettings], list[Base64]]
SetShape = tuple[ModelSettings, dict[Text, ToolSettings]]
"""Overrides, and overrides by tool."""
SessionShape = tuple[Version | OldVersion, ModelSettings, dict[Text, ToolSettings], list[Base64], float]
"""Version, overrides, overrides by tool, turns whose commands have been run, time of the last reset."""
LongSessionShape = tuple[Version, ModelSettings, dict[Text, ToolSettings], list[Base64], float, SetShape]
"""The same, with the overrides of the host's code."""
AllowanceShape = tuple[Text, Base64, Text]
"""Tool, signature, lane."""
LongestSessionShape = tuple[
    Version, ModelSettings, dict[Text, ToolSettings], list[Base64], float, SetShape, float, list[AllowanceShape]
]
"""The same, with the time of an operator's last reset, and the calls that a person has allowed."""

AnyLaneShape = LongestLaneShape | LongLaneShape | LaneShape | OldLaneShape | OlderLaneShape
_LANE: Final[TypeAdapter[AnyLaneShape]] = TypeAdapter(AnyLaneShape)
AnySessionShape = LongestSessionShape | LongSessionShape | SessionShape | OldSessionShape
_SESSION: Final[TypeAdapter[AnySessionShape]] = TypeAdapter(AnySessionShape)


class UnreadableError(ValueError):
    """Raised for a value that this version of callfuse cannot read."""


def encode_lane(state: LaneState) -> bytes:
    """Encode the state of a lane, without the time of its last use, which has a key of its own."""
    places = {turn: at for at, turn in enumerate(dict.fromkeys(one.turn for one in state.rounds))}
    known = state.continuation
    shape = (
        VERSION,
        state.length,
        [_encode_bytes(turn) for turn in places],
        [_encode_round(one, places) for one in state.rounds],
        [(id_, _encode_bytes(signature), before, text) for (id_, signature, before), text in state.notes.items()],
        None if known == NO_DIFFERENCE else _encode_continuation(known),
        None if state.blocks == NO_BLOCKS else _encode_blocks(state.blocks),
        [(*one[:2], _encode_bytes(one.signature), *one[3:]) for one in state.told],
    )
    spent = (
        None if state.spent == NOTHING_SPENT else (*state.spent[:6], _encode_bytes(state.spent.turn), state.spent.until)
    )
    storm = [(_encode_bytes(digest), time) for digest, time in state.storm]
    cut_off = [
        (one.position, _encode_bytes(one.turn), one.time, one.id, one.tool, _encode_bytes(one.begin), *one[6:])
        for one in state.cut_off
    ]
    long = (*shape, spent, storm) if spent or storm or cut_off else shape
    return _join(state.session, state.revision, dumps((*long, *filter(None, [cut_off]))))


def _join(session: str, revision: str, text: bytes) -> bytes:
    """Join two lines and a JSON text without newlines into a value."""
    return b"\n".join((session.encode(), revision.encode(), text))


def _split(value: bytes) -> tuple[str, str, bytes]:
    """Split a value into session, revision and text. Session and revision are empty if it has none. Raises
    ValueError."""
    *head, text = value.split(b"\n", 2)
    session, revision = [one.decode() for one in (*head, b"", b"")[:2]]
    return session, revision, text


def version_of(value: bytes | None) -> int:
    """Return the version of a value, even of an unreadable one; 0 if it has none."""
    found = _FRAME.match(value or b"")
    return int(found[1]) if found else 0


def is_foreign(value: bytes | None, *, readable: bool) -> bool:
    """Whether a newer version wrote a value: its version is newer, or it has this version but cannot be read, for
    example because a session has a setting that is unknown here."""
    return version_of(value) >= VERSION + readable


def _known_items(text: bytes, items: int) -> Any:
    """Return the parsed items of a value. A newer value is cut to `items` items, as if of this version."""
    shape = loads(text)
    if isinstance(shape, list) and shape and type(shape[0]) is int and shape[0] > VERSION:
        return [VERSION, *shape[1:items]]
    return shape


def revision_of(value: bytes) -> str:
    """Return the revision of a value, even of an unreadable one; empty if it has none."""
    _, *rest = value.split(b"\n", 2)
    return rest[0].decode("ascii", "replace") if len(rest) == 2 else ""


def decode_lane(value: bytes) -> LaneState:
    """Decode the state of a lane. Raises UnreadableError."""
    try:
        session, revision, text = _split(value)
        shape = _LANE.validate_python(_known_items(text, _LANE_ITEMS))
        length, turns, rounds, notes, known = shape[1:6]
        blocks = shape[6] if len(shape) > 6 else None
        told = shape[7] if len(shape) > 7 else []
        spent, storm = shape[8:10] if len(shape) > 8 else (None, [])
        cut_off: list[CutOffShape] = [*chain.from_iterable(shape[10:])]
        of_turn = [_decode_bytes(turn) for turn in turns]
        return LaneState(
            tuple([_decode_round(one, of_turn) for one in rounds]),
            {(id_, _decode_bytes(signature), before): text for id_, signature, before, text in notes},
            length,
            continuation=NO_DIFFERENCE if known is None else _decode_continuation(*known),
            session=session,
            blocks=NO_BLOCKS if blocks is None else _decode_blocks(blocks),
            told=tuple(
                [
                    Told(id_, kind, _decode_bytes(signature), position, arm, waited, is_open)
                    for id_, kind, signature, position, arm, waited, is_open in told
                ]
            ),
            storm=tuple([StormEntry(_decode_bytes(digest), time) for digest, time in storm]),
            cut_off=tuple(
                [
                    CutOff(position, _decode_bytes(turn), time, id_, tool, _decode_bytes(begin), count, note)
                    for position, turn, time, id_, tool, begin, count, note in cut_off
                ]
            ),
            spent=NOTHING_SPENT if spent is None else Spent(*spent[:6], _decode_bytes(spent[6]), spent[7]),
            revision=revision,
        )
    except (NotJSON, ValidationError, ValueError, IndexError) as error:
        raise UnreadableError(type(error).__name__) from None


def encode_time(seconds: float) -> bytes:
    """Encode a time in Unix seconds."""
    return b"%r" % float(seconds)


def decode_time(value: bytes | None) -> float | None:
    """Decode a time; None if it is missing or invalid."""
    try:
        seconds = float(value or b"")
    except ValueError:
        return None
    return seconds if isfinite(seconds) else None


def encode_session(state: SessionState) -> bytes:
    """Encode a session's settings."""
    turns = [_encode_bytes(turn) for turn in state.ran]
    shape: tuple[Any, ...] = (VERSION, *_encode_overrides(state.overrides), turns, state.reset)
    if state.allowed or state.released:
        allowed = [(one.tool, _encode_bytes(one.signature), one.lane) for one in state.allowed]
        shape = (*shape, _encode_overrides(state.by_code), state.released, allowed)
    elif state.by_code:
        shape = (*shape, _encode_overrides(state.by_code))
    return _join("", state.revision, dumps(shape))


def _encode_overrides(overrides: Overrides) -> tuple[Any, Any]:
    tools = {
        tool: ToolSettings.model_validate(dict(values)).model_dump(mode="json", exclude_none=True)
        for tool, values in overrides.tools.items()
    }
    return ModelSettings.model_validate(dict(overrides.values)).model_dump(mode="json", exclude_none=True), tools


def _decode_overrides(set_: ModelSettings, tools: Mapping[str, ToolSettings]) -> Overrides:
    return Overrides(explicit_values(set_), {tool: explicit_values(own) for tool, own in tools.items()})


def decode_session(value: bytes) -> SessionState:
    """Decode a session's settings. Raises UnreadableError."""
    try:
        _, revision, text = _split(value)
        shape = _SESSION.validate_python(_known_items(text, _SESSION_ITEMS))
        set_, tools, ran = shape[1:4]
        reset = shape[4] if len(shape) > 4 else 0.0
        by_code = _decode_overrides(*shape[5]) if len(shape) > 5 else NO_OVERRIDES
        released, allowed = shape[6:] if len(shape) == 8 else (0.0, [])
        lets = tuple([Allowance(tool, _decode_bytes(signature), lane) for tool, signature, lane in allowed])
        turns = tuple([_decode_bytes(turn) for turn in ran])
        return SessionState(_decode_overrides(set_, tools), turns, reset, by_code, released, lets, revision)
    except (NotJSON, ValidationError, ValueError) as error:
        raise UnreadableError(type(error).__name__) from None


def _encode_bytes(digest: bytes) -> Base64:
    return b2a_base64(digest, newline=False).decode()


def _decode_bytes(text: Base64) -> bytes:
    return a2b_base64(text, strict_mode=True)


def _encode_round(one: KeptRound, places: Mapping[bytes, int]) -> tuple[Any, ...]:
    return one.position, one.time, places[one.turn], [_encode_call(call) for call in one.calls]


def _decode_round(one: RoundShape, turns: Sequence[bytes]) -> KeptRound:
    position, time, turn, calls = one
    return KeptRound(position, time, turns[turn], tuple([_decode_call(*call) for call in calls]))


def _encode_call(call: KeptCall) -> tuple[Any, ...]:
    outcome = None if call.outcome is None else _encode_outcome(call.outcome)
    return (
        call.id,
        call.namespace,
        call.name,
        _encode_bytes(call.signature),
        _DELIVERIES.index(call.delivery),
        call.step,
        outcome,
    )


def _decode_call(
    id_: str, namespace: str, name: str, signature: Base64, delivery: int, step: int, outcome: OutcomeShape | None
) -> KeptCall:
    return KeptCall(
        id_,
        name,
        _decode_bytes(signature),
        None if outcome is None else _decode_outcome(*outcome),
        _DELIVERIES[delivery],
        step,
        namespace,
    )


def _encode_outcome(outcome: Outcome) -> tuple[Any, ...]:
    flags = _PENDING * outcome.pending | _TRANSIENT * outcome.transient | _UNKNOWN_TOOL * outcome.unknown_tool
    return _encode_bytes(outcome.digest), outcome.kind, outcome.text, flags, _encode_bytes(outcome.error)


def _decode_outcome(digest: Base64, kind: OutcomeKind, text: str, flags: int, error: Base64) -> Outcome:
    return Outcome(
        _decode_bytes(digest),
        kind,
        text,
        pending=bool(flags & _PENDING),
        transient=bool(flags & _TRANSIENT),
        error=_decode_bytes(error),
        unknown_tool=bool(flags & _UNKNOWN_TOOL),
    )


def _encode_blocks(blocks: BlockMemory) -> tuple[Any, ...]:
    return (
        blocks.count,
        blocks.in_a_row,
        [_encode_call(call) for call in blocks.calls],
        [_encode_bytes(turn) for turn in blocks.turns],
        [_encode_bytes(signature) for signature in blocks.known],
        blocks.time,
        _encode_bytes(blocks.said),
    )


def _decode_blocks(shape: BlocksShape) -> BlockMemory:
    count, in_a_row, calls, turns, known, time, said = shape
    return BlockMemory(
        count,
        in_a_row,
        tuple([_decode_call(*call) for call in calls]),
        tuple(map(_decode_bytes, turns)),
        tuple(map(_decode_bytes, known)),
        time,
        _decode_bytes(said),
    )


def _encode_continuation(known: Continuation) -> tuple[Any, ...]:
    items = {id_: item.decode("utf-8", "surrogateescape") for id_, item in known.items.items()}
    return items, known.go_on, [item.decode("utf-8", "surrogateescape") for item in known.unanswered]


def _decode_continuation(items: dict[str, str], go_on: str, unanswered: list[str]) -> Continuation:
    return Continuation(
        {id_: item.encode("utf-8", "surrogateescape") for id_, item in items.items()},
        go_on,
        tuple([item.encode("utf-8", "surrogateescape") for item in unanswered]),
    )
