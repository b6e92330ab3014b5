"""The admin page, a mountable ASGI app: the settings in effect for a model, a tool and a session, and their sources."""

from callfuse.admin.app import AdminApp

__all__ = ["AdminApp"]
