"""How vendors say that they ended an answer because the model repeated itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from callfuse.dialects.shapes import is_one_of, objects_of
from callfuse.wire import Payload

REPEATED: Final = frozenset({"repetition", "repetition_detected", "repetition_truncation"})
"""Finish reasons in OpenAI's format: vLLM's, the value of vLLM's own key, and that of Xiaomi and Tencent."""
_BESIDE: Final = "stop_reason"
"""vLLM's own key, which stays if a gateway replaces vLLM's finish reason by one of OpenAI's."""
_OLLAMA: Final = "token repeat limit reached"
"""The end of Ollama's error. Older versions send no error: their streams end without it."""


@dataclass(frozen=True, slots=True)
class RepeatFinish:
    """How answers of one format say that the vendor ended them because the model repeated itself.

    `mark`: bytes that occur in each frame, and each whole answer, that says so; empty if no vendor of the format does.
    `reason_in`: returns this finish reason of a payload; empty if the payload has another reason, or none.
    """

    mark: bytes
    reason_in: Callable[[Payload], str]


def _chat_reason(payload: Payload) -> str:
    choices = objects_of(payload.get("choices"))
    reasons: list[Any] = [choice.get(key) for choice in choices for key in ("finish_reason", _BESIDE)]
    return next((reason for reason in reasons if is_one_of(reason, REPEATED)), "")


def _ollama_reason(payload: Payload) -> str:
    error = payload.get("error")
    return _OLLAMA if type(error) is str and error.rstrip().endswith(_OLLAMA) else ""


NO_REPEATS: Final = RepeatFinish(b"", lambda payload: "")
CHAT_REPEATS: Final = RepeatFinish(b'"repetition', _chat_reason)
OLLAMA_REPEATS: Final = RepeatFinish(b'"error"', _ollama_reason)
