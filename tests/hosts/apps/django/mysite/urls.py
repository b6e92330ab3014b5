"""The one view of a Django project."""

from django.http import HttpRequest, StreamingHttpResponse
from django.urls import path
from scripted import answer


async def chat(request: HttpRequest) -> StreamingHttpResponse:
    """The scripted models."""
    reply = await answer(request.path, request.body)
    return StreamingHttpResponse(reply.pieces, status=reply.status, content_type=reply.media_type)


urlpatterns = [path("v1/chat/completions", chat)]
