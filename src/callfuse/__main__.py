"""The entry point of `callfuse` and `python -m callfuse`. Without the extra it needs, it prints how to install that."""

import sys

from callfuse.errors import install_hint

_EXTRAS = dict.fromkeys(("aiohttp", "rich", "starlette", "typer", "uvicorn"), "serve") | {"openai": "demo"}


def main() -> None:
    """Run the command line and exit. Where a package of an extra is missing, exit with 2 and name the extra."""
    try:
        from callfuse.cli.app import app

        app(prog_name="callfuse")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        print(f"callfuse: this needs {package}: {install_hint(_EXTRAS[package])}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
