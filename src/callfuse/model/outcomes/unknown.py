"""Recognise errors that say that the called tool does not exist, as harnesses and tool servers word them.

The wordings are those of the MCP SDKs, Claude Code, Codex, Gemini CLI, Roo, the AI SDK, pydantic-ai, LangGraph,
smolagents, CrewAI, AutoGen and others. A complaint about another tool than the called one does not count: a tool that
calls others by name exists, whatever it reports about them. A complaint without a name is about the called tool.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from callfuse.model.outcomes.errors import messages
from callfuse.model.outcomes.reading import HEAD

_MAX_MESSAGES: Final = 8
"""How many messages of one result are read."""
_NAME = r"(?:[`'\"“‘<(]([^`'\"”’>)\n]{1,128})[`'\"”’>)]|([\w./:-]{1,128}))"
_WORDINGS: Final = (
    # Unknown tool: x | No such tool available: x | unknown_tool
    r"(?:unknown|no[ _]such|non-?existent|unrecogni[sz]ed|undefined|unavailable|unsupported)[ _](?:tool|function)"
    rf"(?:[ _]?(?:name|called|named|available|requested|specified)){{0,2}}\b[ \t]{{0,3}}[:=]?[ \t]{{0,3}}{_NAME}?",
    rf"(?:unknown action|invalid (?:tool|function) name|unsupported (?:custom tool )?call)[: \t]{{1,4}}{_NAME}",
    rf"model tried to call unavailable tool[: \t]{{1,4}}{_NAME}",
    # Tool not found | tool_not_found | Tool not found: x | Tool x not found | The tool 'x' does not exist
    rf"(?:the )?tool[ _](?:(?:was )?not[ _]found|does not exist|doesn't exist)\b(?:[ \t]?:[ \t]?{_NAME})?",
    rf"(?:the )?(?:requested )?(?:tool|function|action)(?: with name| named| called| name)?[: \t]{{1,4}}{_NAME}[ \t]"
    r"(?:(?:was |could )?not (?:be )?found|(?:does not|doesn't|don't) exist|(?:is |was )?not "
    r"(?:available|recogni[sz]ed|registered|defined|known|supported|an? (?:available|known|valid) (?:tool|function))"
    r"|is (?:unknown|unavailable|undefined)|is not (?:one of|in) the)\b",
    rf"{_NAME} is not an? (?:available|existing|known|recogni[sz]ed|registered|valid) (?:tool|function)\b",
    # There is no tool x | No tool named x
    r"(?:there is |there's |found )?no (?:tool|function)(?: (?:found|with|the|name|named|called|registered|for)){0,4}"
    rf"[: \t]{{1,4}}{_NAME}",
)
_COMPLAINT = re.compile("|".join(_WORDINGS), re.IGNORECASE)
_BEFORE: Final = ("error", "exception", "failed", "are invalid")
"""Text before a complaint, up to a colon, must contain one of these: `MCP error -32602: `."""
_MAX_COLONS: Final = 4
_MARKS: Final = "<>[({*#-! \t\r\n"
_MAY_COMPLAIN: Final = ("tool", "function", "action", "call")
_NOT_LETTERS = re.compile(r"[\W_]+")


def names_unknown_tool(texts: Iterable[str], tool: str) -> bool:
    """Whether one of these texts of an error says that there is no tool of this name."""
    said = (message for text in texts for message in messages(text))
    return any(_says_so(message[:HEAD], tool) for message in islice(said, _MAX_MESSAGES))


def _says_so(text: str, tool: str) -> bool:
    lower = text.lower()
    if not any(word in lower for word in _MAY_COMPLAIN):
        return False
    for _ in range(_MAX_COLONS):
        text = text.lstrip(_MARKS)
        if found := _COMPLAINT.match(text):
            named, own = _plain(next(filter(None, found.groups()), "")), _plain(tool)
            return not named or own.endswith(named) or named.endswith(own)  # either may begin with its server's name
        before, _colon, text = text.partition(":")
        if not any(word in before.lower() for word in _BEFORE):
            return False
    return False


def _plain(name: str) -> str:
    """Return a name in lower case, without characters other than letters and digits."""
    return _NOT_LETTERS.sub("", name).lower()
