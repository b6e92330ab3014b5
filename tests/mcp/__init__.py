"""Tests of `callfuse.mcp`; real servers and clients of MCP are in `tests/hosts`."""
