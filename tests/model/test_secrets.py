"""Secrets in texts that are shown: starred by the key before them, or by their shape."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.model import secrets
from callfuse.model.secrets import MARGIN, star_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"api_key": "abc", "q": "x"}', '{"api_key": "***", "q": "x"}'),
        ('{"x-api-key":"a\\"b","n":1}', '{"x-api-key":"***","n":1}'),
        ('{"headers": {"Authorization": "Bearer abc.def"}}', '{"headers": {"Authorization": "***"}}'),
        ('{"a": "{\\"token\\": \\"xyz\\", \\"b\\": 2}"}', '{"a": "{\\"token\\": \\"***\\", \\"b\\": 2}"}'),
        ('{"password": 12345, "b": 2}', '{"password": ***, "b": 2}'),
        ("{'client_secret': 'it\\'s', 'b': 2}", "{'client_secret': '***', 'b': 2}"),
        ('{"access_token": "never clos', '{"access_token": "***"'),
        ("Authorization: Bearer abc, more", "Authorization: ***, more"),
        ("export OPENAI_API_KEY=abc; ls", "export OPENAI_API_KEY=***; ls"),
        ("run --api-key abc --token=def -v", "run --api-key *** --token=*** -v"),
        ("https://me:word@host/x?token=abc&y=1", "https://***@host/x?token=***&y=1"),
        ("the key sk-proj-abcd1234 is wrong", "the key *** is wrong"),
        ("ghp_abcdefghijklmnop1234 AKIAABCDEFGHIJKLMNOP", "*** ***"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n", "***\n"),
    ],
)
def test_what_is_starred(text: str, shown: str) -> None:
    """Whatever stands around it stays."""
    assert star_secrets(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        '{"max_tokens": 5, "total_tokens": "many"}',
        '{"token": null, "secret": false, "password": {"a": 1}}',
        "sk-learn is a package, and sk-1 no key",
        "Unexpected token: }",
        "The password was not found.",
        "https://host:8080/path@x",
        "",
    ],
)
def test_what_is_none(text: str) -> None:
    """Words that only look like it."""
    assert star_secrets(text) == text


def test_a_cut_goes_through_a_secret() -> None:
    """What is left of it is starred, too."""
    text = "x" * 90 + " sk-proj-" + "a1" * 300
    assert star_secrets(text, 100) == "x" * 90 + " ***"


@pytest.mark.parametrize("shape", ["db://bob:hunter22@host", "the key sk-a1b2c3d4e5f6g7h8", "ghp_abcdefghijklmnop1234"])
def test_stars_bring_no_half_secret_into_sight(shape: str) -> None:
    """A long secret that is starred makes the text shorter: what is at the end of the margin, where a secret may be cut
    and so not be known, would then stand before the limit. Also where the caller has cut the text."""
    for length in range(340, 420):
        text = ("token=" + "x" * length + " " + shape).ljust(1000)
        for cut in (text, text[: 100 + MARGIN]):
            shown = star_secrets(cut, 100)
            assert shown.startswith("token=***")
            assert not any(part in shown for part in ("bob", "hunter", "sk-", "a1b2", "ghp"))


def test_a_short_text_is_shown_to_its_end() -> None:
    """However long the stars are in place of a secret, or in place of how much they stand."""
    assert star_secrets("token=" + "x" * 50 + " is wrong", 100) == "token=*** is wrong"


@given(st.from_regex(secrets._SECRET, alphabet=string.printable))
def test_whatever_the_pattern_finds_is_starred(text: str) -> None:
    """No text in which it finds something is passed over because it has none of the words that are looked for first."""
    assert star_secrets(text) == secrets._SECRET.sub(secrets._stars, text)


@pytest.mark.parametrize("key", ["api_\N{KELVIN SIGN}ey", "credent\N{LATIN SMALL LETTER DOTLESS I}al"])
def test_capitals_of_other_alphabets(key: str) -> None:
    """The pattern takes them for letters of ASCII."""
    assert star_secrets(f"{key}: abc") == f"{key}: ***"


@pytest.mark.parametrize("hint", secrets._HINTS)
def test_each_word_that_is_looked_for_first_is_needed(hint: str) -> None:
    """There is a secret that has no other; a word too many would only cost time."""
    secret = EACH_ALONE[hint]
    assert [one for one in secrets._HINTS if one in secret.lower()] == [hint]
    assert "***" in star_secrets(secret)


EACH_ALONE = {
    "key": "API-Key: abc",
    "token": "Token=abc",
    "pass": "passphrase: abc",
    "secret": "SECRET: abc",
    "authorization": "Authorization: abc",
    "credential": "credentials: abc",
    "cookie": "Cookie: abc",
    "k-": "sk-abcd12345678",
    "k_": "gsk_0123456789abcdef",
    "hf_": "hf_0123456789abcdef",
    "ghp_": "ghp_0123456789abcdef",
    "gho_": "gho_0123456789abcdef",
    "ghu_": "ghu_0123456789abcdef",
    "ghs_": "ghs_0123456789abcdef",
    "ghr_": "ghr_0123456789abcdef",
    "github_pat_": "github_pat_0123456789abcdef",
    "glpat-": "glpat-0123456789abcdef",
    "xai-": "xai-0123456789abcdef",
    "ya29.": "ya29.0123456789abcdef",
    "aiza": "AIza0123456789abcdef",
    "xox": "xoxb-0123456789",
    "akia": "AKIA0123456789AB",
    "asia": "ASIA0123456789AB",
    "bearer": "bearer 0123456789abcdef",
    "eyj": "eyJ01234567.01234567",
    "://": "https://me:word@host",
}
