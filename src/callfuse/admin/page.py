"""Write the HTML of the page without script: query, settings in effect, and sessions with their own settings.

It uses no script and no other resource, and its Content-Security-Policy forbids both. Every foreign text is made
printable and escaped. The live page (`admin/live.py`) is a different page.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Final
from urllib.parse import urlencode

from callfuse import __version__
from callfuse.admin.queries import UNKNOWN, Query, SessionSettings
from callfuse.conversations.identity import session_name
from callfuse.observe.printable import printable
from callfuse.reference.effective import DEFAULT, EffectiveSetting, as_text

SESSIONS_SHOWN: Final = 200
"""The most sessions on the page, the last used ones; the endpoint `sessions` lists all."""


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


_FRAME: Final = Template(_read("frame.html"))
_SETTINGS: Final = Template(_read("settings.html"))
_LOGIN: Final = _read("login.html")


def _hash_of_style() -> str:
    """Return the hash in the policy that allows only the style of the page's frame:
    https://www.w3.org/TR/CSP3/#grammardef-hash-source"""
    style = _FRAME.template.partition("<style>")[2].partition("</style>")[0]
    return b64encode(sha256(style.encode()).digest()).decode()


POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_hash_of_style()}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""The Content-Security-Policy."""
_UNKNOWN: Final = f" It is unknown: {UNKNOWN}. The settings that it would get are below."


def login(problem: str = "") -> str:
    """Write the login form, which asks for the token."""
    return _frame(_alert(problem) + _LOGIN)


def settings(
    query: Query,
    rows: Sequence[EffectiveSetting] | None,
    sessions: Sequence[SessionSettings] | None,
    problem: str,
    *,
    unlisted: str,
    is_known: bool = True,
) -> str:
    """Write the page for a query. `rows`: None if the query is wrong, which `problem` then explains.

    `sessions`: None if the store cannot list them, for the reason `unlisted`. `is_known`: whether the query's session
    is known.
    """
    main = _SETTINGS.substitute(
        alert=_alert(problem),
        model=_escape(query.model),
        tool=_escape(query.tool),
        session=_escape(query.session),
        changed=" checked" if query.changed else "",
        settings=_table(query, rows, sessions or (), is_known=is_known) if rows is not None else "",
        sessions="".join(_sessions(query, sessions, unlisted)),
    )
    return _frame(main)


def _frame(main: str) -> str:
    return _FRAME.substitute(version=escape(__version__), main=main)


def _alert(problem: str) -> str:
    return f'<p class="problem" role="alert">{_escape(problem)}</p>\n' if problem else ""


def _table(
    query: Query, rows: Sequence[EffectiveSetting], sessions: Sequence[SessionSettings], *, is_known: bool
) -> str:
    about = [f"{name} {getattr(query, name)}" for name in ("model", "tool", "session") if getattr(query, name)]
    names = (query.session, session_name(query.session))
    unset = query.session and not any(one.name.startswith(names) for one in sessions)
    note = f"<p>This session has no settings of its own here.{'' if is_known else _UNKNOWN}</p>\n" if unset else ""
    what = _escape(", ".join(about) or "every model and tool")
    note += "" if rows else "<p>Every setting is its default.</p>\n"
    body = "\n".join(_row(row) for row in rows)
    return (
        f'{note}<table class="settings">\n<caption>Settings for {what}</caption>\n'
        '<thead><tr><th scope="col">Key</th><th scope="col">Value</th><th scope="col">From</th></tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n"
        f'<p><a href="settings{_query(query)}">As JSON</a></p>'
    )


def _row(row: EffectiveSetting) -> str:
    kind = "" if row.tier == DEFAULT else ' class="given"'
    cells = f"<td><code>{_escape(row.text)}</code></td><td>{_escape(row.origin)}</td>"
    return f'<tr{kind}><th scope="row"><code>{_escape(row.key)}</code></th>{cells}</tr>'


def _sessions(query: Query, sessions: Sequence[SessionSettings] | None, unlisted: str) -> Iterator[str]:
    if sessions is None:
        yield f"<p>No session can be shown: {_escape(unlisted)}.</p>"
        return
    if not sessions:
        yield "<p>No session has settings of its own.</p>"
        return
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Session", "Client", "Has set", "Last used"))
    yield f'<table aria-labelledby="sessions">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n'
    for one in sessions[:SESSIONS_SHOWN]:
        link = _query(Query(query.model, query.tool, one.name, one.client, query.changed))
        said = "<br>".join(f"<code>{_escape(text)}</code>" for text in _settings_of(one))
        name = f'<a href="plain{link}">{_escape(one.name)}</a>'
        yield (
            f'<tr><th scope="row">{name}</th><td>{_escape(one.client)}</td><td>{said}</td>'
            f"<td>{_escape(one.time)}</td></tr>\n"
        )
    yield "</tbody>\n</table>"
    if len(sessions) > SESSIONS_SHOWN:
        yield f'<p>These are the last {SESSIONS_SHOWN} of {len(sessions):,}; <a href="sessions">all as JSON</a>.</p>'


def _settings_of(session: SessionSettings) -> Iterator[str]:
    for key, value in session.set.items():
        yield f"{key} = {as_text(value)}"
    for pattern, values in session.tools.items():
        yield from (f"{pattern}: {key} = {as_text(value)}" for key, value in values.items())


def _query(query: Query) -> str:
    given = {name: value for name in Query.__slots__ if (value := getattr(query, name))}
    return f"?{escape(urlencode(given, errors='replace'))}" if given else ""


def _escape(text: str) -> str:
    return escape(printable(text))
