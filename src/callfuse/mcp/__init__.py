"""Guards MCP servers over streamable HTTP: a tool that is called in a loop does not run again.

`MCPMiddleware` judges each `tools/call` by what the same caller has called, and got, before. It uses the detectors,
settings and texts of `CallFuseMiddleware`, and needs no package of MCP.
"""

from callfuse.mcp.middleware import MCPMiddleware

__all__ = ["MCPMiddleware"]
