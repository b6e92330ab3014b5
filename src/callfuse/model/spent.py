"""Add up what exchanges have spent: the tokens of one answer, and the sum for a turn, a session or a credential."""

from enum import StrEnum
from typing import Final, NamedTuple

MICROS: Final = 1_000_000
"""Millionths of the currency: amounts of money are whole numbers of these, so that any order of adding is the same."""


class Unit(StrEnum):
    """The units that a budget counts."""

    CALLS = "calls"
    TOKENS = "tokens"
    SECONDS = "seconds"
    MONEY = "money"


class Tokens(NamedTuple):
    """The tokens of answers. `cached` are those of the `input` that were read from a cache. `estimated`: how many of
    all are estimated from characters, because the vendor has sent no count. `money`: in millionths, 0 without a price.
    """

    input: int = 0
    cached: int = 0
    output: int = 0
    estimated: int = 0
    money: int = 0

    @property
    def total(self) -> int:
        """Return the sum of input and output tokens."""
        return self.input + self.output

    def plus(self, other: "Tokens") -> "Tokens":
        """Return the sum of both."""
        return Tokens(*[one + more for one, more in zip(self, other, strict=True)])


NO_TOKENS: Final = Tokens()


class Spent(NamedTuple):
    """What the exchanges of a turn, a session or a credential have spent, up to now.

    `since`: when the first request came, in Unix seconds; 0 if there was none. `estimated`: how many of the `tokens`
    are estimated. `warned`: the model has been warned that a limit is near. `turn`: the digest of the turn's user
    message. `until`: the end of the budget's period, in Unix seconds; 0 if there is no period.
    """

    since: float = 0.0
    calls: int = 0
    tokens: int = 0
    estimated: int = 0
    money: int = 0
    warned: bool = False
    turn: bytes = b""
    until: float = 0.0

    def at(self, now: float) -> "Spent":
        """Return what counts at a time in Unix seconds: nothing once the period has ended."""
        return NOTHING_SPENT if 0 < self.until <= now else self

    def plus(self, more: "Spent") -> "Spent":
        """Return the sum of both; independent of the order, because exchanges may end in any order."""
        return Spent(
            min(filter(None, (self.since, more.since)), default=0.0),
            self.calls + more.calls,
            self.tokens + more.tokens,
            self.estimated + more.estimated,
            self.money + more.money,
            self.warned or more.warned,
            more.turn or self.turn,
            max(self.until, more.until),
        )

    def amount(self, unit: Unit, now: float) -> int:
        """Return how much of a unit is spent; money in millionths. `now`: in Unix seconds."""
        if unit is Unit.SECONDS:
            return max(0, int(now - self.since)) if self.since else 0
        amount: int = getattr(self, unit)
        return amount


NOTHING_SPENT: Final = Spent()


def in_words(label: str, amount: float) -> str:
    """Return an amount in words: `12,345 tokens`; money without a word, because it may be any currency. `label`: the
    unit and any remark on it."""
    number = figure(label, amount)
    return number + label.removeprefix(Unit.MONEY) if label.startswith(Unit.MONEY) else f"{number} {label}"


def figure(label: str, amount: float) -> str:
    """Return the amount without a unit; money is passed in millionths."""
    if not label.startswith(Unit.MONEY):
        return f"{amount:,.0f}"
    written = f"{amount / MICROS:,.6f}"
    return written[:-4] + written[-4:].rstrip("0")
