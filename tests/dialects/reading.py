"""How tests look at a vendor's body: cut in any way, read by its dialect, and after a talk with calls like its own.

In: bodies of some form: `sse`, `ndjson`, `array`, `binary` (streamed) or a whole answer. Out: chunks, calls, histories.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

from callfuse.dialects import DIALECTS, Dialect
from callfuse.dialects.base import Request
from callfuse.model import ToolCall
from callfuse.wire import AWS_EVENTS, EVENTS, JSON_ARRAY, Format
from callfuse.wire.jsontext import NotJSON, loads
from callfuse.wire.ndjson import NDJSON
from tests.support.kits import DialectKit, target_of
from tests.support.model import Call, History, Round, User, canonical
from tests.support.wire import bytewise, cut

Told = tuple[int, str, str, str]
"""(choice, id, name, arguments)."""

SMALL = 20_000
"""Bodies up to this size are also cut into single bytes."""
FORMATS: dict[str, Format] = {"sse": EVENTS, "ndjson": NDJSON, "array": JSON_ARRAY, "binary": AWS_EVENTS}


def dialect_of(name: str) -> Dialect:
    """The dialect under its name."""
    return next(dialect for dialect in DIALECTS if dialect.name == name)


def read(kit: DialectKit, body: bytes) -> Request:
    """A streamed request's body as the kit's dialect reads it."""
    path, _ = target_of(kit, stream=True)
    request = dialect_of(kit.name).read_request(body, loads(body), path)
    assert request
    return request


def ways(body: bytes) -> list[tuple[bytes, ...]]:
    """A body whole, at random cuts (the same in every run) and, where it is small, byte by byte."""
    dice = random.Random(body)
    random_cuts = [cut(body, (dice.randrange(len(body) + 1) for _ in range(count))) for count in (3, 40)]
    return [(body,), *random_cuts, *([bytewise(body)] if len(body) <= SMALL else [])]


def form_of(kit: DialectKit) -> str:
    """The form of a kit's streams."""
    if type(kit).__name__ == "GeminiArrayKit":
        return "array"
    return {"ollama": "ndjson", "bedrock-converse": "binary"}.get(kit.name, "sse")


def calls_in(dialect: Dialect, form: str, chunks: Sequence[bytes]) -> list[Told]:
    """The calls in chunks, as the dialect reads them; arguments of whole answers are canonical."""
    if form in FORMATS:
        return _streamed(dialect, FORMATS[form], chunks)
    choices = dialect.read_whole(json.loads(b"".join(chunks)))
    return [(choice.index, *told(call)) for choice in choices for call in choice.calls]


def _streamed(dialect: Dialect, form: Format, chunks: Sequence[bytes]) -> list[Told]:
    framer, reader = form.framer(), dialect.reader()
    frames = [frame for chunk in chunks for frame in framer.feed(chunk)]
    for frame in (*frames, framer.flush()):
        if (payload := _payload(form, frame)) is not None:
            reader.read(payload)
    return [(call.choice, call.id, call.name, call.complete().text) for call in reader.calls]


def _payload(form: Format, frame: bytes) -> dict[str, Any] | None:
    """The frame's object; a frame that is broken has none."""
    try:
        return form.payload(frame)
    except NotJSON:
        return None


def told(call: ToolCall) -> tuple[str, str, str]:
    """Id, name and arguments of a call, which may be text or a value, to be compared."""
    arguments = call.arguments
    return call.id, call.name, canonical(arguments if isinstance(arguments, str) else json.dumps(arguments))


def spinning(*calls: tuple[str, str], times: int = 2) -> History:
    """A conversation in which these calls, each a name and its arguments, came together so often, results alike."""
    rounds = [
        Round(
            tuple(Call(f"before_{at}_{place}", name, (arguments,)) for place, (name, arguments) in enumerate(calls)),
            ("the same result",) * len(calls),
        )
        for at in range(times)
    ]
    return History((User("Hello."), *rounds), tools=tuple({name: None for name, _ in calls}) or ("search",))
