"""A FastAPI app with the scripted models, as each replica runs it."""

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

api = FastAPI()


@api.post("/v1/{rest:path}")
async def answer(request: Request):
    """The scripted models; imported by the replica, which gets this function pickled. A header names the replica, and
    no two replicas give an answer or a call the same id."""
    from scripted import answer

    from ray import serve

    replica = serve.get_replica_context().replica_id.unique_id
    reply = await answer(request.url.path, await request.body())
    pieces = (piece.replace(b"_scripted_", f"_{replica}_".encode()) async for piece in reply.pieces)
    return StreamingResponse(pieces, reply.status, {"x-replica": replica}, reply.media_type)
