"""Tests of `callfuse.findings`: what was found, kept beyond a restart."""
