"""Zstandard: that of Python's own library, or of the package that brings it to older ones."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
