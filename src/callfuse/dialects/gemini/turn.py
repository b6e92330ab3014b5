"""The model's own turn, as a content of the next request: every part as it came, signatures included.

Texts that came in pieces are joined; a part with a signature is never joined with another. A call that came in pieces
is put together, and one that cannot be raises AskError.
"""

from collections.abc import Sequence
from typing import Any

from callfuse.dialects.base import AskError
from callfuse.dialects.gemini.names import FUNCTION_CALL
from callfuse.dialects.gemini.partial_args import UnknownPieceError, built
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, apply, dumps, span

_TEXT_KEYS = frozenset({"text", "thought"})


def turn(payloads: Sequence[Payload]) -> bytes:
    """The content that the chunks of one candidate come to."""
    parts: list[Payload] = []
    pieces: list[Payload] = []
    for payload in payloads:
        for candidate in payload.get("candidates") or ():
            for part in (candidate.get("content") or {}).get("parts") or ():
                function = part.get(FUNCTION_CALL)
                if function is None:
                    _add(parts, part)
                    continue
                if function.get("name"):
                    _complete(parts, pieces)
                    parts.append(part)
                    pieces = []
                pieces += function.get("partialArgs") or ()
    _complete(parts, pieces)
    return dumps({"role": "model", "parts": parts})


def turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """The content of a whole answer."""
    place = span(body, ("candidates", 0, "content"))
    if place is None:
        raise AskError("content")
    content = body[place[0] : place[1]]
    if "role" in payload["candidates"][0]["content"]:
        return content
    return apply(content, [Edit(("role",), b'"model"')])


def _add(parts: list[Payload], part: Payload) -> None:
    """Add a part that is no call; a text joins the text before it."""
    if not part.keys() <= _TEXT_KEYS:
        parts.append(part)
    elif part.get("text"):
        last: Any = parts[-1] if parts else {}
        if last.keys() <= _TEXT_KEYS and last.get("text") and bool(last.get("thought")) == bool(part.get("thought")):
            parts[-1] = last | {"text": last["text"] + part["text"]}
        else:
            parts.append(part)


def _complete(parts: list[Payload], pieces: Sequence[Payload]) -> None:
    """Give the call that came last its arguments, where these came in pieces."""
    at = next((at for at in reversed(range(len(parts))) if FUNCTION_CALL in parts[at]), None)
    if at is None:
        return
    part = parts[at]
    function = {key: value for key, value in part[FUNCTION_CALL].items() if key not in ("partialArgs", "willContinue")}
    if pieces:
        try:
            function["args"] = built(function.get("args"), pieces)
        except UnknownPieceError as error:
            raise AskError(str(error)) from None
    parts[at] = part | {FUNCTION_CALL: function}
