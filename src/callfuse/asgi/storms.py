"""Find the storms that a request belongs to: failing requests, sub-agents with the same opening, compactions.

A storm is counted in the state of a lane: failed requests in the lane of the request itself, the others under their own
keys. These keys are read and written only for a request that begins a sub-agent, or that replaces its history by a
summary.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

from callfuse.asgi import off_loop
from callfuse.asgi.changes import change_lanes
from callfuse.asgi.prepare import Host, Prepared
from callfuse.conversations import compactions, spawns
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import LaneState, Read
from callfuse.conversations.retries import find_storm
from callfuse.conversations.storms import Row, storm, with_new
from callfuse.model import Finding


def open_storms(host: Host, prepared: Prepared) -> "Storms | None":
    """Return the storms that a request may belong to; None if there are none. Reads the end of its history, or all of a
    sub-agent's first request."""
    settings, begins = prepared.settings, False
    found: compactions.Compaction | None = None
    if settings.enabled and prepared.lane.named:  # without a session id, conversations cannot be distinguished
        request = prepared.request.get()
        if settings.detectors.compaction_storm:
            found = compactions.read_compaction(request)
        begins = bool(prepared.spawner and settings.detectors.spawn_storm) and spawns.begins(request)
    return Storms(host, prepared, found, begins=begins) if found or begins or prepared.state.storm else None


class Storms:
    """Counts the storms of one request. `found`: the summary at its end; `begins`: a sub-agent begins."""

    __slots__ = ("_begins", "_found", "_host", "_prepared")

    def __init__(self, host: Host, prepared: Prepared, found: compactions.Compaction | None, *, begins: bool) -> None:
        self._host = host
        self._prepared = prepared
        self._found = found
        self._begins = begins

    async def findings(self) -> AsyncIterator[Finding]:
        """Count the request, and yield findings."""
        for found in (await self._failed(), await self._spawned(), await self._compacted()):
            if found is not None:
                yield found

    async def _failed(self) -> Finding | None:
        """Return a finding if the request has failed too often."""
        prepared = self._prepared
        row, body = prepared.state.storm, prepared.request.body
        if not row:
            return None
        return await off_loop.run(partial(find_storm, row, body, prepared.now, prepared.settings), len(body))

    async def _spawned(self) -> Finding | None:
        """Return a finding if this is one sub-agent too many."""
        if not self._begins:
            return None
        lane, spawner, now = self._prepared.lane, self._prepared.spawner, self._prepared.now
        agent = spawns.agent_digest(lane)
        keys = dict.fromkeys((spawns.spawn_lane(lane, spawner), spawns.spawn_lane(lane, lane.session)))
        row = await self._count(*keys, add=lambda row: with_new(row, agent, now, spawns.WITHIN_S))
        limit = self._prepared.settings.limit_of(spawns.KIND)
        return storm(spawns.KIND, lane.fingerprint, len(row), limit, spawns.WITHIN_S)

    async def _compacted(self) -> Finding | None:
        """Return a finding if this is one compaction too many."""
        found, prepared = self._found, self._prepared
        if found is None:
            return None
        rounds, now = prepared.state.rounds, prepared.now
        key = compactions.compaction_lane(prepared.lane)
        row = await self._count(key, add=lambda row: compactions.with_compaction(row, found, rounds, now))
        limit = prepared.settings.limit_of(compactions.KIND)
        return storm(compactions.KIND, found.summary, len(row), limit, compactions.WITHIN_S)

    async def _count(self, key: Lane, *others: Lane, add: Callable[[Row], Row]) -> Row:
        """Add an entry to the row of `key`, write the row under `others`, too, and return it. Nothing is written if the
        row stays as it is, for example if a request is sent again."""
        ledger, prepared = self._host.ledger, self._prepared
        read = Read(key, *await ledger.read(key, prepared.now))
        before = read.state.storm
        row = add(before)
        if row == before:
            return row

        async def make(there: LaneState | None) -> Mapping[Lane, LaneState]:
            nonlocal row
            row = row if there is None else add(there.storm)
            return {one: LaneState(storm=row) for one in (key, *others)}

        await change_lanes(ledger, read, make, prepared.now)
        return row
