"""The admin page: what holds for a model, a tool and a session, and why. An ASGI app to be mounted."""

from callfuse.admin.app import AdminApp

__all__ = ["AdminApp"]
