"""Whole Gemini answers: without withheld calls, and two as one. Parts that stay keep their bytes."""

from collections.abc import Mapping, Sequence

from callfuse.dialects.base import Block
from callfuse.dialects.gemini.channel import encoded
from callfuse.dialects.gemini.names import SIGNATURE
from callfuse.dialects.gemini.read import STOPS, client_parts
from callfuse.dialects.gemini.reasoning import without_thoughts
from callfuse.dialects.gemini.usage import GeminiUsage
from callfuse.dialects.gemini.write import ERROR_REASON, HEAD, after_blank_line, says
from callfuse.dialects.thought_signatures import STAND_IN, survivor_without
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, apply, loads, span, spans


def thin_whole(body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block], *, model: str) -> bytes:
    """The answer without the calls at (candidate, place); a blocked candidate says why, and stops."""
    payload = loads(body)
    edits: list[Edit] = []
    for at, candidate in enumerate(payload["candidates"]):
        calls = client_parts(candidate)
        path = ("candidates", at, "content", "parts")
        gone = {place for where, place in withheld if where == at}
        edits += [Edit((*path, calls[place][0]), None) for place in sorted(gone)]
        chosen = survivor_without(
            [SIGNATURE in part for _, part in calls],
            [place in gone for place in range(len(calls))],
            str(payload.get("modelVersion") or model),
        )
        if chosen is not None:
            edits.append(Edit((*path, calls[chosen][0], SIGNATURE), encoded(STAND_IN)))
        if block := blocks.get(at):
            spoke = any(says(part) for part in candidate["content"]["parts"])
            edits.append(Edit((*path, END), encoded({"text": f"\n\n{block.text}" if spoke else block.text})))
            if candidate.get("finishReason") in STOPS and block.finish:
                edits.append(Edit(("candidates", at, "finishReason"), encoded(ERROR_REASON)))
            if "finishMessage" in candidate:
                edits.append(Edit(("candidates", at, "finishMessage"), None))
    return apply(body, edits)


def splice_whole(first: bytes, second: bytes, *, summed: bool, reader: str | None) -> bytes:
    """The second answer with the first one's id and model, its parts in front, and the usage of both.

    `reader`: the model that will read it, where it is not the one that has given the second answer.
    """
    one: Payload = loads(first)
    if reader is not None and loads(second).get("candidates"):
        path = ("candidates", 0, "content")
        second = apply(second, [*without_thoughts(_parts(loads(second)), path, reader)])
    other: Payload = loads(second)
    edits = [Edit((key,), encoded(one[key])) for key in HEAD if key in one and key in other]
    if other.get("candidates"):
        edits.append(_joined(first, second, one, other))
    counts = GeminiUsage(summed=summed)
    counts.see(one.get("usageMetadata"))
    counts.next_answer()
    if total := counts.see(other.get("usageMetadata")):
        edits.append(Edit(("usageMetadata",), encoded(total)))
    return apply(second, edits)


def _joined(first: bytes, second: bytes, one: Payload, other: Payload) -> Edit:
    """The edit that gives the second answer the parts of both, with a blank line between their texts."""
    before, after = _raw_parts(first), _raw_parts(second)
    if any(map(says, _parts(one))):
        at = next((at for at, part in enumerate(_parts(other)) if says(part)), None)
        if at is not None:
            after[at] = apply(after[at], [Edit(("text",), after_blank_line)])
    parts = b"[" + b",".join((*before, *after)) + b"]"
    if after:
        return Edit(("candidates", 0, "content", "parts"), parts)
    return Edit(("candidates", 0, "content"), b'{"parts":' + parts + b',"role":"model"}')


def _parts(payload: Payload) -> Sequence[Payload]:
    return (payload["candidates"][0].get("content") or {}).get("parts") or ()


def _raw_parts(body: bytes) -> list[bytes]:
    """The raw parts of the first candidate."""
    place = span(body, ("candidates", 0, "content", "parts"))
    return [body[part.value : part.end] for part in spans(body, place[0])] if place else []
