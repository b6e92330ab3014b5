"""Thoughts and their signatures in Gemini's parts, which hold for one model only: what another one reads lacks them.

Parts of a content enter, of a history or of an answer; the edits leave that make them fit for a model. Where that model
wants a signature, the first call of a content gets Google's documented stand-in.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.gemini.channel import encoded
from callfuse.dialects.gemini.names import FUNCTION_CALL, SIGNATURE, get, key
from callfuse.dialects.thought_signatures import STAND_IN, are_demanded
from callfuse.wire.jsontext import Edit

_SAYS_NOTHING: Final = frozenset({"text", SIGNATURE, "thought_signature"})

Path = tuple[str | int, ...]


def thoughts(parts: Sequence[Any]) -> list[int]:
    """The places of parts that are thoughts, or nothing but a signature."""
    return [at for at, part in enumerate(parts) if isinstance(part, dict) and (part.get("thought") or _is_bare(part))]


def _is_bare(part: dict[str, Any]) -> bool:
    return part.keys() <= _SAYS_NOTHING and not part.get("text") and get(part, SIGNATURE) is not None


def signatures(parts: Sequence[Any], path: Path, reader: str, *, begins: bool = True) -> Iterator[Edit]:
    """The edits that give the parts at `path` the signatures for the model named `reader`: at most the first call has
    one. `begins`: the first call here is the first of its answer."""
    wanted = begins and are_demanded(reader, in_use=True)
    gone = set(thoughts(parts))
    for at, part in enumerate(parts):
        place = (*path, at, key(part, SIGNATURE))
        if wanted and get(part, FUNCTION_CALL) is not None:
            wanted = False
            yield Edit(place, encoded(STAND_IN))
        elif get(part, SIGNATURE) is not None and at not in gone:
            yield Edit(place, None)


def without_thoughts(parts: Sequence[Any], content: Path, reader: str) -> Iterator[Edit]:
    """The edits that make a content fit for another model; a history loses one that has nothing but thoughts."""
    gone = thoughts(parts)
    if content and gone and len(gone) == len(parts):
        yield Edit(content, None)
        return
    yield from (Edit((*content, "parts", at), None) for at in gone)
    yield from signatures(parts, (*content, "parts"), reader)
