"""callfuse: the fuse on the wire between AI agents and models."""

from callfuse.asgi import CallFuseMiddleware
from callfuse.errors import CallFuseError, ConfigError

__version__ = "0.1.0"

__all__ = ["CallFuseError", "CallFuseMiddleware", "ConfigError", "__version__"]
