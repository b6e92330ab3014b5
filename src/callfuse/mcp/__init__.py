"""Guard MCP servers over streamable HTTP: a tool that is called in a loop does not run again.

`MCPMiddleware` judges each `tools/call` by earlier calls and results of the same caller. It uses the detectors,
settings and texts of `CallFuseMiddleware`, and needs no MCP package.
"""

from callfuse.mcp.middleware import MCPMiddleware

__all__ = ["MCPMiddleware"]
