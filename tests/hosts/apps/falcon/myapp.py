"""A resource of a Falcon app."""

from falcon.asgi import Request, Response
from scripted import answer


class Chat:
    """The scripted models."""

    async def on_post(self, req: Request, resp: Response) -> None:
        """Answer a chat."""
        reply = await answer(req.path, await req.stream.read())
        resp.status, resp.content_type, resp.stream = reply.status, reply.media_type, reply.pieces
