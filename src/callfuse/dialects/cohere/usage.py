"""Cohere's counts of several answers, told as one: those of `tokens` and of `billed_units`, each by itself."""

from typing import Any, Final

from callfuse.dialects.usage import Counts, Usage

_NESTED: Final = ("billed_units", "tokens")


class NestedUsage:
    """Sees each answer's counts and tells what the client is to read."""

    def __init__(self, *, summed: bool) -> None:
        self._all = Usage("", "output_tokens", summed=summed)
        self._nested = {key: Usage("input_tokens", "output_tokens", summed=summed) for key in _NESTED}

    def see(self, counts: Any) -> Counts:
        """Note an answer's counts, and say what they come to with those of the answers before."""
        if not isinstance(counts, dict):
            return {}
        self._all.see(counts)
        for key, usage in self._nested.items():
            usage.see(counts.get(key))
        return self.total()

    def next_answer(self) -> None:
        """The counts that follow are another answer's."""
        for usage in (self._all, *self._nested.values()):
            usage.next_answer()

    def total(self) -> Counts:
        """What the client is to read."""
        nested = {key: usage.total() for key, usage in self._nested.items()}
        return self._all.total() | {key: counts for key, counts in nested.items() if counts}
