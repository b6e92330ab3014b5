"""Counts the steps of a regular expression, and makes texts that attack it.

`re` counts nothing, so its syntax tree is walked here as its machine does: depth first, with backtracking. A step is a
character (or a place) that is looked at. What `re` leaves out by looking for literals first is counted, too.
"""

import importlib
import re
from collections.abc import Iterator
from random import Random
from typing import Any

_parser: Any = importlib.import_module("re._parser")
_CATEGORIES = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_ONE = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_SAMPLE = "a0 \n\t-_.:;,/\\<>()[]{}'\"`=*!xEZ\x1b\x07"
_MOST_TIMES = 3

Groups = dict[int, str]
State = tuple[int, Groups]


class Machine:
    """A pattern, and `steps`, which counts up. Bytes are read as Latin-1."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        source = pattern.pattern
        self.is_bytes = isinstance(source, bytes)
        self.flags = pattern.flags
        self.steps = 0
        self._nodes = list(_parser.parse(source, pattern.flags))
        self._fits: dict[tuple[str, int, str], bool] = {}

    def find_all(self, text: str, *, anchored: bool = False) -> list[tuple[int, int]]:
        """The spans that `finditer` finds; `anchored`: only the one that `match` finds."""
        found = []
        at = 0
        while at <= len(text):
            self.steps += 1
            match = next(self._run(self._nodes, 0, text, at, {}), None)
            if match is not None:
                found.append((at, match[0]))
            if anchored:
                break
            at = match[0] if match is not None and match[0] > at else at + 1
        return found

    def _run(self, nodes: Any, index: int, text: str, at: int, groups: Groups) -> Iterator[State]:
        if index == len(nodes):
            yield at, groups
            return
        op, argument = str(nodes[index][0]), nodes[index][1]
        for end, after in self._node(op, argument, text, at, groups):
            yield from self._run(nodes, index + 1, text, end, after)

    def _node(self, op: str, argument: Any, text: str, at: int, groups: Groups) -> Iterator[State]:
        self.steps += 1
        if op in _ONE:
            if at < len(text) and self._is_one(op, argument, text[at]):
                yield at + 1, groups
        elif op == "AT":
            if self._is_place(str(argument), text, at):
                yield at, groups
        elif op == "BRANCH":
            for branch in argument[1]:
                yield from self._run(branch, 0, text, at, groups)
        elif op == "SUBPATTERN":
            for end, after in self._run(argument[3], 0, text, at, groups):
                yield end, after | ({argument[0]: text[at:end]} if argument[0] is not None else {})
        elif op == "GROUPREF":
            said = groups.get(argument)
            if said is not None and text.startswith(said, at):
                self.steps += len(said)
                yield at + len(said), groups
        elif op in ("ASSERT", "ASSERT_NOT"):
            start = at if argument[0] > 0 else at - argument[1].getwidth()[0]
            found = next(self._run(argument[1], 0, text, start, groups), None) if start >= 0 else None
            if (found is not None) is (op == "ASSERT"):
                yield at, found[1] if found is not None else groups
        elif op == "ATOMIC_GROUP":
            yield from self._first(self._run(argument, 0, text, at, groups))
        elif op in _REPEATS:
            yield from self._repeat(op, argument, text, at, groups)
        else:
            raise NotImplementedError(op)

    @staticmethod
    def _first(found: Iterator[State]) -> Iterator[State]:
        one = next(found, None)
        if one is not None:
            yield one

    def _repeat(self, op: str, argument: Any, text: str, at: int, groups: Groups) -> Iterator[State]:
        least, most, inner = argument
        if len(inner) == 1 and str(inner[0][0]) in _ONE:
            yield from self._repeat_one(op, least, most, inner[0], text, at, groups)
        elif op == "POSSESSIVE_REPEAT":
            yield from self._first(self._times(inner, least, most, text, at, groups, lazy=False))
        else:
            yield from self._times(inner, least, most, text, at, groups, lazy=op == "MIN_REPEAT")

    def _repeat_one(
        self, op: str, least: int, most: int, one: Any, text: str, at: int, groups: Groups
    ) -> Iterator[State]:
        end = at
        name, argument = str(one[0]), one[1]
        if op == "MIN_REPEAT":
            while end - at <= int(most):
                if end - at >= least:
                    yield end, groups
                self.steps += 1
                if end == len(text) or not self._is_one(name, argument, text[end]):
                    return
                end += 1
            return
        while end < len(text) and end - at < int(most) and self._is_one(name, argument, text[end]):
            self.steps += 1
            end += 1
        for stop in range(end, at + least - 1, -1):
            self.steps += 1
            yield stop, groups
            if op == "POSSESSIVE_REPEAT":
                return

    def _times(
        self, inner: Any, least: int, most: int, text: str, at: int, groups: Groups, *, lazy: bool
    ) -> Iterator[State]:
        """The states after so many times, the most first; the fewest if `lazy`."""
        if lazy and least <= 0:
            yield at, groups
        if int(most) > 0:
            for end, after in self._run(inner, 0, text, at, groups):
                if end > at or least > 0:
                    yield from self._times(inner, least - 1, int(most) - 1, text, end, after, lazy=lazy)
        if not lazy and least <= 0:
            yield at, groups

    def _is_one(self, op: str, argument: Any, char: str) -> bool:
        key = (op, id(argument), char)  # the nodes keep their arguments
        if key not in self._fits:
            self._fits[key] = self._fits_one(op, argument, char)
        return self._fits[key]

    def _fits_one(self, op: str, argument: Any, char: str) -> bool:
        if op == "ANY":
            return char != "\n" or bool(self.flags & re.DOTALL)
        forms = {char, char.lower(), char.upper()} if self.flags & re.IGNORECASE else {char}
        if op in ("LITERAL", "NOT_LITERAL"):
            return (chr(argument) in forms) is (op == "LITERAL")
        items = [(str(kind), value) for kind, value in argument]
        negated = bool(items) and items[0][0] == "NEGATE"
        return any(self._is_item(kind, value, one) for kind, value in items[negated:] for one in forms) is not negated

    def _is_item(self, kind: str, value: Any, char: str) -> bool:
        if kind == "LITERAL":
            return char == chr(value)
        if kind == "RANGE":
            return bool(value[0] <= ord(char) <= value[1])
        name = str(value).removeprefix("CATEGORY_")
        flags = re.ASCII if self.is_bytes else re.NOFLAG
        return (re.match(_CATEGORIES[name.removeprefix("NOT_")], char, flags) is None) is name.startswith("NOT_")

    def _is_place(self, name: str, text: str, at: int) -> bool:
        lines = bool(self.flags & re.MULTILINE)
        if name in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return at == 0 or (lines and name == "AT_BEGINNING" and text[at - 1] == "\n")
        if name == "AT_END":
            return at == len(text) or (text[at] == "\n" and (lines or at == len(text) - 1))
        if name == "AT_END_STRING":
            return at == len(text)
        words = [place >= 0 and re.match(r"\w", text[place : place + 1]) is not None for place in (at - 1, at)]
        return (words[0] != words[1]) is (name == "AT_BOUNDARY")

    def sample(self, random: Random) -> str:
        """A text that the pattern fits, or nearly so: assertions are not minded."""
        return self._sample_of(self._nodes, random)

    def _sample_of(self, nodes: Any, random: Random) -> str:
        return "".join([self._sample_one(str(op), argument, random) for op, argument in nodes])

    def _sample_one(self, op: str, argument: Any, random: Random) -> str:
        if op == "LITERAL":
            return chr(argument)
        if op in _ONE:
            fitting = [char for char in _SAMPLE if self._is_one(op, argument, char)]
            fitting += [chr(value) for kind, value in (argument if op == "IN" else ()) if str(kind) == "LITERAL"]
            return random.choice(fitting or ["?"])
        if op == "BRANCH":
            return self._sample_of(random.choice(argument[1]), random)
        if op in _REPEATS:
            times = random.randint(argument[0], min(int(argument[1]), argument[0] + _MOST_TIMES))
            return "".join([self._sample_of(argument[2], random) for _ in range(times)])
        if op in ("SUBPATTERN", "ATOMIC_GROUP"):
            return self._sample_of(argument[3] if op == "SUBPATTERN" else argument, random)
        if op == "ASSERT":
            return self._sample_of(argument[1], random) if argument[0] > 0 else ""
        return ""


def attacks(machine: Machine, random: Random, count: int) -> Iterator[tuple[str, str, str]]:
    """Texts in three parts, of which the middle one is to be repeated: pieces of what the pattern fits."""
    for _ in range(count):
        whole = machine.sample(random)
        start = random.randrange(len(whole) + 1)
        end = random.randint(start, min(len(whole), start + 12))
        head = whole[: random.choice([0, start])]
        yield head, whole[start:end] or random.choice(_SAMPLE), random.choice(["", "!", "\n", "\x00"])


def steps(machine: Machine, text: str, *, anchored: bool = False) -> int:
    """The steps that one search takes."""
    machine.steps = 0
    machine.find_all(text, anchored=anchored)
    return machine.steps
