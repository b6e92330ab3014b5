"""The section `budget`: limits in their units, prices by globs, and what is wrong with them."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from callfuse.config import load_config
from callfuse.errors import ConfigError
from callfuse.model.spent import Spent, Tokens, Unit, in_words
from callfuse.policy.settings import LoopSettings
from callfuse.policy.spending import BudgetSettings, Price

PRICES = {
    "*": {"input": 9, "output": 9},
    "gpt-4o*": {"input": 2.5, "cached": 1.25, "output": 10},
    "GPT-4o-mini*": {"input": 0.15, "output": 0.6},
    "azure:gpt-4o*": {"input": 3, "output": 12},
}


@pytest.mark.parametrize(
    ("backend", "model", "price"),
    [
        ("openai", "gpt-4o-2024", 2.5),
        ("openai", "gpt-4o-mini", 0.15),
        ("azure", "gpt-4o", 3),
        ("Azure", "GPT-4O", 3),
        ("openai", "o3", 9),
        ("openai", "gpt-4o" + "x" * 10_000, 2.5),
    ],
)
def test_the_longest_glob_counts(backend: str, model: str, price: float) -> None:
    """For the model's name, or for backend and model; in any case."""
    found = BudgetSettings.model_validate({"prices": PRICES}).price_of(backend, model)
    assert found is not None
    assert found.input == price


def test_a_model_without_a_price() -> None:
    """Nobody has said what it costs."""
    assert BudgetSettings.model_validate({"prices": {"gpt*": PRICES["*"]}}).price_of("anthropic", "claude") is None


def test_what_tokens_cost() -> None:
    """In millionths: cached ones have their own price, or that of others; no more are cached than were read."""
    used = Tokens(1000, 400, 100)
    assert Price(input=2.5, cached=1.25, output=10).of(used) == 600 * 2.5 + 400 * 1.25 + 100 * 10
    assert Price(input=2.5, output=10).of(used) == 1000 * 2.5 + 100 * 10
    assert Price(input=2, cached=1, output=0).of(Tokens(10, 99, 5)) == 10


def test_limits_have_their_units() -> None:
    """Money in millionths; what is on is never 0."""
    budget = BudgetSettings.model_validate({"calls": 1, "tokens": 2, "seconds": 0.2, "money": 1e-9, "prices": PRICES})
    assert [budget.limit(unit) for unit in Unit] == [1, 2, 1, 1]
    assert budget.model_copy(update={"money": 0.5, "seconds": 90}).limit(Unit.MONEY) == 500_000


def test_a_copy_knows_its_own_values() -> None:
    """What a tier changes turns it on or off."""
    off = BudgetSettings()
    assert not off.is_on
    assert off.model_copy(update={"tokens": 5}).is_on
    assert off.model_copy(update={"tokens": 5}).reads_tokens
    assert not off.model_copy(update={"seconds": 5}).reads_tokens
    loop = LoopSettings.model_validate({"budget": {"tokens": 5}, "models": {"openai:a*": {"budget": {"tokens": 0}}}})
    assert loop.budget.is_on
    assert not loop.for_exchange("openai:a1").budget.is_on
    assert loop.for_exchange("openai:b1").budget.is_on


RIGHT = "use a number from 0 to 1000000000"
PERIODS = "use none, hour, day, month, or 1 to 31622400 seconds"


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"money": 5}, "budget.money = 5 (keyword): money needs prices; name them in budget.prices, as in {gpt-4o*: "),
        ({"prices": {"a": {"input": 1}}}, f"budget.prices.a.output is missing (keyword): {RIGHT}"),
        ({"prices": {"a": {"input": -1, "output": 1}}}, f"budget.prices.a.input = -1 (keyword): {RIGHT}"),
        ({"prices": {"a": {"input": "free", "output": 1}}}, f"budget.prices.a.input = 'free' (keyword): {RIGHT}"),
        ({"prices": {"a": {"input": 1, "out": 1}}}, "budget.prices.a.out (keyword): unknown key; did you mean"),
        ({"prices": {"a": 3}}, "budget.prices.a = 3 (keyword): use a mapping (input, cached, output)"),
        ({"by": "user"}, "budget.by = 'user' (keyword): use one of turn, session, credential"),
        ({"tokens": -5}, "budget.tokens = -5 (keyword): use a whole number from 0"),
        ({"warn_at": 80}, "budget.warn_at = 80 (keyword): use a number from 0 to 1"),
        ({"tokens": True}, "budget.tokens = true (keyword): use a number"),
        ({"period": "week"}, f"budget.period = 'week' (keyword): {PERIODS}"),
        ({"period": 0}, f"budget.period = 0 (keyword): {PERIODS}"),
        ({"period": 0.5}, f"budget.period = 0.5 (keyword): {PERIODS}"),
        ({"period": 1e300}, f"budget.period = 1e+300 (keyword): {PERIODS}"),
        ({"period": True}, f"budget.period = true (keyword): {PERIODS}"),
        ({"period": "nan"}, f"budget.period = 'nan' (keyword): {PERIODS}"),
        ({"period": [1]}, f"budget.period = [1] (keyword): {PERIODS}"),
        (
            {"period": "day", "tokens": 5},
            "budget.period = 'day' (keyword): a period needs a credential's budget; set budget.by: ",
        ),
        (
            {"period": "day", "by": "session"},
            "budget.period = 'day' (keyword): a period needs a credential's budget; set budget",
        ),
    ],
)
def test_what_is_wrong(budget: dict[str, Any], message: str) -> None:
    """With its key, its value, and what would be right."""
    with pytest.raises(ConfigError) as caught:
        load_config({"tool_call_loop": {"budget": budget}}, {})
    assert f"tool_call_loop.{message}" in str(caught.value)


