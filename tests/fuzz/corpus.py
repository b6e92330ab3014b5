"""Cases that have reached something new, kept in a folder, and cases made from them.

A case is a JSON file of some hundred bytes. It names its material by key, so that a file is good for later versions,
too: a case whose material is gone is left out. What is kept is bounded by `MOST_KEPT`; since each case has reached an
edge that none before it has, it is bounded by the code as well.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tests.fuzz.cases import CALLBACKS, ENDINGS, SETTINGS, Case, Part, draw_cuts, pool, simpler
from tests.fuzz.mutations import KINDS, draw
from tests.fuzz.reach import Edge

MOST_KEPT: Final = 4000
MOST_TURNS: Final = 3
MOST_MUTATIONS: Final = 12
"""Of one body."""
MOST_SMALLER: Final = 20
"""Cases that are tried to find a smaller one that reaches the same."""


class Damaged(ValueError):
    """A text that is no case."""


@dataclass(frozen=True)
class Stored:
    """A case as it is written, with the keys of its material."""

    case: Case
    materials: dict[int, str]


_STORED: Final = TypeAdapter(Stored)


@cache
def _names(*, own_only: bool) -> tuple[str, ...]:
    """A name for each material of the pool; several may have the same key."""
    had: Counter[str] = Counter()
    names = []
    for one in pool(own_only=own_only):
        names.append(f"{one.key} #{had[one.key]}")
        had[one.key] += 1
    return tuple(names)


def text_of(case: Case) -> str:
    """A case as JSON in one line."""
    names = _names(own_only=case.own_only)
    keys = {part.material: names[part.material] for part in _parts(case) if part.material >= 0}
    return _STORED.dump_json(Stored(case, keys)).decode()


def case_of(text: str) -> Case | None:
    """The case of a text; None where its material does not exist here. Raises Damaged."""
    try:
        stored = _STORED.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise Damaged(f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")) from error
    case, keys = stored.case, stored.materials
    if not case.turns or not all(turn.replies for turn in case.turns):
        raise Damaged("an exchange or an answer is missing")
    if not 0 <= case.configuration < SETTINGS:
        raise Damaged(f"settings {case.configuration} do not exist")
    if unknown := [kind for part in _parts(case) for kind, _ in part.mutations if kind not in KINDS]:
        raise Damaged(f"the damage {unknown[0]!r} does not exist")
    named = {part.material for part in _parts(case)} - {-1}
    if not named <= set(keys) or any(reply.material < 0 for turn in case.turns for reply in turn.replies):
        raise Damaged("the key of a material is missing")
    places = {name: at for at, name in enumerate(_names(own_only=case.own_only))}
    if not all(keys[at] in places for at in named):
        return None
    return _with_parts(case, lambda part: replace(part, material=places.get(keys.get(part.material, ""), -1)))


@dataclass
class Corpus:
    """The cases of a folder, which is made where it does not exist."""

    folder: Path
    most: int = MOST_KEPT
    cases: list[Case] = field(default_factory=list)
    left_out: int = 0
    """Cases that reached something new when the folder was full, or whose material does not exist."""

    def load(self) -> list[tuple[Path, Case]]:
        """The files of the folder, the smallest first. Raises Damaged."""
        self.folder.mkdir(parents=True, exist_ok=True)
        found = []
        for path in sorted(self.folder.glob("*.json"), key=lambda path: (path.stat().st_size, path.name)):
            try:
                case = case_of(path.read_text(encoding="utf-8"))
            except (Damaged, UnicodeDecodeError) as error:
                raise Damaged(f"{path} is no case of this fuzzer: {error}; delete the file") from error
            if case is None:
                self.left_out += 1
            else:
                found.append((path, case))
        return found

    def keep(self, case: Case) -> Path | None:
        """Keep a case and return its file; None where the folder is full."""
        if len(self.cases) >= self.most:
            self.left_out += 1
            return None
        self.cases.append(case)
        text = text_of(case)
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"
        path.write_text(text, encoding="utf-8")
        return path


def smaller(case: Case, edges: set[Edge], reached: Callable[[Case], set[Edge]]) -> Case:
    """A case that reaches the same edges with less in it, as far as some tries find one."""
    tries = MOST_SMALLER
    while tries:
        for one in simpler(case):
            tries -= 1
            if edges <= reached(one):
                case = one
                break
            if not tries:
                return case
        else:
            return case
    return case


def vary(cases: Sequence[Case], dice: random.Random) -> Case:
    """A case that differs in one to three things from one of these."""
    case = dice.choice(cases)
    for _ in range(dice.choice((1, 1, 2, 3))):
        case = dice.choice(_WAYS)(case, cases, dice)
    return case


def _damaged_more(case: Case, _cases: Sequence[Case], dice: random.Random) -> Case:
    more = draw(dice)
    return _with_one_part(case, dice, lambda part: replace(part, mutations=(*part.mutations, *more)[:MOST_MUTATIONS]))


def _damaged_otherwise(case: Case, _cases: Sequence[Case], dice: random.Random) -> Case:
    return _with_one_part(case, dice, lambda part: replace(part, mutations=(*part.mutations[:-1], *draw(dice)[:1])))


def _cut_otherwise(case: Case, _cases: Sequence[Case], dice: random.Random) -> Case:
    return _with_one_part(case, dice, lambda part: replace(part, cuts=draw_cuts(dice)))


def _other_settings(case: Case, _cases: Sequence[Case], dice: random.Random) -> Case:
    return replace(case, configuration=dice.randrange(SETTINGS), callback=dice.choice(("", case.callback, *CALLBACKS)))


def _other_turn(case: Case, _cases: Sequence[Case], dice: random.Random) -> Case:
    at = dice.randrange(len(case.turns))
    turn = case.turns[at]
    other = replace(turn, history=dice.getrandbits(32)) if dice.random() < 0.5 else replace(
        turn, ending=dice.choice(ENDINGS), after=dice.randrange(40)
    )  # fmt: skip
    return replace(case, turns=(*case.turns[:at], other, *case.turns[at + 1 :]))


def _one_turn_more(case: Case, cases: Sequence[Case], dice: random.Random) -> Case:
    other = dice.choice([one for one in cases if one.own_only == case.own_only])
    turns = (*case.turns, dice.choice((*case.turns, *other.turns)))
    return replace(case, turns=turns[-MOST_TURNS:])


def _less(case: Case, _cases: Sequence[Case], dice: random.Random) -> Case:
    return dice.choice(simpler(case) or [case])


_WAYS: Final[tuple[Callable[[Case, Sequence[Case], random.Random], Case], ...]] = (
    _damaged_more, _damaged_more, _damaged_otherwise, _cut_otherwise, _other_settings, _other_turn, _one_turn_more,
    _less,
)  # fmt: skip


def _parts(case: Case) -> list[Part]:
    return [part for turn in case.turns for part in (turn.request, *turn.replies)]


def _with_parts(case: Case, change: Callable[[Part], Part]) -> Case:
    turns = [
        replace(turn, request=change(turn.request), replies=tuple(map(change, turn.replies))) for turn in case.turns
    ]
    return replace(case, turns=tuple(turns))


def _with_one_part(case: Case, dice: random.Random, change: Callable[[Part], Part]) -> Case:
    numbers = iter(range(len(_parts(case))))
    chosen = dice.randrange(len(_parts(case)))
    return _with_parts(case, lambda part: change(part) if next(numbers) == chosen else part)
