"""Routes of a FastAPI app."""

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from scripted import answer

router = APIRouter()


@router.post("/v1/chat/completions")
async def chat(request: Request) -> StreamingResponse:
    """The scripted models."""
    reply = await answer(request.url.path, await request.body())
    return StreamingResponse(reply.pieces, reply.status, media_type=reply.media_type)
