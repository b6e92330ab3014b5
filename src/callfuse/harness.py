"""Recognise the texts that harnesses (coding agents, frameworks) write into conversations.

In user messages: reminders, automatic retries, summaries, tool reports, tagged elements. In results: reminders at the
end, ids of processes and shells, a person's refusal, and placeholders for an old result. The marker of callfuse's own
texts is defined here too, because it occurs in the same places.
"""

import re
from collections.abc import Sequence
from typing import Final

MARKER: Final = "[callfuse]"
"""Every text that callfuse writes into a conversation begins with this, and is recognised by it later."""

OWN_KEY: Final = "callfuse"
"""The key under which callfuse adds a text to a result that is a JSON object."""

_OWN_TEXT: Final = re.compile(r"(?:\A|\n\n)\[callfuse\].*", re.DOTALL)
"""Matches a text that callfuse has added to a result, up to the end of the result."""

# User messages.

_REMINDER_TAGS: Final = ("system-reminder", "environment_details")
_REMINDERS: Final = {f"</{tag}>": f"<{tag}>" for tag in _REMINDER_TAGS}
"""The tags around reminders: closing tag to opening tag."""
_RETRIES: Final = (
    "Validation feedback:\n",  # pydantic-ai; since 2.68 the next two
    "Your previous response failed the application's validation (this is automated feedback",
    "<pyai:validation_errors>",
    "You have stopped calling tools without finishing",  # Gemini CLI's sub-agents, and the next two
    "[System: You previously returned an empty response",
    "[The previous response was interrupted before it completed.]",
)
"""Beginnings of automatic retries: the harness found no usable answer and asks the model again."""
_RETRY_OF_MINI: Final = re.compile(r"Tool call error:\s*<error>\s*No tool calls found in the response")
"""The retry of mini-swe-agent, whose templates differ in white space."""
_SUMMARIES: Final = (
    "This session is being continued from a previous conversation",  # Claude Code
    "Another language model started to solve this problem",  # Codex
    "Here is a summary of the conversation to date:",  # LangChain
    "<state_snapshot>",  # Gemini CLI, Qwen Code
)
"""Beginnings of summaries: the harness has compacted its history, and continues from there."""
_BEGINNING: Final = 512
"""How many bytes of a text are read to recognise its first words."""
_GO_ON: Final = "Continue if you have next steps"
"""OpenCode always writes this text after a summary by the model; this is its beginning."""
_AUTOMATIC: Final = (MARKER, *_REMINDERS.values(), *_RETRIES)
_REPORT: Final = re.compile(r"\[[\w-]+(?: for .*)?\] Result:")
"""The beginning of a tool's result in a user text, by Cline and Roo, whose models call tools in plain text."""
_TAG: Final = re.compile(r"<(/?)([A-Za-z_][\w:.-]*+)")
"""The beginning of a tag of any name: harnesses put elements into the user's texts."""


def is_automatic(text: str) -> bool:
    """Whether a text in a user message was written by callfuse, or is a reminder or automatic retry of a harness."""
    text = text.lstrip()
    return text.startswith(_AUTOMATIC) or _RETRY_OF_MINI.match(text) is not None


_LONGEST_NUDGE: Final = 200
_NUDGES: Final = re.compile(
    r"(?:please )?(?:continue|proceed)(?: with (?:the|your) (?:next |remaining )?(?:steps?|tasks?|work))?"
    r"|(?:this is |current |you are (?:at|on) )?(?:iteration|step|turn)\W{1,3}\d{1,9}(?: ?(?:/|of) ?\d{1,9})?",
    re.IGNORECASE,
)
"""What harnesses write after results to make the model continue: whole texts, without the `_MARKS` around them."""
_MARKS: Final = " \t\r\n.!:;*_#=~()[]-"


def is_nudge(text: str, *, shows: bool) -> bool:
    """Whether a text in a user message after results only asks to continue, counts steps, or is the caption of a
    screenshot. `shows`: the message contains media."""
    if len(text) > _LONGEST_NUDGE:
        return False
    return _NUDGES.fullmatch(text.strip(_MARKS)) is not None or (shows and "screen" in text.lower())


def is_summary(text: str) -> bool:
    """Whether a text in a user message is a harness's summary, which replaces the history."""
    return text.lstrip().startswith(_SUMMARIES)


def begins_summary(text: bytes) -> bool:
    """Whether a text in UTF-8 is a harness's summary, as in `is_summary`."""
    return is_summary(text[:_BEGINNING].decode("utf-8", "replace"))


def is_word_behind_summary(text: str) -> bool:
    """Whether a text in a user message is what a harness writes after a summary by the model."""
    return text.lstrip().startswith(_GO_ON)


