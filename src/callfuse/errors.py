"""Every error that callfuse raises, in one tree.

    CallFuseError
      ConfigError        a setting is unknown, does not parse or is out of range; raised at start only
      ToolLoopError      a looping call of an in-process agent was blocked, and raising was asked for (`inprocess`)

On the wire callfuse raises nothing: it fails open, logs and counts.
"""


class CallFuseError(Exception):
    """The root: catch this to catch every error of callfuse's own."""


class ConfigError(CallFuseError):
    """A setting is wrong. The message names the key, the value and what would be right."""
