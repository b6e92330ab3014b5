"""What real vendors refuse: the rules that a request must keep, as pure functions.

A dialect's name and a parsed request body enter; the broken rules leave, each as one sentence that begins with the
place in the body. An empty list means that the vendor would accept the history. The sentences are our own; real
vendors answer HTTP 400 at the first broken rule, these functions report them all.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from callfuse.testing.rules import anthropic, cohere, gemini, ollama, openai_chat, openai_responses

RULES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "openai-chat": openai_chat.broken,
    "openai-responses": openai_responses.broken,
    "anthropic": anthropic.broken,
    "gemini": gemini.broken,
    "ollama": ollama.broken,
    "cohere-v2": cohere.broken,
}


def violations(dialect: str, body: Mapping[str, Any]) -> list[str]:
    """The vendor's rules that `body` breaks, in the order of the body; `dialect` is a key of `RULES`."""
    rules = RULES.get(dialect)
    if rules is None:
        raise ValueError(f"no rules for the dialect {dialect!r}; use one of {', '.join(RULES)}")
    return list(rules(body))


__all__ = ["RULES", "violations"]