def is_tool_report(text: str) -> bool:
    """Whether a text in a user message reports the result of a tool."""
    return _REPORT.match(text) is not None


def has_own_words(text: str) -> bool:
    """Whether a text is automatic and more than a reminder; callfuse or a harness wrote its whole message then."""
    return is_automatic(text) and not text.lstrip().startswith(tuple(_REMINDERS.values()))


def typed_starts(texts: Sequence[str]) -> list[int | None]:
    """Return where a person's words begin in each text of one user message; None where that is unknown.

    They begin after the elements at the beginning of a text. The last closing tag ends the elements, because a file or
    a page inside an element may contain the same tag. Nothing before the last element of the message was typed, whether
    that element spans several texts or fills one. If an element is not closed, its end is unknown. If a closing tag has
    no opening tag in the message, the beginning was cut off, and nothing in the message is known to be typed. Texts
    without tags at the start of the message were typed if only whole reminders follow.
    """
    first = next((at for at, text in enumerate(texts) if "<" in text), len(texts))
    if all(map(_is_whole_reminder, texts[first:])):
        return [*[0] * first, *[text.rfind(">") + 1 for text in texts[first:]]]
    return _starts_behind_elements(texts)


def _starts_behind_elements(texts: Sequence[str]) -> list[int | None]:
    """Return `typed_starts` of any texts: nothing before the last element was typed."""
    starts: list[int | None] = []
    inside = 0  # the number of texts up to the end of the last element
    elements = _Elements()
    for text in texts:
        if not elements.opened and _is_whole_reminder(text):  # its tags open and close nothing in other texts
            inside = len(starts)
            starts.append(text.rfind(">") + 1)
            continue
        begins = bool(elements.opened) or text.lstrip().startswith("<")
        last = elements.read(text)
        if elements.are_cut:
            return [None] * len(texts)
        if last and (begins or elements.reach_back):
            inside = len(starts)
        if not (begins or elements.reach_back):
            starts.append(0)
        elif elements.opened:
            starts.append(None)
        else:
            starts.append(text.find(">", last.end()) + 1 or None if last else 0)
    return [*[None] * inside, *starts[inside:]]


class _Elements:
    """Tracks which elements of a message are open, text by text.

    `opened`: the names of open elements. `are_cut`: a closing tag had no opening tag. `reach_back`: the last text
    closed an element that an earlier text opened.
    """

    def __init__(self) -> None:
        self.opened: set[str] = set()
        self.are_cut = False
        self.reach_back = False
        self._count = 0
        self._opened_by: dict[str, int] = {}

    def read(self, text: str) -> re.Match[str] | None:
        """Read the tags of the next text; return its last closing tag."""
        self._count += 1
        self.reach_back = False
        last: re.Match[str] | None = None
        for tag in _TAG.finditer(text):
            name = tag[2]
            if not tag[1]:
                self._opened_by[name] = self._count
                self.opened.add(name)
                continue
            by = self._opened_by.get(name)
            self.are_cut |= by is None and not self.opened
            self.reach_back |= by is not None and by < self._count
            self.opened.discard(name)
            last = tag
        return last


def _is_whole_reminder(text: str) -> bool:
    """Whether a text is one reminder from its beginning to its end."""
    text = text.strip()
    return any(text.startswith(start) and text.endswith(end) for end, start in _REMINDERS.items())


# Results.


def strip_additions(text: str) -> str:
    """Remove from the text of a result what callfuse has added, and the reminders at its end."""
    if MARKER in text:
        text = _OWN_TEXT.sub("", text)
    ended = text.rstrip()
    return ended[: _reminders_start(ended)] if ended.endswith(tuple(_REMINDERS)) else text


def _reminders_start(text: str) -> int:
    """The start of the reminders at the end of a text; its length if there are none."""
    end = at = len(text)
    while at >= 0:
        end = at
        while end and text[end - 1].isspace():
            end -= 1
        start = next((start for close, start in _REMINDERS.items() if text.endswith(close, 0, end)), None)
        at = text.rfind(start, 0, end) if start else -1
    return end


