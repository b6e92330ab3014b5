"""Serve the admin page, a mountable ASGI app: the live page, and the settings in effect for a model, a tool and a
session."""

from callfuse.admin.app import AdminApp

__all__ = ["AdminApp"]