def test_a_model_that_limits_money_needs_prices_too() -> None:
    """They stand in the section of all models."""
    models = {"openai:gpt*": {"budget": {"money": 5}}}
    with pytest.raises(ConfigError, match=r"models.openai:gpt\*.budget.money = 5 \(keyword\): money needs prices"):
        load_config({"tool_call_loop": {"models": models}}, {})
    load_config({"tool_call_loop": {"models": models, "budget": {"prices": PRICES}}}, {})


@pytest.mark.parametrize(
    ("label", "amount", "words"),
    [
        ("tokens", 1234567, "1,234,567 tokens"),
        ("tokens (estimate)", 5, "5 tokens (estimate)"),
        ("money", 1_500_000, "1.50"),
        ("money (estimate)", 1_234_567, "1.234567 (estimate)"),
        ("seconds", 75, "75 seconds"),
    ],
)
def test_words(label: str, amount: int, words: str) -> None:
    """As texts for people and models have them."""
    assert in_words(label, amount) == words


def test_what_is_spent_adds_up_in_any_order() -> None:
    """Exchanges of one lane may end in any."""
    one, other = Spent(50.0, 1, 10, 0, 7), Spent(40.0, 2, 20, 20, 8, warned=True, turn=b"t")
    assert one.plus(other) == Spent(40.0, 3, 30, 20, 15, True, b"t") == other.plus(one)
    assert Spent().plus(one) == one


def test_what_was_spent_in_a_period_is_nothing_after_it() -> None:
    """What has no period stays."""
    spent = Spent(50.0, 1, 10, until=3600.0)
    assert [spent.at(now) for now in (0.0, 3599.9, 3600.0)] == [spent, spent, Spent()]
    assert Spent(50.0, 1, 10).at(1e10) == Spent(50.0, 1, 10)
    assert spent.plus(Spent(60.0, 1, 5, until=7200.0)) == Spent(50.0, 2, 15, until=7200.0)


def seconds(*date: int) -> float:
    """A time in UTC."""
    return datetime(*date, tzinfo=UTC).timestamp()  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("period", "now", "end"),
    [
        ("none", seconds(2026, 11, 27, 22), 0),
        (None, seconds(2026, 11, 27, 22), 0),
        (False, seconds(2026, 11, 27, 22), 0),
        ("hour", seconds(2026, 11, 27, 22, 59, 59), seconds(2026, 11, 27, 23)),
        ("HOUR", seconds(2026, 11, 27, 22), seconds(2026, 11, 27, 23)),
        ("day", seconds(2026, 12, 31, 23, 59, 59), seconds(2027, 1, 1)),
        ("month", seconds(2026, 12, 31, 23, 59, 59), seconds(2027, 1, 1)),
        ("month", seconds(2028, 2, 1), seconds(2028, 3, 1)),
        ("month", seconds(2028, 2, 29, 23, 59, 59), seconds(2028, 3, 1)),
        ("month", 0.0, seconds(1970, 2, 1)),
        (900, seconds(2026, 11, 27, 22, 14), seconds(2026, 11, 27, 22, 15)),
        ("900", seconds(2026, 11, 27, 22, 15), seconds(2026, 11, 27, 22, 30)),
    ],
)
def test_periods_have_fixed_ends(period: Any, now: float, end: float) -> None:
    """In UTC, whenever a client has begun; `off` and `no` are what YAML reads as false."""
    given = {} if period is None else {"period": period}
    assert BudgetSettings.model_validate({"by": "credential", **given}).end_of_period(now) == end


def test_every_month() -> None:
    """Ends where the calendar says, for four hundred years."""
    budget = BudgetSettings.model_validate({"by": "credential", "period": "month"})
    firsts = [seconds(year, month, 1) for year in range(1970, 2371) for month in range(1, 13)]
    for first, then in pairwise(firsts):
        assert budget.end_of_period(first) == budget.end_of_period(then - 1) == then


def test_a_period_is_of_a_credential() -> None:
    """A turn and a session have none, whatever a tier sets; of a model that has one, it is."""
    for by in ("turn", "session"):
        budget = BudgetSettings.model_construct(by=by, period="day")
        assert budget.end_of_period(5.0) == 0
    models = {"openai:gpt*": {"budget": {"by": "credential", "tokens": 5, "period": "day"}}}
    loop = LoopSettings.model_validate({"models": models})
    assert loop.for_exchange("openai:gpt-4").budget.end_of_period(5.0) == 86400
    assert loop.for_exchange("openai:o3").budget.end_of_period(5.0) == 0
    with pytest.raises(ConfigError, match=r"models.openai:gpt\*.budget.period = 'day' \(keyword\): a period needs a"):
        load_config({"tool_call_loop": {"models": {"openai:gpt*": {"budget": {"period": "day"}}}}}, {})


def test_a_period_from_the_environment() -> None:
    """A word, or seconds."""
    for given, period in (("day", "day"), ("86400", 86400)):
        environment = {"CALLFUSE_BUDGET_BY": "credential", "CALLFUSE_BUDGET_PERIOD": given}
        assert load_config({}, environment).tool_call_loop.budget.period == period
