"""In-chat commands: what a user types into a message to change the settings of a session.

text -> syntax -> commands -> run -> the session's overrides, and what is said about it
"""

from callfuse.commands.run import Ran, run
from callfuse.commands.syntax import Command, Typed, read

__all__ = ["Command", "Ran", "Typed", "read", "run"]
