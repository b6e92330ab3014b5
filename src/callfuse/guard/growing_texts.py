"""Search the text and the reasoning of one answer for endless repetition, while they grow.

Before `UNREAD` bytes of a stream have come, nothing is searched, and no frame is parsed for the search: healthy answers
end before this limit, or soon after. From the frame that exceeds the limit on, wherever chunks end, each frame is read.

A vendor may also find a repetition, and end the answer. Frames that may say so have a mark, and are always read.
"""

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from callfuse.detect.kind import FINISH, REASONING, TEXT
from callfuse.detect.runaway import LEAST, GrowingText, Runaway
from callfuse.detect.runaway_call import RunawayCall
from callfuse.dialects.base import Dialect
from callfuse.dialects.said import SaidPiece
from callfuse.policy.settings import LoopSettings
from callfuse.wire import Payload

UNREAD: Final = 256 * 1024
"""In bytes. OpenAI's frames, with one token each, have 220 to 330 bytes, so this is about 1,000 tokens. A text that
runs away continues up to the answer's length limit of 16,000 to 65,000 tokens. It cannot be found before `LEAST`
characters have come, which take 200,000 to 340,000 of these bytes."""
MOST: Final = 8
"""How many texts of an answer, the newest ones, are searched while they grow, and how many are reported."""


class FoundText(NamedTuple):
    """A text that runs away. `part`: `TEXT` or `REASONING`; `FINISH` if the vendor has found it: the finish reason then
    replaces the lap. `place`: as in `SaidPiece`."""

    part: str
    found: Runaway
    place: Hashable = ""


class GrowingTexts:
    """The texts of one answer. `room`: bytes that may come before frames are read, counted from the end of the last
    whole frame; below 0, each frame is read. `room` never exceeds `max_response_bytes`, so that no longer frame passes
    unread. `found`: texts that were found and not taken yet."""

    __slots__ = ("_detectors", "_growing", "_most", "_told", "found", "room")

    def __init__(self, settings: LoopSettings, *, whole: bool = False) -> None:
        self._detectors = settings.detectors
        self._most = self.room = min(LEAST if whole else UNREAD, settings.max_response_bytes)
        self._growing: dict[object, GrowingText] = {}
        self._told = 0
        self.found: list[FoundText] = []

    def read_frame(self, dialect: Dialect, payload: Payload) -> None:
        """Search the text of a frame, if there is no `room` left, and read its finish reason."""
        if self.room < 0:
            self.read(dialect.said(payload))
        reason = dialect.repeats.reason_in(payload)
        if reason and not self._told and self._finds(FINISH):
            self._tell(FINISH, Runaway(0, len(reason), reason, exact=True))

    def read(self, said: Iterable[SaidPiece]) -> None:
        """Search pieces of what the model says."""
        if not (self._finds(TEXT) or self._finds(REASONING)):
            self.room = self._most
            return
        growing = self._growing
        for part, place, piece in said:
            text = growing.get((part, place))
            if text is None and self._finds(part):
                text = growing[part, place] = GrowingText()
                if len(growing) > MOST:
                    del growing[next(iter(growing))]
            if text is not None and text.found is None and (found := text.add(piece)) and self._told < MOST:
                self._tell(part, found, place)

    def _tell(self, part: str, found: Runaway, place: Hashable = None) -> None:
        self._told += 1
        self.found.append(FoundText(part, found, place))

    def _finds(self, part: str) -> bool:
        return self._detectors.finds(RunawayCall.kind.name, part)

    def take(self) -> list[FoundText]:
        """Return the texts that were found since the last time."""
        found, self.found = self.found, []
        return found
