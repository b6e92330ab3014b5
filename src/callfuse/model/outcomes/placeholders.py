"""What clients put where an old result stood, to save context.

There are as many wordings as clients, but nearly all are one short phrase in brackets that says what is gone: "[Old
tool result content cleared]" (Claude Code, opencode, OpenClaw, Qwen Code), "[cleared]" (LangChain), "[Output removed to
save context - ...]" (opencode's pruning), "[[NOTE] This file read has been removed to save space ...]" (Cline), or, by
age, "Old environment output: (12 lines omitted)" (SWE-agent). The others are a table.
"""

import re
from typing import Final

LONGEST: Final = 400
"""Characters; longer texts are results, whatever they say."""

_GONE: Final = frozenset((
    "cleared", "collapsed", "compacted", "compressed", "condensed", "dropped", "elided", "evicted", "hidden", "masked",
    "omitted", "pruned", "removed", "summarized", "superseded", "trimmed", "truncated",
))  # fmt: skip
_WHAT: Final = frozenset((
    "content", "contents", "file", "image", "images", "observation", "observations", "output", "outputs", "read",
    "response", "result", "results", "screenshot", "screenshots", "tool",
))  # fmt: skip
_OLD: Final = frozenset(("earlier", "old", "older", "previous", "prior"))
_WORD = re.compile(r"[a-z]+")
_MAY_BEGIN = re.compile(rf"[\[(<]|[^a-z]*(?:{'|'.join(sorted(_OLD))})", re.IGNORECASE)
"""What most results do not begin with: it costs less to ask this first."""
_PHRASE_WORDS: Final = 14
"""Within so many words the phrase has said what is gone; reasons follow."""

_WITH_PREVIEW: Final = ("[Trimmed", "<tool_output_masked>")
"""How OpenAI Agents and Gemini CLI begin a text that keeps a little of the result."""

_OTHERS = re.compile(
    r"\[(?:image|screenshot)\]"  # Stagehand
    r"|The tool result was too large!"  # Strands
    r"|(?:Visited|Current) URL:? \S+\s+Content omitted\.?",  # OpenHands
    re.IGNORECASE,
)


def is_placeholder(text: str) -> bool:
    """Whether a text stands where a client has taken a result away."""
    if text.startswith(_WITH_PREVIEW):
        return True
    if len(text) > LONGEST:
        return False
    text = text.strip()
    if _OTHERS.fullmatch(text):
        return True
    if not _MAY_BEGIN.match(text):
        return False
    line, _, rest = text.partition("\n")
    words = _WORD.findall(line.lower())[:_PHRASE_WORDS]
    if "\n" in rest or _GONE.isdisjoint(words):
        return False
    if line[0] in "[(<":
        return line.rstrip(" .")[-1] in "])>" and (len(words) == 1 or not _WHAT.isdisjoint(words))
    return words[0] in _OLD and not _WHAT.isdisjoint(words) and not rest
