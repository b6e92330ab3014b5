"""Carry out the verdicts on one answer: release it unchanged, ask the model again, or send it without withheld calls.

`VerdictActions.plan` records the round and returns what to do, with the mode for the rest of the answer. It sends
nothing itself, so that the guard can enter that mode first.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from callfuse.dialects.base import Block, OpenCall
from callfuse.dialects.codec import Codec
from callfuse.guard.calls import AnswerCalls
from callfuse.guard.cut_text import without_repetition
from callfuse.guard.growing_texts import FoundText, GrowingTexts
from callfuse.guard.queue import HoldQueue, KeptBytes
from callfuse.guard.rewriter import Rewriter
from callfuse.guard.state import Mode
from callfuse.guard.steer_loop import SteerLoop, all_ask
from callfuse.guard.step import Step
from callfuse.model import ToolCall
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung
from callfuse.wire import Payload

_NO_NAME = ""
"""The tool's name in a block's text if no call is known."""
Blocks = Callable[[], Mapping[int, Block]]
"""Returns the blocks that end an answer, by choice."""


class CutText(NamedTuple):
    """A text that runs away and may be cut off, with its verdict."""

    found: FoundText
    verdict: Verdict


class Plan(NamedTuple):
    """What to do with an answer. `mode`: how the guard treats the rest of the answer; None: the rest passes."""

    mode: Mode | None
    carry_out: Callable[[], Step]


class VerdictActions:
    """Carries out the verdicts on one answer and records its round. Methods may raise what a dialect's writer raises.

    `recorded`: the round is on record. `unjudged`: judging has failed, so that there are no verdicts. `cut`: a text
    that runs away, so that the answer may have to end.
    """

    __slots__ = ("_calls", "_codec", "_kept", "_loop", "_queue", "_rewriter", "cut", "recorded", "unjudged")

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
        self.cut: CutText | None = None

    def look(self, texts: GrowingTexts, payload: Payload) -> None:
        """Search the text in a frame for repetition. Record each text that is found; the first that may end the answer
        becomes `cut` instead."""
        texts.read_frame(self._codec.dialect, payload)
        for one in texts.take() if texts.found else ():
            verdict = self._loop.judge.text_verdict(one.part, one.found)
            if self.cut is None and verdict.withholds and self._loop.may_cut:
                self.cut = CutText(one, verdict)
            else:
                self._loop.record.texts.append(one)

    def _observe(self, said: Iterable[Verdict]) -> None:
        """Record verdicts on a text that was not cut off; one that would withhold is only observed."""
        self._loop.record.verdicts += [replace(one, rung=Rung.OBSERVE) if one.withholds else one for one in said]
        self.cut = None

    def observe_cut(self) -> None:
        """Record the text in `cut` as observed, because the answer has ended without an action on the text."""
        if self.cut is not None:
            self._observe([self.cut.verdict])

    def spare(self) -> None:
        """Record the text in `cut` without a verdict, because the answer cannot end here."""
        if self.cut is not None:
            self._loop.record.texts.append(self.cut.found)
        self.cut = None

    def verdicts(self, choices: Iterable[int]) -> list[Verdict]:
        """Return the verdicts on choices, without those that would withhold a call that has left already. If such a
        call's arguments run away, its verdict is only observed, unless the answer ends in the middle of the call."""
        found: list[Verdict] = []
        for calls in self._calls.of_choices(sorted(choices)):
            gone = self._gone(calls)
            for verdict in self._loop.judge.verdicts(list(calls.values())):
                if not (verdict.withholds and verdict.call in gone):
                    found.append(verdict)
                elif gone[verdict.call] in self._calls.finder.growing.found:
                    found.append(verdict.observed())
        return found if self.cut is None else [*found, self.cut.verdict]

    def _gone(self, calls: Mapping[OpenCall, ToolCall]) -> dict[ToolCall, OpenCall]:
        """Return those of these calls that have left already and cannot be withheld."""
        holds = self._queue.holds_call
        return {whole: call for call, whole in calls.items() if not (holds(call) or call is self._calls.endless)}

    def _after_review(self, calls: Mapping[OpenCall, ToolCall], verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return the verdicts as the callback decided, but only observed if they would withhold a call that has
        left."""
        gone = self._gone(calls) if verdicts else {}
        return [one.observed() if one.withholds and one.call in gone else one for one in verdicts]

    def plan(self, verdicts: Sequence[Verdict]) -> Plan:
        """Record the round, and decide whether the answer is released, asked for again, or thinned."""
        calls = self._calls.complete_calls()
        verdicts = self._after_review(calls, verdicts)
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

    def plan_cut(self, verdicts: Sequence[Verdict]) -> Plan:
        """Plan for an answer whose text runs away. If the text may pass, a whole answer is judged by its calls alone,
        and the rest of a stream passes."""
        calls = self._calls.complete_calls()
        of_calls = self._after_review(calls, [one for one in verdicts if not one.finding.part])
        said = next((one for one in verdicts if one.finding.part), None)
        if self.cut and said and said.withholds and not self._codec.is_unfinished(self._kept.chunks):
            return self._cut_off(self.cut.found, said, calls, of_calls)
        self._observe([said] if said is not None else [])
        if self._codec.whole and of_calls:
            return self.plan(of_calls)
        self.recorded = True
        self._keep(calls.values(), [one.observed() if one.withholds else one for one in of_calls])
        return Plan(None, self._release)

    def _cut_off(
        self, found: FoundText, said: Verdict, calls: Mapping[OpenCall, ToolCall], verdicts: Sequence[Verdict]
    ) -> Plan:
        """End a stream in the middle of a text, or trim a whole answer after the text's first lap. Complete calls that
        do not loop stay, and then the answer ends as with calls. Without any, the model may be asked to continue."""
        guilty = {verdict.call for verdict in verdicts if verdict.withholds}
        withheld = {call for call, whole in calls.items() if whole in guilty} | self._never_judged(calls, verdicts)
        withheld |= self._nameless(self._queue.to_judge)
        [said] = self._loop.apply_hardest_rung([said])
        asks = all_ask([said]) and self._loop.may_ask and not self._calls.any
        said, *verdicts = [said, *verdicts] if asks else self._as_blocks([said, *verdicts])
        self.cut, self.recorded = None, True
        self._keep(calls.values(), verdicts)
        self._loop.record.verdicts.append(said)
        if self._codec.whole:
            self._rewriter.trim(partial(without_repetition, found, said=self._codec.dialect.said))
        before = partial(self._rewriter.said_before, found)
        if asks and (ask := self._loop.ask([said], self._rewriter.model_turn, before)):
            write = self._rewriter.before_asking if self._codec.whole else self._rewriter.stop_saying
            return Plan(Mode.SILENT, lambda: Step(write(withheld), ask._replace(cuts=not self._codec.whole)))
        verdicts = [*(self._loop.stop_asking() if asks else [said]), *verdicts]
        return self._end_cut(calls, withheld, verdicts)

    def _end_cut(
        self, calls: Mapping[OpenCall, ToolCall], withheld: set[OpenCall], verdicts: Sequence[Verdict]
    ) -> Plan:
        """End an answer whose text is cut off: with a block's text, or as with calls if any are left."""
        left = [whole for call, whole in calls.items() if call not in withheld]
        self._loop.note(left, verdicts)
        block = self._loop.block(verdicts)
        blocks = {} if left else dict.fromkeys(sorted(self._queue.to_judge), block)
        if self._codec.whole:
            return Plan(Mode.CLOSED, lambda: Step(self._rewriter.thin(withheld, blocks)))
        return Plan(Mode.SILENT, lambda: Step(self._rewriter.end_saying(withheld, blocks), ends=True))

    def _release(self) -> Step:
        self._queue.release_all()
        return Step(self._queue.drain())

    def _never_judged(self, calls: Mapping[OpenCall, ToolCall], verdicts: Sequence[Verdict]) -> set[OpenCall]:
        """Return the calls that are withheld with the judged ones, without a verdict of their own: those after a call
        that ends the round or, in an answer that is cut short, those that have not ended."""
        if self._calls.is_cut:
            return set(self._queue.held).difference(calls)
        ends = {one.call for one in verdicts if one.withholds and self._loop.judge.ends_round(one.finding)}
        over = {call.choice for call, whole in calls.items() if whole in ends} if ends else set()
        return {call for call in self._calls.beyond if call.choice in over}

    def _hardest(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return the verdicts for a round that loses all its calls: blocks if the model cannot be asked again. That is
        so if the turn was cut short, which cannot be sent back; if there are several choices that the request did not
        ask for, because another answer continues only choice 0; or if the caller does not repeat the model's call."""
        verdicts = self._loop.apply_hardest_rung(verdicts)
        has_more = self._loop.record.choices == 1 and not self._calls.choices_known <= {0}
        is_last = self._calls.is_cut or has_more or not self._loop.may_ask
        return self._as_blocks(verdicts) if is_last else verdicts

    def _nameless(self, lost: Collection[int]) -> set[OpenCall]:
        """Return the calls without a name in these choices that can still be withheld."""
        nameless = self._calls.nameless(lost)
        return nameless if self._codec.whole else nameless.intersection(self._queue.held)

    def _thin(
        self,
        calls: Mapping[OpenCall, ToolCall],
        verdicts: Sequence[Verdict],
        withheld: set[OpenCall],
        lost: Iterable[int],
    ) -> Step:
        """Send the queue without the withheld calls. Choices that have `lost` all their calls get a block's text."""
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
        """Ask the model again. If no rung can ask, e.g. because the model's turn cannot be rebuilt, block the choices
        that have `lost` their calls."""
        ask = self._loop.ask(verdicts, self._rewriter.model_turn)
        if ask:
            return Plan(Mode.SILENT, lambda: Step(self._rewriter.before_asking(withheld), ask))
        return Plan(Mode.CLOSED, lambda: self._block_instead(withheld, lost))

    def _block_instead(self, withheld: set[OpenCall], lost: Iterable[int]) -> Step:
        block = self._loop.block(self._loop.stop_asking())
        return Step(self._rewriter.thin(withheld, dict.fromkeys(lost, block)))

    def _may_lose(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether an answer may lose all its calls. If a server-side tool in it waits for its result, a block may not
        replace the calls, and another answer may only if the client has not seen that tool's call."""
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
            self._loop.record.verdicts += [one for one in blocked if one.finding.part]
            of_calls = [one for one in blocked if not one.finding.part]
            self._keep(self._calls.complete_calls().values(), of_calls)

    def keep_delivered(self, verdicts: Sequence[Verdict]) -> None:
        """Record the round of an answer that was delivered."""
        self._keep(self._calls.of_choices((0,))[0].values(), verdicts)

    def keep_cut_off(self) -> None:
        """Record the findings in calls that were cut off."""
        if calls := self._calls.cut_off():
            self._loop.record.observe(calls, self._loop.judge.cut_off_verdicts(calls))

    def _as_blocks(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        return [self._loop.judge.to_block(verdict) if verdict.withholds else verdict for verdict in verdicts]

    def _keep(self, calls: Iterable[ToolCall], verdicts: Sequence[Verdict]) -> None:
        """Record a round and, for a stateful vendor, the id of the answer."""
        self._loop.keep(list(calls), verdicts, lambda: self._codec.payloads(self._kept.chunks))

    def last_words(self, choices: set[int], verdicts: Sequence[Verdict]) -> Iterable[Blocks]:
        """Return the blocks to end an answer with, best first. The first is tried twice: it may fail because of the
        frames that are held, and the second try is without them."""

        def reasons() -> Mapping[int, Block]:
            return {choice: self._loop.block(verdicts) for choice in sorted(choices)}

        return reasons, reasons, partial(_unjudged, dict.fromkeys(sorted(choices), _NO_NAME))

    def unjudged_blocks(self) -> Blocks:
        """Return a block for each choice that has a held call, or for choice 0 if no call is held."""
        names = {call.choice: call.name for call in self._queue.held}
        return partial(_unjudged, names or {0: _NO_NAME})


def _unjudged(names: Mapping[int, str]) -> Mapping[int, Block]:
    """Return the blocks, by choice, for calls that could not be judged. `names`: the tool of each choice."""
    return {choice: Block(texts.unchecked_call(name)) for choice, name in names.items()}