_RUN_IDS: Final = tuple(
    (hint, re.compile(pattern, re.MULTILINE))
    for hint, pattern in (
        # Gemini CLI and qwen-code, below the output; in plain text, or in an object.
        (b"Process Group PGID: ", rb"((?:^|\")Process Group PGID: )[0-9]++"),
        (b"Background PIDs: ", rb"((?:^|\")Background PIDs: )[0-9]++(?:, [0-9]++)*+"),
        # GitHub Copilot CLI: completed with exit code 0; started in background; still running after 30 seconds.
        (b"hellId: ", rb"(<(?:[a-z ]{1,48} )?shellId: )[0-9]++"),
        # Codex, above the output.
        (b"with session ID ", rb"(^Process running with session ID )[0-9]++"),
        # Claude Code, and where it writes the output: /tmp/claude-501/.../tasks/b20hid1oz.output
        (b" with ID: ", rb"(^Command (?:running in|exceeded|was manually)[^\n]{0,120}? with ID: )[\w-]++"),
        (b".output", rb"((?:[/\\]t|\t)asks[/\\]{1,2})\w{1,64}(?=\.output\b)"),  # `\t`: already a tab
    )
)
"""Numbers and ids that a harness creates for each call and writes into its result; each with a text that is searched
first, which is faster. Numbers that the tool itself writes are not included: if they change, that is progress."""


def strip_run_ids(raw: bytes) -> bytes:
    """Replace a harness's numbers and ids in a result by `0`, line by line."""
    for hint, pattern in _RUN_IDS:
        if hint in raw:
            raw = pattern.sub(rb"\g<1>0", raw)
    return raw


_PERSONS_NO: Final = re.compile(
    r"(?:error: |\W){0,4}(?:"
    r"the user doesn't want to (?:proceed with this tool use|take this action)"  # Claude Code
    r"|(?:exec command|patch) rejected by user"  # Codex
    r"|\[operation cancelled\] reason: "  # Gemini CLI, qwen-code
    r"|command (?:was )?cancelled by (?:the )?user"
    r"|tool execution (?:was )?(?:not approved|denied)"  # OpenAI Agents, AI SDK
    r"|the tool call was denied"  # pydantic-ai
    # Cline and Roo, opencode, Goose, GitHub Copilot CLI, LangChain
    r"|(?:the )?user (?:has )?(?:denied this operation|rejected permission to use|declined to run this tool)"
    r"|(?:the )?user (?:has )?(?:declined|denied|rejected) (?:the|this) (?:command|tool (?:call|use))"
    r")",
    re.IGNORECASE,
)
"""What harnesses write in place of a result if a person refused the call."""


def is_persons_no(text: str) -> bool:
    """Whether a text in place of a result says that a person refused the call."""
    return _PERSONS_NO.match(text) is not None


_CODEX_HEAD: Final = re.compile(
    r"(?:(?:Chunk ID|Wall time|Original token count|Total output lines): [^\n]{1,80}+\n"
    r"|(?P<state>(?:Exit code: |Process exited with code |Process running with session ID )\d{1,10}+)\n){1,8}+"
    r"Output:(?:\n|\Z)"
)
"""The lines that Codex puts above the output of a command."""
_WRAPPERS: Final = ("untrusted_context", "tool_use_error")
"""Elements around a whole result: Gemini CLI's, Claude Code's."""


def strip_wrapping(text: str) -> str:
    """Remove what a harness wraps around a result, so that it can be quoted; a state other than success stays."""
    text = text.strip()
    if head := _CODEX_HEAD.match(text):
        state = head["state"] or ""
        body = text[head.end() :].strip()
        return body if not state or (state.endswith(" 0") and body) else f"{state}\n{body}".strip()
    for name in _WRAPPERS:
        if text.startswith(f"<{name}>"):
            return text.removeprefix(f"<{name}>").removesuffix(f"</{name}>").strip()
    return text


# Placeholders: clients replace old results with these to save context. Every client has its own wording, but nearly
# all are one short phrase in brackets that says what is gone: "[Old tool result content cleared]" (Claude Code,
# opencode, OpenClaw, Qwen Code), "[cleared]" (LangChain), "[Output removed to save context - ...]" (opencode),
# "[[NOTE] This file read has been removed to save space ...]" (Cline), or, by age, "Old environment output: (12 lines
# omitted)" (SWE-agent). `_OTHERS` lists the rest.

_LONGEST: Final = 400
"""Characters; a longer text is a result, whatever it says."""

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
"""Cheap first check: most results do not begin like a placeholder."""
_PHRASE_WORDS: Final = 14
"""How many words of the phrase are read: they say what is gone, and reasons may follow."""

_WITH_PREVIEW: Final = ("[Trimmed", "<tool_output_masked>")
"""Beginnings of placeholders that quote a little of the result: OpenAI Agents, Gemini CLI."""

_OTHERS = re.compile(
    r"\[(?:image|screenshot)\]"  # Stagehand
    r"|The tool result was too large!"  # Strands
    r"|(?:Visited|Current) URL:? \S+\s+Content omitted\.?",  # OpenHands
    re.IGNORECASE,
)


def is_placeholder(text: str) -> bool:
    """Whether the text of a result is a placeholder, because the client has removed the result."""
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
