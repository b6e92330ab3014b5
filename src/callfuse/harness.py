"""What harnesses (coding agents, frameworks) write into conversations beside people, models and tools.

Into user messages: reminders, automatic retries, reports of tools that they run by themselves, elements with tags. Into
results: reminders behind the text, and placeholders in place of an old result. The mark of callfuse's own texts stands
here too, because it is looked for in the same places.
"""

import re
from collections.abc import Iterator
from typing import Final

MARKER: Final = "[callfuse]"
"""Every text that callfuse writes into a conversation begins with this, and is recognised by it."""

OWN_KEY: Final = "callfuse"
"""The key under which callfuse adds a text to a result that is an object."""

_OWN_TEXT: Final = re.compile(r"(?:\A|\n\n)\[callfuse\].*", re.DOTALL)
"""What callfuse has added to a result."""

# User messages.

_REMINDER_TAGS: Final = ("system-reminder", "environment_details")
_REMINDERS: Final = {f"</{tag}>": f"<{tag}>" for tag in _REMINDER_TAGS}
"""The tags around texts that a harness adds, by how they end."""
_RETRIES: Final = (
    "Validation feedback:\n",  # pydantic-ai; from 2.68 on the next two
    "Your previous response failed the application's validation (this is automated feedback",
    "<pyai:validation_errors>",
    "You have stopped calling tools without finishing",  # Gemini CLI's sub-agents, and the next two
    "[System: You previously returned an empty response",
    "[The previous response was interrupted before it completed.]",
)
"""How a harness begins that has found no answer in what the model said, and tries again by itself."""
_RETRY_OF_MINI: Final = re.compile(r"Tool call error:\s*<error>\s*No tool calls found in the response")
"""The same of mini-swe-agent, whose templates differ in their white space."""
_AUTOMATIC: Final = (MARKER, *_REMINDERS.values(), *_RETRIES)
_REPORT: Final = re.compile(r"\[[\w-]+(?: for .*)?\] Result:")
"""How a harness reports, as a user's text, what a tool has given that the model called in its text (Cline, Roo)."""
_ELEMENTS: Final = (
    # Claude Code, by itself and in an editor.
    r"system-reminder|local-command-\w+|bash-\w+|ide_\w+|task-notification|user-prompt-submit-hook"
    # Cline and those that descend from it.
    r"|environment_details|(?:file|folder|url)_content|workspace_diagnostics|terminal_output|git_\w+"
    # Codex.
    r"|environment_context|user_instructions|INSTRUCTIONS|subagent_notification"
)
_ELEMENT: Final = re.compile(rf"(<({_ELEMENTS})\b.*?(?:</\2>|\Z))", re.DOTALL)
"""What harnesses put into texts of the user's."""


def is_automatic(text: str) -> bool:
    """Whether a text in a user message is callfuse's own, a harness's reminder or its automatic retry."""
    text = text.lstrip()
    return text.startswith(_AUTOMATIC) or _RETRY_OF_MINI.match(text) is not None


def is_tool_report(text: str) -> bool:
    """Whether a text in a user message reports what a tool has given."""
    return _REPORT.match(text) is not None


def split_typed(text: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a text of a user message, each with whether a person has typed it, or it is a harness's element."""
    at = 0
    for match in _ELEMENT.finditer(text):
        yield text[at : match.start()], True
        yield match[0], False
        at = match.end()
    yield text[at:], True


# Results.


def strip_additions(text: str) -> str:
    """A result's text as the tool wrote it: without what callfuse has added, and the reminders behind it."""
    if MARKER in text:
        text = _OWN_TEXT.sub("", text)
    ended = text.rstrip()
    return ended[: _reminders_start(ended)] if ended.endswith(tuple(_REMINDERS)) else text


def _reminders_start(text: str) -> int:
    """Where the reminders start with which a text ends."""
    end = at = len(text)
    while at >= 0:
        end = at
        while end and text[end - 1].isspace():
            end -= 1
        start = next((start for close, start in _REMINDERS.items() if text.endswith(close, 0, end)), None)
        at = text.rfind(start, 0, end) if start else -1
    return end


# Placeholders: what clients put where an old result stood, to save context. There are as many wordings as clients, but
# nearly all are one short phrase in brackets that says what is gone: "[Old tool result content cleared]" (Claude Code,
# opencode, OpenClaw, Qwen Code), "[cleared]" (LangChain), "[Output removed to save context - ...]" (opencode),
# "[[NOTE] This file read has been removed to save space ...]" (Cline), or, by age, "Old environment output: (12 lines
# omitted)" (SWE-agent). The others are a table.

_LONGEST: Final = 400
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
    if len(text) > _LONGEST:
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
