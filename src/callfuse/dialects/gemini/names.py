"""The two spellings of Gemini's keys in requests: camelCase, and the snake_case that the vendor takes as well."""

import re
from typing import Any, Final

_HUMP: Final = re.compile(r"(?<=[a-z])([A-Z])")

FUNCTION_CALL: Final = "functionCall"
FUNCTION_RESPONSE: Final = "functionResponse"
SIGNATURE: Final = "thoughtSignature"

_NAMES: Final = (
    FUNCTION_CALL,
    FUNCTION_RESPONSE,
    SIGNATURE,
    "allowedFunctionNames",
    "cachedContent",
    "candidateCount",
    "functionCallingConfig",
    "functionDeclarations",
    "generationConfig",
    "maxOutputTokens",
    "responseJsonSchema",
    "responseMimeType",
    "responseSchema",
    "systemInstruction",
    "toolConfig",
)
_SNAKE: Final = {name: _HUMP.sub(lambda match: "_" + match.group(1).lower(), name) for name in _NAMES}


def key(holder: Any, name: str) -> str:
    """The key under which an object has this, in whichever spelling."""
    snake = _SNAKE[name]
    return snake if isinstance(holder, dict) and name not in holder and snake in holder else name


def get(holder: Any, name: str) -> Any:
    """What an object has under this key; None where it is no object, or has it not."""
    return holder.get(key(holder, name)) if isinstance(holder, dict) else None
