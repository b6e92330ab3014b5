"""The fuse: a lane that was blocked too often in a row is answered by callfuse itself, without asking the model.

It stays blown until a person has typed something, a command or an operator has reset the session, or another begins.
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
    """Answer a request that would only continue a loop, and emit the event; returns None if the model is to be asked.

    Where the vendor has stored the conversation, a request with results is passed on: the vendor must get them.
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
    # So that it does not mend by being asked. Whoever has written meanwhile has done the same.
    await host.ledger.write({prepared.lane: prepared.state}, prepared.now, prepared.read)
    host.bus.emit(FuseBlown(prepared.where, in_a_row))
    return SyntheticReply(answer, ACTION)
