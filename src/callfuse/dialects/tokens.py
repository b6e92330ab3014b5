"""Finds the token counts in vendors' answers, under the names that each vendor uses."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from callfuse.model.spent import Tokens
from callfuse.wire import Payload

MOST: Final = 10**12
"""The most tokens that one answer may have; greater numbers are ignored."""
Place = tuple[str, ...]
"""The keys that lead to a value."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Where one format's answers have their token counts, and under which names.

    `mark`: matches bytes of each frame, and each whole answer, with counts; None if the bytes of frames do not show it.
    `places`: the paths of the counts in a payload, of frames and of whole answers. `input`, `output`: the counts that
    add up to input and output tokens; `cached`: the input that the vendor has read from its cache. A tuple within these
    lists several names of one count; the first name found is used.
    """

    mark: re.Pattern[bytes] | None
    places: tuple[Place, ...]
    input: tuple[tuple[Place, ...], ...]
    output: tuple[tuple[Place, ...], ...]
    cached: tuple[tuple[Place, ...], ...] = ()

    def may_be_in(self, frame: bytes) -> bool:
        """Whether a frame, or a whole answer, may have counts. False means that there are none."""
        return self.mark is None or self.mark.search(frame) is not None

    def read(self, payloads: Sequence[Payload]) -> Tokens | None:
        """Return the token counts of an answer from those payloads that may have counts; later counts replace earlier
        ones. None if there are no counts."""
        counts: dict[str, Any] = {}
        for payload in payloads:
            for place in self.places:
                found = _at(payload, place)
                if isinstance(found, dict):
                    counts |= {key: value for key, value in found.items() if value is not None}
        tokens = [[_count(counts, names) for names in group] for group in (self.input, self.cached, self.output)]
        if all(one is None for group in (tokens[0], tokens[2]) for one in group):
            return None
        read, cached, written = [sum(filter(None, group)) for group in tokens]
        return Tokens(read, min(cached, read), written)


def _at(payload: Any, place: Place) -> Any:
    for key in place:
        payload = payload.get(key) if isinstance(payload, dict) else None
    return payload


def _count(counts: dict[str, Any], names: Sequence[Place]) -> int | None:
    for name in names:
        found = _at(counts, name)
        if isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found <= MOST:
            return int(found)
    return None


def _named(*names: str) -> tuple[tuple[Place, ...], ...]:
    """Return the places of counts that add up, each with one name; a dot in a name leads into an object."""
    return tuple([(tuple(name.split(".")),) for name in names])


def _either(*names: str) -> tuple[tuple[Place, ...], ...]:
    """Return the places of one count that has several names."""
    return (tuple([tuple(name.split(".")) for name in names]),)


NO_COUNTS: Final = TokenCounts(re.compile(rb"(?!)"), (), (), ())
"""For formats whose answers have no token counts."""
_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')
CHAT: Final = TokenCounts(
    _USAGE,
    (("usage",), ("x_groq", "usage")),
    _named("prompt_tokens"),
    _named("completion_tokens"),
    _either("prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens"),
)
RESPONSES: Final = TokenCounts(
    _USAGE,
    (("usage",), ("response", "usage")),
    _named("input_tokens"),
    _named("output_tokens"),
    _named("input_tokens_details.cached_tokens"),
)
MESSAGES: Final = TokenCounts(
    _USAGE,
    (("message", "usage"), ("usage",)),
    _named("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    _named("output_tokens"),
    _named("cache_read_input_tokens"),
)
INVOKE: Final = TokenCounts(None, MESSAGES.places, MESSAGES.input, MESSAGES.output, MESSAGES.cached)
"""The counts of `MESSAGES`, in events that are encoded in base64."""
GEMINI: Final = TokenCounts(
    re.compile(rb'"usageMetadata"'),
    (("usageMetadata",),),
    _named("promptTokenCount", "toolUsePromptTokenCount"),
    _named("candidatesTokenCount", "thoughtsTokenCount"),
    _named("cachedContentTokenCount"),
)
INTERACTIONS: Final = TokenCounts(
    _USAGE,
    (("usage",), ("interaction", "usage")),
    _named("total_input_tokens", "total_tool_use_tokens"),
    _named("total_output_tokens", "total_thought_tokens"),
    _named("total_cached_tokens"),
)
OLLAMA: Final = TokenCounts(re.compile(rb'"eval_count"'), ((),), _named("prompt_eval_count"), _named("eval_count"))
COHERE: Final = TokenCounts(
    _USAGE,
    (("usage",), ("delta", "usage")),
    _either("tokens.input_tokens", "billed_units.input_tokens"),
    _either("tokens.output_tokens", "billed_units.output_tokens"),
    _named("cached_tokens"),
)
CONVERSE: Final = TokenCounts(
    _USAGE,
    (("usage",), ("metadata", "usage")),
    _named("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
    _named("outputTokens"),
    _named("cacheReadInputTokens"),
)
