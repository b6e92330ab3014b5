"""Gemini's token counts of several answers in one exchange, told as one."""

from typing import Any, Final

from callfuse.dialects.usage import Counts

_OUTPUTS: Final = ("candidatesTokenCount", "thoughtsTokenCount", "candidatesTokensDetails")
_PARTS_OF_TOTAL: Final = ("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
_TOTAL: Final = "totalTokenCount"


class GeminiUsage:
    """As `callfuse.dialects.usage.Usage`: sees the counts of each answer, and tells what the client is to read."""

    def __init__(self, *, summed: bool) -> None:
        self._summed = summed
        self._before: Counts = {}
        self._now: Counts = {}

    def see(self, counts: Any) -> Counts:
        """Note an answer's counts so far, and say what they come to with those of the answers before."""
        if isinstance(counts, dict):
            self._now |= counts
            return self.total()
        return {}

    def next_answer(self) -> None:
        """The counts that follow are another answer's."""
        self._before = self.total()
        self._now = {}

    def total(self) -> Counts:
        """What the client is to read."""
        if not self._before:
            return dict(self._now)
        counts = self._before | self._now
        for key, value in counts.items():
            if self._summed or key in _OUTPUTS:
                counts[key] = _sum(self._before.get(key), self._now.get(key), value)
        if _TOTAL in counts:
            counts[_TOTAL] = sum(int(counts.get(key) or 0) for key in _PARTS_OF_TOTAL)
        return counts


def _sum(one: Any, other: Any, either: Any) -> Any:
    """The sum of two counts, or of two lists of counts by modality."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if isinstance(one, list) and isinstance(other, list):
        totals: dict[Any, int] = {}
        for item in (*one, *other):
            totals[item.get("modality")] = totals.get(item.get("modality"), 0) + (item.get("tokenCount") or 0)
        return [{"modality": modality, "tokenCount": count} for modality, count in totals.items()]
    return either
