"""Replace secrets by `***` in texts that callfuse shows: values whose key looks secret, and API keys of known shapes.

Arguments and results are quoted in log lines, and in texts that stay in a conversation. The pattern takes linear time:
what it tries at a place is bounded in length, or consumes what it has read.
"""

import re
from typing import Final

STARS: Final = "***"
MARGIN: Final = 300
"""How many characters after a text's cut are read, so that a secret at the cut is recognised, too."""

_KEY: Final = (
    r"(?i:api[_-]?key|(?:access|secret|private)[_-]?key(?:[_-]?id)?|token|passw(?:or)?d|passphrase|secret"
    r"|authorization|credentials?|cookie)"
)
_SECRET: Final = re.compile(
    rf"(?P<key>(?<![\w-])--(?=[a-zA-Z])[\w-]{{0,24}}?{_KEY}[ ]"  # an option of a shell command
    rf"|{_KEY}\\{{0,4}}[\"']?[ \t]{{0,4}}(?:=>|[:=])[ \t\n]{{0,8}})(?:"
    r'(?P<quote>["\'])(?:(?!(?P=quote))[^\\]|\\.)*+(?P=quote)?+'  # a string, closed or cut
    r'|(?P<escaped>\\{1,4}["\'])(?:(?!\\{1,4}["\'])[^"])*+(?:\\{1,4}["\'])?+'  # one in a string
    r"|(?i:(?:bearer|basic|digest|token)[ ]+)?+(?!(?i:null|none|true|false)\b)[^\s\"',;&(){}\[\]<>\\]++)"
    r"|(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk)[-_](?=[A-Za-z_-]{0,40}[0-9])[\w-]{8,}+"  # OpenAI, Anthropic, OpenRouter, Stripe
    r"|(?:gsk_|hf_|gh[pousr]_|github_pat_|glpat-|xai-|ya29\.|AIza)[\w-]{16,}+"  # Groq, GitHub, xAI, Google
    r"|xox[a-z]-[\w-]{8,}+|(?:AKIA|ASIA)[A-Z0-9]{12,}+"  # Slack, AWS
    r"|(?i:bearer)[ ]{1,4}[\w.~+/-]{12,}+=*+)"
    r"|(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?+"  # a JSON Web Token
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]*+(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?+"
    r"|(?<=://)[^\s/:@\"']{0,100}:[^\s/@\"']{1,100}(?=@)",  # user and password of a URL
    re.DOTALL,
)

_KEY_WORDS: Final = ("key", "token", "pass", "secret", "authorization", "credential", "cookie")
_SHAPES: Final = ("k-", "k_", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xai-", "ya29.")
_MORE_SHAPES: Final = ("aiza", "xox", "akia", "asia", "bearer", "eyj", "://")
_HINTS: Final = (*_KEY_WORDS, *_SHAPES, *_MORE_SHAPES)
"""Every match of the pattern contains one of these, in upper or lower case."""


def star_secrets(text: str, limit: int | None = None) -> str:
    """Return the text with `***` for each secret. With a `limit`, only the first `limit` characters are searched and
    returned. A caller that cuts the text first must leave `limit + MARGIN` characters."""
    shown = text if limit is None else text[: limit + MARGIN]
    # The pattern takes six to ten times as long. Outside ASCII, `lower` and the pattern may disagree on upper case.
    if shown.isascii() and not any(map(shown.lower().__contains__, _HINTS)):
        return shown[:limit]
    if limit is None:
        return _SECRET.sub(_stars, text)
    parts: list[str] = []
    end = 0
    for match in _SECRET.finditer(shown):
        if match.start() >= limit:  # not shown, even if stars shorten the text: its end may be cut off
            break
        parts += text[end : match.start()], _stars(match)
        end = match.end()
    return "".join((*parts, text[end:limit]))[:limit]


def _stars(match: re.Match[str]) -> str:
    quote = match["quote"] or match["escaped"] or ""
    return f"{match['key'] or ''}{quote}{STARS}{quote}"
