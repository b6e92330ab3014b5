"""Blow the fuse: if a lane was blocked too often in a row, callfuse answers by itself, without asking the model.

It stays blown until the user writes, a command or an operator resets the session, or a new session begins.
"""

from callfuse.asgi.commands import SyntheticReply
from callfuse.asgi.prepare import Host, Prepared
from callfuse.conversations.blocks import is_typed_since
from callfuse.conversations.timeline import LaneEvidence
from callfuse.model import Delivery
from callfuse.observe.events import FuseBlown
from callfuse.policy import texts

ACTION = b"blown"


async def blown_reply(host: Host, prepared: Prepared, kept: LaneEvidence) -> SyntheticReply | None:
    """Answer a request that would only continue a loop, and emit the event. Returns None if the fuse is not blown.

    If the vendor stores the conversation, a request with results passes, because the vendor needs them.
    """
    settings, request = prepared.settings, prepared.request.get()
    in_a_row = kept.blocks.in_a_row
    if not 0 < settings.blow_after <= in_a_row or not (settings.enabled and settings.blocks):
        return None
    chain = request.chain
    if is_typed_since(kept.blocks, kept.said) or (chain is not None and chain.chained and any(request.rounds())):
        return None
    blocked = [*kept.blocks.calls, *(call for round_ in kept.rounds for call in round_.calls)]
    last = next((one for one in reversed(blocked) if one.delivery is Delivery.BLOCKED), None)
    outcome = last.outcome.text if last and last.outcome else None
    text = texts.blown(last.name if last else "", outcome, in_a_row, settings, request.model)
    answer = request.synthetic_reply(text)
    # So that the lane does not expire while clients ask. A concurrent writer has done the same.
    await host.ledger.write({prepared.lane: prepared.state}, prepared.now, prepared.read)
    host.bus.emit(FuseBlown(prepared.where, in_a_row))
    return SyntheticReply(answer, ACTION)
