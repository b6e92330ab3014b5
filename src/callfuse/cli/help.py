"""Define the common parts of all commands' help."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

NAMES = {"help_option_names": ["-h", "--help"]}
"""Context settings that make `-h` an alias of `--help`, also for subcommands."""


class SwitchCommand(TyperCommand):
    """A command whose help shows no type for on/off options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options, including the help option."""
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands with the same display of its own options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, including those for help and completion."""
        return _without_types(super().get_params(ctx))


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
