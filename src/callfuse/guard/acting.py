"""Acts on the verdicts over one answer: it leaves as it came, the model is asked again, or it leaves without calls.

`VerdictActions.plan` records the round and says what is to be done and what becomes of the rest of the answer: nothing
has left by then, so that its guard can enter that mode first.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from callfuse.dialects.base import Block, OpenCall
from callfuse.dialects.codec import Codec
from callfuse.guard.calls import AnswerCalls
from callfuse.guard.queue import HoldQueue, KeptBytes
from callfuse.guard.rewriter import Rewriter
from callfuse.guard.state import Mode
from callfuse.guard.steer_loop import SteerLoop, all_ask
from callfuse.guard.step import Step
from callfuse.model import ToolCall
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict

_NO_NAME = ""
"""The tool's name in a block's text if no call is known."""
Blocks = Callable[[], Mapping[int, Block]]
"""The blocks that end an answer, by choice."""


class Plan(NamedTuple):
    """What is to be done with an answer. `mode`: what becomes of its rest; None: it passes."""

    mode: Mode | None
    carry_out: Callable[[], Step]


class VerdictActions:
    """Acts on the verdicts over one answer, and records its round. Any method may raise what a dialect's writer raises.

    `recorded`: the round is on record. `unjudged`: judging has failed, so that no verdict can be told.
    """

    __slots__ = ("_calls", "_codec", "_kept", "_loop", "_queue", "_rewriter", "recorded", "unjudged")

    def __init__(
        self,
        codec: Codec,
        loop: SteerLoop,
        rewriter: Rewriter,
        queue: HoldQueue,
        calls: AnswerCalls,
        kept: KeptBytes,
    ) -> None:
        self._codec = codec
        self._loop = loop
        self._rewriter = rewriter
        self._queue = queue
        self._calls = calls
        self._kept = kept
        self.recorded = self.unjudged = False

    def verdicts(self, choices: Iterable[int]) -> list[Verdict]:
        """The verdicts on choices, without those that would withhold a call that has left already; one whose arguments
        run away is observed then, unless the answer ends in the middle of it."""
        found: list[Verdict] = []
        holds = self._queue.holds_call
        for calls in self._calls.of_choices(sorted(choices)):
            gone = {whole: call for call, whole in calls.items() if not (holds(call) or call is self._calls.endless)}
            for verdict in self._loop.judge.verdicts(list(calls.values())):
                if not (verdict.withholds and verdict.call in gone):
                    found.append(verdict)
                elif gone[verdict.call] in self._calls.finder.growing.found:
                    found.append(verdict.observed())
        return found

    def plan(self, verdicts: Sequence[Verdict]) -> Plan:
        """Record the round; whether the answer is released, asked for again, or thinned."""
        calls = self._calls.complete_calls()
        guilty = {verdict.call for verdict in verdicts if verdict.withholds}
        withheld = {call for call, whole in calls.items() if whole in guilty}
        withheld |= self._never_judged(calls, verdicts) if withheld else set()
        lost = sorted(self._queue.to_judge - self._calls.choices_beside(withheld))
        if lost:
            verdicts = self._hardest(verdicts)
            if not self._may_lose(verdicts):
                verdicts = [replace(verdict, rung=None) for verdict in verdicts]
                withheld = set()
        elif self._calls.endless is not None:
            verdicts = self._as_blocks(verdicts)
        self.recorded = True
        self._keep(calls.values(), verdicts)
        if withheld:
            withheld |= self._nameless(lost)
        if not withheld:
            return Plan(None, self._release)
        if lost and all_ask(verdicts):
            return self._ask(verdicts, withheld, lost)
        ends = self._calls.is_cut
        return Plan(Mode.SILENT if ends else Mode.CLOSED, partial(self._thin, calls, verdicts, withheld, lost))

    def _release(self) -> Step:
        self._queue.release_all()
        return Step(self._queue.drain())

    def _never_judged(self, calls: Mapping[OpenCall, ToolCall], verdicts: Sequence[Verdict]) -> set[OpenCall]:
        """The held calls that go with those that are withheld: which stand behind one too many, or, in an answer that
        is cut short, have not ended."""
        if self._calls.is_cut:
            return set(self._queue.held).difference(calls)
        ends = {one.call for one in verdicts if one.withholds and self._loop.judge.ends_round(one.finding)}
        over = {call.choice for call, whole in calls.items() if whole in ends} if ends else set()
        return {call for call in self._calls.beyond if call.choice in over}

    def _hardest(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """The verdicts for a round that loses all its calls. Nobody is asked again where nobody can be: if the turn was
        cut short, for it cannot be answered; or if it has several choices that nobody asked for, as another answer goes
        on with choice 0; or if the model's call has been left to itself."""
        verdicts = self._loop.apply_hardest_rung(verdicts)
        has_more = self._loop.record.choices == 1 and not self._calls.choices_known <= {0}
        is_last = self._calls.is_cut or has_more or not self._loop.may_ask
        return self._as_blocks(verdicts) if is_last else verdicts

    def _nameless(self, lost: Collection[int]) -> set[OpenCall]:
        """The calls without a name in these choices, as far as they can still be withheld."""
        nameless = self._calls.nameless(lost)
        return nameless if self._codec.whole else nameless.intersection(self._queue.held)

    def _thin(
        self,
        calls: Mapping[OpenCall, ToolCall],
        verdicts: Sequence[Verdict],
        withheld: set[OpenCall],
        lost: Iterable[int],
    ) -> Step:
        """Send the queue without the withheld calls; in choices that have `lost` all of theirs, with a block's text."""
        self._loop.note([whole for call, whole in calls.items() if call not in withheld], verdicts)
        of_choice: dict[int, list[Verdict]] = {choice: [] for choice in lost}
        where = {whole: call.choice for call, whole in calls.items()}
        for verdict in verdicts:
            of_choice.setdefault(where[verdict.call], []).append(verdict)
        ends, endless = self._calls.is_cut, self._calls.endless
        write = self._rewriter.cut_short if ends else self._rewriter.thin
        if endless is not None and not self._queue.holds_call(endless):
            write = partial(self._rewriter.break_off, endless)
        return Step(write(withheld, {choice: self._loop.block(of_choice[choice]) for choice in lost}), ends=ends)

    def _ask(self, verdicts: Sequence[Verdict], withheld: set[OpenCall], lost: Iterable[int]) -> Plan:
        """Ask the model again; block the choices that have `lost` their calls if no rung can, e.g. because the model's
        turn cannot be rebuilt."""
        ask = self._loop.ask(verdicts, self._rewriter.model_turn)
        if ask:
            return Plan(Mode.SILENT, lambda: Step(self._rewriter.before_asking(withheld), ask))
        return Plan(Mode.CLOSED, lambda: self._block_instead(withheld, lost))

    def _block_instead(self, withheld: set[OpenCall], lost: Iterable[int]) -> Step:
        block = self._loop.block(self._loop.stop_asking())
        return Step(self._rewriter.thin(withheld, dict.fromkeys(lost, block)))

    def _may_lose(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether an answer may lose all its calls. If a server-side tool in it waits for its result: not to a block,
        and to another answer only if the client has not seen that tool's call."""
        if not self._codec.is_unfinished(self._kept.chunks):
            return True
        is_unseen = self._kept.spliced and not self._queue.spoke
        sent = [] if is_unseen else self._kept.without(self._queue)
        return all_ask(verdicts) and not self._codec.is_unfinished(sent)

    def keep_blocked(self, verdicts: Sequence[Verdict]) -> None:
        """Record the round of verdicts that could not be carried out, so that the answer ends in a block."""
        blocked = self._as_blocks(verdicts)
        if self.recorded:
            self._loop.record.replace_last(blocked)
        else:
            self.recorded = True
            self._keep(self._calls.complete_calls().values(), blocked)

    def keep_delivered(self, verdicts: Sequence[Verdict]) -> None:
        """Record the round of an answer that was delivered."""
        self._keep(self._calls.of_choices((0,))[0].values(), verdicts)

    def keep_cut_off(self) -> None:
        """Record what is found in calls that were cut off."""
        if calls := self._calls.cut_off():
            self._loop.record.observe(calls, self._loop.judge.cut_off_verdicts(calls))

    def _as_blocks(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        return [self._loop.judge.to_block(verdict) if verdict.withholds else verdict for verdict in verdicts]

    def _keep(self, calls: Iterable[ToolCall], verdicts: Sequence[Verdict]) -> None:
        """Record a round and, for a stateful vendor, the id of the answer."""
        self._loop.keep(list(calls), verdicts, lambda: self._codec.payloads(self._kept.chunks))

    def last_words(self, choices: set[int], verdicts: Sequence[Verdict]) -> Iterable[Blocks]:
        """The texts to end with, best first. The first is tried twice: it may fail because of what is held beside it,
        and the second try is without that."""

        def reasons() -> Mapping[int, Block]:
            return {choice: self._loop.block(verdicts) for choice in sorted(choices)}

        return reasons, reasons, partial(_unjudged, dict.fromkeys(sorted(choices), _NO_NAME))

    def unjudged_blocks(self) -> Blocks:
        """A block for each choice that has a held call; for the first one if none has."""
        names = {call.choice: call.name for call in self._queue.held}
        return partial(_unjudged, names or {0: _NO_NAME})


def _unjudged(names: Mapping[int, str]) -> Mapping[int, Block]:
    """The blocks, by choice, for calls that could not be judged. `names`: the tool of each choice."""
    return {choice: Block(texts.unchecked_call(name)) for choice, name in names.items()}
