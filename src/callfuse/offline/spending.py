"""Compute the budget use of a recorded run before each of its rounds, for limits of the section `budget`.

Calls are counted. The tokens of an answer come from its record. If the record has none, they are estimated from the
calls: the text of a round, and the texts of all rounds before it. The prompt, and answers without calls, are not
included. Records have no times, so limits in seconds never apply, and a run counts as a credential.
"""

from collections import defaultdict
from collections.abc import Sequence

from callfuse.model import PastCall, Round
from callfuse.model.spent import NO_TOKENS, NOTHING_SPENT, Spent, Tokens
from callfuse.offline.runs import CHARACTERS_A_TOKEN, RecordedRun, estimate_tokens
from callfuse.policy.spending import BudgetSettings, Price


def spent_before(run: RecordedRun, budget: BudgetSettings) -> list[list[Spent]]:
    """Return, for each turn, the budget use before each round, and at the end of the turn. Call this before reading any
    outcome, which drops the result."""
    if not budget.is_on:
        return [[NOTHING_SPENT] * (len(rounds) + 1) for rounds in run.turns]
    price = budget.price_of("", run.model)
    used = defaultdict[tuple[int, bool], Tokens](lambda: NO_TOKENS)
    for one in run.used:
        key = one.rounds_before, one.has_calls
        used[key] = used[key].plus(one.tokens)
    turns, spent, at, context = [list[Spent]() for _ in run.turns], NOTHING_SPENT, 0, 0
    for before, rounds in zip(turns, run.turns, strict=True):
        # An answer in words ends a turn, so it counts only for a session.
        spent = NOTHING_SPENT if budget.by == "turn" else spent
        for round_ in rounds:
            if budget.by != "turn" and (at, False) in used:
                spent = spent.plus(_spent((), used[at, False], price))
            before.append(spent)
            tokens = used[at, True] if (at, True) in used else _estimated(round_, context)
            spent = spent.plus(_spent(round_.calls, tokens, price))
            context += sum(map(estimate_tokens, round_.calls))
            at += 1
        before.append(spent)
    return turns


def _estimated(round_: Round, context: int) -> Tokens:
    """Estimate the tokens of a round. `context`: the tokens of all rounds before it."""
    written = sum(-(-(len(past.name) + len(past.call.text)) // CHARACTERS_A_TOKEN) for past in round_.calls)
    return Tokens(context, 0, written, estimated=context + written)


def _spent(calls: Sequence[PastCall], tokens: Tokens, price: Price | None) -> Spent:
    money = 0 if price is None else price.of(tokens)
    return Spent(0.0, len(calls), tokens.total, tokens.estimated, money)
