"""Run the command line: the entry point of `callfuse` and `python -m callfuse`."""

import sys

from callfuse.cli.listed import answer_without, is_of_an_extra


def main() -> None:
    """Run the command line and exit. If a package of an extra is missing, name the extra and exit with 2. Help and
    version need no extra."""
    arguments = sys.argv[1:] or ["--help"]
    try:
        from callfuse.cli.app import app

        app(arguments, prog_name="callfuse")
    except ModuleNotFoundError as error:
        if not is_of_an_extra(error):
            raise
        sys.exit(answer_without(str(error.name).partition(".")[0], arguments))


if __name__ == "__main__":
    main()
