"""Play the demo: start the servers, run the agent without and with callfuse, and show the story on a stage.

with Play(stubborn=False, chunk_delay_s=0.05) as play:
    summary = play.act(stage)  # DemoError if something goes wrong
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

from callfuse.boundary import Boundary
from callfuse.demo.agent import run_agent, scripted_model
from callfuse.demo.guests import BY_MODEL
from callfuse.demo.page import Page
from callfuse.demo.servers import DemoError, Log, callfuse_serve
from callfuse.demo.story import EntryKind, RunSummary, Side, StoryEntry, Summary
from callfuse.testing import Answer, ScriptedVendor, VendorRequest, served

TIME_LIMIT_S = 55.0
LOG_PATIENCE_S = 1.0

Happened = StoryEntry | RunSummary | Exception


class StoryView(Protocol):
    """The view of the story."""

    at_once: bool
    """Whether both runs are shown at the same time, or one after the other."""

    def show(self, entry: StoryEntry) -> None:
        """Show one entry."""


class Play:
    """Both runs and their servers. The servers run during the `with` block. The model waits `chunk_delay_s` seconds
    before each chunk, and ignores guidance if it is `stubborn`. `page`: opened once the guard listens."""

    def __init__(self, *, stubborn: bool, chunk_delay_s: float, page: Page | None = None) -> None:
        self._servers = ExitStack()
        self._urls: dict[Side, str] = {}
        self._page = page
        self._happened: queue.Queue[Happened] = queue.Queue()
        self._model = scripted_model(stubborn=stubborn)
        self._log: Log | None = None
        self._steers = 0
        self._findings = 0
        self._holds = 0
        self._telling = threading.Lock()
        self.vendors = {
            Side.WITHOUT: ScriptedVendor(self._model, chunk_delay_s=chunk_delay_s),
            Side.WITH: ScriptedVendor(self._guided_model, chunk_delay_s=chunk_delay_s),
        }

    def _guided_model(self, request: VendorRequest) -> Answer:
        """Answer as the scripted model, or as a guest's. Reports guidance from callfuse."""
        if guest := BY_MODEL.get(request.model):
            return guest.answer(request)
        if request.guidance:
            self._steers += 1
            self._tell_hold(self._steers)
            self._tell(Side.WITH, EntryKind.GUIDANCE, request.guidance)
        return self._model(request)

    def _await_findings(self, count: int) -> None:
        if self._log is not None:
            self._log.wait_for_findings(count, LOG_PATIENCE_S)

    def _tell(self, side: Side, kind: EntryKind, text: str, number: int = 0) -> None:
        self._happened.put(StoryEntry(side, kind, text, number))

    def _on_finding(self, line: str) -> None:
        self._findings += 1
        self._tell_hold(self._findings)
        self._tell(Side.WITH, EntryKind.FINDING, line)

    def _tell_hold(self, count: int) -> None:
        """Report the `count`-th hold, only once. The finding and the guidance both imply it, and either may come
        first."""
        with self._telling:
            if count > self._holds:
                self._holds = count
                self._tell(
                    Side.WITH, EntryKind.HELD, "the same call again waits in the stream; the agent never sees it"
                )

    def _run(self, side: Side, base_url: str) -> None:
        """Do one run, in its own thread. Puts its entries and its end, or its error, into the queue."""

        def tell(kind: EntryKind, text: str, number: int) -> None:
            if side is Side.WITH:  # findings come first in the story, but the log may be late
                self._await_findings(self._steers + (kind is EntryKind.BLOCK))
            self._tell(side, kind, text, number)

        with Boundary(keep_traceback=True) as boundary:
            pause_s = self._page.pause_s if self._page is not None and side is Side.WITH else 0.0
            end, calls = run_agent(f"{base_url}/v1", tell, pause_s=pause_s)
        if boundary.error is not None:  # raised in the main thread
            self._happened.put(boundary.error)
            return
        vendor = self.vendors[side]
        self._happened.put(RunSummary(side, end, calls, len(vendor.requests), vendor.billed.total_tokens))

    def __enter__(self) -> Self:
        with ExitStack() as servers:
            bare, upstream = (servers.enter_context(served(self.vendors[side])) for side in Side)
            token = self._page.token if self._page is not None else ""
            guard, self._log = servers.enter_context(callfuse_serve(upstream, self._on_finding, token))
            self._urls = {Side.WITHOUT: bare, Side.WITH: guard}
            if self._page is not None:
                self._page.open(guard)
            self._servers = servers.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._servers.close()

    def act(self, stage: StoryView) -> Summary:
        """Play both runs. Raises DemoError."""
        deadline = time.monotonic() + TIME_LIMIT_S
        acts: Sequence[Sequence[Side]] = [list(Side)] if stage.at_once else [[side] for side in Side]
        runs = [run for act in acts for run in self._act(act, stage.show, deadline)]
        ends = {run.side: run for run in runs}
        return Summary(ends[Side.WITHOUT], ends[Side.WITH])

    def stay(self) -> None:
        """Keep the page running, if there is one."""
        if self._page is not None:
            self._page.stay(self._urls[Side.WITH])

    def _act(self, sides: Sequence[Side], show: Callable[[StoryEntry], None], deadline: float) -> list[RunSummary]:
        for side in sides:
            threading.Thread(target=self._run, args=(side, self._urls[side]), name=side.value, daemon=True).start()
        runs: list[RunSummary] = []
        while len(runs) < len(sides):
            try:
                happened = self._happened.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise DemoError(f"the demo did not finish within {TIME_LIMIT_S:.0f} seconds") from None
            if isinstance(happened, Exception):
                raise DemoError(f"the agent failed: {type(happened).__name__}: {happened}") from happened
            if isinstance(happened, RunSummary):
                runs.append(happened)
            else:
                show(happened)
        return runs
