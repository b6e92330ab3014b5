"""The names of its settings."""

from pydantic import BaseModel


class ModelSettings(BaseModel):
    """Of a model."""

    model: str


class ServerSettings(BaseModel):
    """Of the server."""

    interrupt_requests: bool = True
