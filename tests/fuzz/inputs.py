"""What libFuzzer mutates: bytes, of which the first choose a case and the rest is the body that the case is about.

A zero in the head is what is usual, so that an input without a head is a case, too. The body is an answer, or the
request; it stands in place of the material, whose calls are those that the conversation has seen.
"""

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

from tests.fuzz.cases import CALLBACKS, CODINGS, ENDINGS, KINDS, SETTINGS, Case, Part, Turn, pool, request_of
from tests.fuzz.corpus import MOST_TURNS
from tests.fuzz.material import OF_EACH, own
from tests.fuzz.mutations import Mutation, draw, mutate

STATUSES: Final = (200, 201, 204, 400, 404, 429, 500, 302)
PAUSES_S: Final = (0.0, 1.0, 20.0, 70.0, 130.0)
MOST_AFTER: Final = 40
"""Messages after which an exchange may end otherwise than usual."""
SEEDS_OF_EACH: Final = 6
"""Materials of each kit that a search begins with; two of three are streams."""
HEAD_SHARE: Final = 0.15
"""Of all changes, those in the head: among thousands of bytes, it would nearly never be changed."""
DAMAGE_SHARE: Final = 0.5
"""Those that a damage of `mutations` makes, after which most bodies still are JSON in their frames."""


class Head(NamedTuple):
    """What the first bytes choose; each number counts modulo how many there are to choose from."""

    material: int = 0
    history: int = 0
    settings: int = 0
    callback: int = 0
    is_request: int = 0
    """Odd where the body is the request's."""
    ending: int = 0
    after: int = 0
    coding: int = 0
    kind: int = 0
    status: int = 0
    pause: int = 0
    dies: int = 0
    """Odd where the app raises at the end."""
    turns: int = 0
    next: int = 0
    """The material of the answer when the app is called again; 0 for the same body."""
    first_cut: int = 0
    second_cut: int = 0
    third_cut: int = 0
    """Each in 256ths of the body; 0 for none, and 255 for a cut after every byte."""


HEAD: Final = struct.Struct(">HH15B")


def input_of(head: Head, body: bytes) -> bytes:
    """The bytes of an input."""
    return HEAD.pack(*head) + body


def case_of_input(data: bytes, *, own_only: bool) -> Case:
    """The case of any bytes."""
    head = Head._make(HEAD.unpack(data[: HEAD.size].ljust(HEAD.size, b"\0")))
    answers = _answers(own_only=own_only)
    material = answers[head.material % len(answers)]
    cuts = tuple(-1.0 if cut == 255 else cut / 256 for cut in head[-3:] if cut)
    coding = ("", *CODINGS)[head.coding % (len(CODINGS) + 1)]
    kind = (None, *KINDS)[head.kind % (len(KINDS) + 1)]
    pause_s = PAUSES_S[head.pause % len(PAUSES_S)]
    body = Part(material, (), cuts, coding, kind, pause_s=pause_s, body=data[HEAD.size :])
    if head.is_request % 2:
        request, first = replace(body, material=-1, kind=None), Part(material, kind=kind)
    else:
        status = STATUSES[head.status % len(STATUSES)]
        request, first = Part(-1), replace(body, status=status, dies=head.dies % 2 == 1)
    replies = (first, Part(_neighbour(material, head.next, own_only=own_only))) if head.next else (first,)
    turn = Turn(head.history, request, replies, ENDINGS[head.ending % len(ENDINGS)], head.after % MOST_AFTER)
    callback = ("", *CALLBACKS)[head.callback % (len(CALLBACKS) + 1)]
    return Case(head.settings % SETTINGS, callback, (turn,) * (1 + head.turns % MOST_TURNS), own_only)


def seeds() -> Iterator[bytes]:
    """Inputs to begin with: answers of every kit, and requests that go with them, nothing damaged."""
    for material, one in enumerate(own()):
        if material % OF_EACH < SEEDS_OF_EACH:
            yield input_of(Head(material, history=material), one.body)
            case = case_of_input(input_of(Head(material, history=material), one.body), own_only=True)
            yield input_of(Head(material, is_request=1), request_of(case, case.turns[0], whole=True).body)


def mutated(data: bytes, most: int, dice: random.Random, other: Callable[[bytes, int], bytes]) -> bytes:
    """An input made from another, with at most so many bytes: a choice in its head, a damage to its body, or what
    `other` makes of it."""
    share = dice.random()
    head, body = bytearray(data[: HEAD.size].ljust(HEAD.size, b"\0")), data[HEAD.size :]
    if share < HEAD_SHARE:
        head[dice.randrange(len(head))] = dice.choice((0, dice.randrange(256)))
    elif share < HEAD_SHARE + DAMAGE_SHARE:
        body = mutate(body, draw(dice)[:1] or (Mutation("json", dice.getrandbits(32)),))
    else:
        return other(data, most)
    return (bytes(head) + body)[:most]


@cache
def _answers(*, own_only: bool) -> tuple[int, ...]:
    return tuple(at for at, one in enumerate(pool(own_only=own_only)) if not one.is_request)


def _neighbour(material: int, number: int, *, own_only: bool) -> int:
    """Another answer of the same kit and form."""
    first = pool(own_only=own_only)[material]
    found = [at for at, one in enumerate(own()) if one.kit is first.kit and one.stream == first.stream]
    return found[number % len(found)] if found else material
