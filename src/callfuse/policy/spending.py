"""The section `budget`: what a turn, a session or a credential may spend, and what tokens cost."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Protocol, Self

from pydantic import Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from callfuse.model.spent import MICROS, Tokens, Unit
from callfuse.policy.fields import Amount, Share, Strict, Whole
from callfuse.policy.periods import NO_PERIOD, Period, end_of

Scope = Literal["turn", "session", "credential"]
Limit = Annotated[Whole, Field(ge=0)]
NO_PRICES: Final = "money needs prices; name them in budget.prices, as in {gpt-4o*: {input: 2.5, output: 10}}"
NOT_OF_A_CREDENTIAL: Final = "a period needs a credential's budget; set budget.by: credential"
LONGEST_NAME: Final = 256
"""Characters of a model's name that are looked at."""


class Price(Strict):
    """What the tokens of a model cost, each per million of them, in any one currency."""

    input: Amount
    """Tokens of requests."""
    cached: Amount | None = None
    """Those of them that the vendor has read from its cache; as `input` if not set."""
    output: Amount
    """Tokens of answers."""

    def of(self, used: Tokens) -> int:
        """Return what an answer costs, in millionths."""
        cached = self.input if self.cached is None else self.cached
        read = min(used.cached, used.input)
        return round((used.input - read) * self.input + read * cached + used.output * self.output)


class BudgetSettings(Strict):
    """What may be spent before calls are stopped, in one of several units. A limit of 0 is off."""

    by: Scope = "turn"
    """What a budget is for: a `turn` (since the last message of the user), a `session`, or all sessions of a
    `credential`."""
    period: Period = NO_PERIOD
    """The period after which a `credential` gets a new budget: `hour`, `day`, `month` (of UTC) or a number of seconds;
    `none` counts on until the credential is forgotten."""
    calls: Limit = 0
    """The most calls of tools; 0 is off."""
    tokens: Limit = 0
    """The most tokens of requests and answers, as vendors count them; 0 is off."""
    seconds: Amount = 0
    """The most seconds since the first request; 0 is off."""
    money: Amount = 0
    """The most money, in the currency of `prices`; 0 is off."""
    warn_at: Share = 0.8
    """The part of a limit (0 to 1) from which on the model is warned, once, in a result; 0 is off."""
    count: bool = False
    """Whether to read the tokens of answers even if no limit needs them."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """What models cost, by globs for their names, or for backend and model as one text; the longest match counts."""

    def limit(self, unit: Unit) -> int:
        """Return the limit of a unit: money in millionths; seconds and money are at least 1 if the limit is on."""
        match unit:
            case Unit.MONEY:
                return max(round(self.money * MICROS), int(self.money > 0))
            case Unit.SECONDS:
                return max(round(self.seconds), int(self.seconds > 0))
        return self.calls if unit is Unit.CALLS else self.tokens

    def end_of_period(self, now: float) -> float:
        """Return when the period that contains a time ends, both in Unix seconds; 0 if there is no period."""
        return end_of(self.period, now) if self.by == "credential" else 0.0

    @cached_property
    def is_on(self) -> bool:
        """Whether there is any limit."""
        return bool(self.calls or self.tokens or self.seconds or self.money)

    @cached_property
    def reads_tokens(self) -> bool:
        """Whether the tokens of answers are read."""
        return bool(self.count or self.tokens or self.money or self.prices)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the settings as pydantic does, but without the cached values that are computed from them."""
        copy = super().model_copy(update=update, deep=deep)
        for name in ("is_on", "reads_tokens"):
            vars(copy).pop(name, None)
        return copy

    def price_of(self, backend: str, model: str) -> Price | None:
        """Return the price of a model; None if no price is set."""
        name = model[:LONGEST_NAME].lower()
        names = (name, f"{backend.lower()}:{name}")
        for glob in sorted(self.prices, key=len, reverse=True):
            if any(fnmatchcase(one, glob.lower()) for one in names):
                return self.prices[glob]
        return None


class SomeBudget(Strict):
    """As `BudgetSettings`, whose prices hold for all models; None leaves the value of the tier below."""

    by: Scope | None = None
    period: Period | None = None
    calls: Limit | None = None
    tokens: Limit | None = None
    seconds: Amount | None = None
    money: Amount | None = None
    warn_at: Share | None = None
    count: bool | None = None


class Tiered(Protocol):
    """A tier that may have a budget of its own."""

    @property
    def budget(self) -> SomeBudget | None:
        """The values of the budget that the tier sets."""


def check_budgets(budget: BudgetSettings, models: Mapping[str, Tiered]) -> None:
    """Raise ValidationError if, for all models or for some, money is limited without prices, or a period is set for a
    budget that is not of a credential."""
    tiers: dict[tuple[str, ...], SomeBudget] = {
        ("models", name): own for name, tier in models.items() if (own := tier.budget) is not None
    }
    scopes = {budget.by, *[own.by for own in tiers.values()]}
    errors: list[InitErrorDetails] = []
    if budget.money and not budget.prices:
        errors.append(_error("prices", NO_PRICES, ("budget", "money"), budget.money))
    if budget.period != NO_PERIOD and "credential" not in scopes:
        errors.append(_error("period", NOT_OF_A_CREDENTIAL, ("budget", "period"), budget.period))
    for above, own in tiers.items():
        if own.money and not budget.prices:
            errors.append(_error("prices", NO_PRICES, (*above, "budget", "money"), own.money))
        if own.period not in (None, NO_PERIOD) and (own.by or budget.by) != "credential":
            errors.append(_error("period", NOT_OF_A_CREDENTIAL, (*above, "budget", "period"), own.period))
    if errors:
        raise ValidationError.from_exception_data("budget", errors, hide_input=True)


def _error(kind: str, message: str, place: tuple[str, ...], value: object) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError(kind, "{error}", {"error": message}), loc=place, input=value)
