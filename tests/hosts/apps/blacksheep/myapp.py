"""Routes of a BlackSheep app."""

from collections.abc import AsyncIterator

from blacksheep import Application, Request, Response, StreamedContent
from scripted import answer


def add_routes(api: Application) -> None:
    """Add the scripted models."""

    @api.router.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        reply = await answer(request.url.path.decode(), await request.read() or b"")

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in reply.pieces:
                yield piece

        return Response(reply.status, content=StreamedContent(reply.media_type.encode(), pieces))
