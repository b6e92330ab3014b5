"""Habits of single vendors on the wire, each as one hand-written body with the calls that the vendor meant.

What kits render (`tests.support.model.Quirks`) every law is asked of; here is what they do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.dialects.reading import Told

ZEBRA = '{"query":"zebra"}'
OKAPI = '{"query":"okapi"}'


@dataclass(frozen=True, slots=True)
class Quirk:
    """One habit. `calls` are those that the client has of the body; `withheld` is what becomes of them the third time.
    `kept` stays in the body all the same. `form` is that of the body: a streamed one, or `json`. `history` is what came
    before, where that is not `calls`. `finish` is the finish reason that stays (empty: that of a block).
    """

    name: str
    body: bytes
    calls: Sequence[Told] = ()
    withheld: bool = True
    kept: bytes = b""
    form: str = "sse"
    history: Sequence[tuple[str, str]] = ()
    finish: str = ""
