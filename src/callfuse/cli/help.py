"""What the help texts of all commands share."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

NAMES = {"help_option_names": ["-h", "--help"]}
"""The settings of a command's context by which `-h` is `--help`; those below a command have them too."""


class SwitchCommand(TyperCommand):
    """A command whose help shows no type for options that are only on or off."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options, with that of the help."""
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose own options are shown in the same way."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, with those of the help and of the completion."""
        return _without_types(super().get_params(ctx))


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
