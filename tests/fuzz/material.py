"""What is damaged: answers and requests of every dialect, the kits' own and, where they are there, recorded ones.

In: nothing. Out: `Material`s in an order that is the same in every run. The kits' come first, so that a case over
them alone (`--own`) is the same wherever it is run.
"""

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.captures.recordings import Kit, made, recordings
from tests.fuzz.plain import KNOWN, draw_answer
from tests.support.kits import KITS, DialectKit, stream_of, target_of
from tests.support.model import Answer

OF_EACH = 40
"""Answers that are made of each kit, streamed and whole."""
SHAPES = ((), (0,), (0,), (0, 1), (1, 0, 3), (0, 0), (0, 4), (2,), (3,))
"""The known calls of an answer; 4 is one that nobody knows."""


@dataclass(frozen=True, slots=True)
class Material:
    """An answer, or a request, that a vendor or a client would write."""

    kit: Kit
    key: str
    body: bytes
    stream: bool
    is_request: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    """Names and arguments of an answer's calls: what its conversation may have seen."""
    answer: Answer | None = None
    """What it is rendered from; None where it is recorded."""

    @property
    def form(self) -> str:
        """The form of an answer: `sse`, `ndjson`, `array`, `binary` or `json`."""
        start = self.body.lstrip()[:1]
        return {b"[": "array", b"{": "ndjson", b"\0": "binary"}.get(start, "sse") if self.stream else "json"

    @property
    def target(self) -> tuple[str, bytes]:
        """Path and query of the request that it belongs to."""
        own = next((kit for kit in KITS if kit is self.kit), None)
        return target_of(own, stream=self.stream) if own else (self.kit.path, b"")


@cache
def own() -> tuple[Material, ...]:
    """The kits' own answers."""
    dice = random.Random("the kits' own")
    return tuple(_made(kit, dice, at, stream=at % 3 > 0) for kit in KITS for at in range(OF_EACH))


@cache
def recorded() -> tuple[Material, ...]:
    """The recorded ones; none where the folder is missing."""
    return tuple(
        Material(one.kit, one.key, one.body, one.stream, one.form == "request.json", tuple(map(made, one.own_calls)))
        for one in recordings()
    )


def _made(kit: DialectKit, dice: random.Random, at: int, *, stream: bool) -> Material:
    which = [KNOWN[place] for place in dice.choice(SHAPES)]
    answer = draw_answer(kit, dice, which, f"a{at}")
    body = stream_of(kit, answer) if stream else kit.whole(answer)
    calls: tuple[tuple[str, Any], ...] = tuple((call.name, call.arguments or "{}") for call in answer.calls())
    return Material(kit, f"{kit.name} {at}", body, stream, calls=calls, answer=answer)
