"""Texts as models write them: 200 healthy ones, many of which look as if they repeated themselves, and 100 that run
away.

Each sort is a function of a random generator, and is written `EACH` times. Most healthy texts are long enough to be cut
several times over; those that repeat a unit end where somebody who wants them would end.
"""

import base64
import json
import string
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple

from callfuse.detect.runaway import DOUBT, LEAST, LEAST_LAPS

EACH: Final = 4
HEALTHY_LENGTH: Final = 12_000
WORDS: Final = (
    "account", "adapter", "answer", "array", "backup", "balance", "batch", "branch", "buffer", "build", "bundle",
    "cache", "channel", "check", "client", "clock", "cluster", "column", "commit", "config", "cursor", "customer",
    "data", "date", "delay", "deploy", "digest", "disk", "docker", "driver", "error", "event", "export", "factor",
    "fee", "field", "file", "filter", "flight", "folder", "format", "frame", "garden", "gateway", "graph",
    "guest", "handle", "header", "house", "index", "invoice", "item", "job", "kernel", "key", "ladder", "layer",
    "ledger", "letter", "limit", "line", "list", "lock", "log", "loop", "map", "market", "memory", "merge",
    "message", "meter", "method", "mode", "model", "module", "monitor", "night", "node", "note", "number",
    "object", "offer", "order", "output", "page", "parser", "patch", "path", "payment", "people", "person",
    "pipeline", "plan", "pool", "port", "price", "process", "profile", "project", "proxy", "query", "queue",
    "rate", "reader", "record", "region", "release", "report", "request", "result", "retry", "river", "role",
    "route", "row", "rule", "sample", "schema", "score", "search", "season", "section", "server", "session",
    "shape", "shard", "signal", "socket", "source", "stage", "state", "step", "storage", "stream", "street",
    "string", "summary", "switch", "system", "table", "tag", "task", "team", "test", "thread", "ticket", "time",
    "token", "tool", "trace", "track", "train", "tree", "trigger", "unit", "update", "user", "value", "vendor",
    "version", "view", "volume", "water", "window", "winter", "worker", "writer", "zone",
)  # fmt: skip
VERBS: Final = (
    "checks", "counts", "moves", "opens", "reads", "removes", "sends", "shows", "sorts", "splits", "starts",
    "stores", "tests", "updates", "waits", "writes",
)  # fmt: skip
SIGNS: Final = (
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会"
    "可主发年动同工也能下过子说产种面而方后多定行学法所民得经"
)


def words(random: Random, count: int) -> str:
    """Some words."""
    return " ".join(random.choice(WORDS) for _ in range(count))


def sentence(random: Random) -> str:
    """A sentence of a few words."""
    first, second, third = random.sample(WORDS, 3)
    end = random.choice(("first", "again", "later", "twice", "as well", "in the end", "once more", "at night"))
    return (
        f"The {first} {random.choice(VERBS)} the {second} of each {third}, {words(random, random.randint(1, 6))} {end}."
    )


def lines_of(random: Random, line: Callable[[Random, int], str], length: int = HEALTHY_LENGTH) -> str:
    """Numbered lines, up to a length."""
    made: list[str] = []
    size = 0
    while size < length:
        made.append(line(random, len(made) + 1))
        size += len(made[-1]) + 1
    return "\n".join(made)


def prose(random: Random) -> str:
    """Plain sentences."""
    return lines_of(random, lambda random, _: sentence(random))


def doubts(random: Random) -> str:
    """A reasoning that goes back and forth, in set phrases."""
    phrases = (
        "Wait, let me check that again.",
        "Hmm, actually, that is not right.",
        "Let me reconsider the problem.",
        "So the answer would be {}.",
        "But what about the {}?",
        "OK, so the {} comes before the {}.",
        "Alternatively, the {} could be in the {}.",
    )
    return lines_of(random, lambda random, _: random.choice(phrases).format(*random.sample(WORDS, 2)))


def chinese(random: Random) -> str:
    """Sentences of a script that does not part words."""
    return "".join("".join(random.choices(SIGNS, k=random.randint(5, 20))) + "。" for _ in range(800))


def poem(random: Random) -> str:
    """Verses with one refrain of four lines."""
    refrain = "\n".join(f"O {one}, my {one}, come home to me," for one in random.sample(WORDS, 4))
    return "\n\n".join("\n".join(sentence(random) for _ in range(4)) + "\n\n" + refrain for _ in range(30))


def chant(random: Random) -> str:
    """A chorus that is sung as often as songs do, then a verse."""
    chorus = "\n".join(sentence(random) for _ in range(4)) + "\n"
    return "\n".join(chorus * random.randint(3, 8) + sentence(random) for _ in range(10))


def bottles(_random: Random) -> str:
    """The song that counts down, up to its end."""
    return "\n".join(
        f"{n} bottles of beer on the wall, {n} bottles of beer. Take one down, pass it around."
        for n in range(99, 0, -1)
    )


def fences(random: Random) -> str:
    """Small blocks of code between sentences."""
    return lines_of(random, lambda random, n: f"{sentence(random)}\n\n```python\n{random.choice(WORDS)}({n})\n```\n")


def table(random: Random) -> str:
    """A wide table in Markdown, with its separator."""
    columns = random.randint(4, 40)
    head = "| " + " | ".join(random.choices(WORDS, k=columns)) + " |\n" + "|" + " --- |" * columns + "\n"
    return head + lines_of(random, lambda random, n: f"| {n} | " + " | ".join(random.choices(WORDS, k=columns)) + " |")


def empty_tables(random: Random) -> str:
    """Forms to fill in: tables of blank cells, each below a heading of its own."""
    rows = "|       |       |       |\n" * random.randint(10, 40)
    return lines_of(
        random, lambda random, n: f"## {n}. {sentence(random)}\n\n| a | b | c |\n|---|---|---|\n{rows}", 30_000
    )


def wide_separator(random: Random) -> str:
    """A table of one row whose separator alone has 3,000 characters."""
    return f"| {words(random, 9)} |\n|" + "-" * 3_000 + "|\n" + prose(random)


def rulers(random: Random) -> str:
    """Headings under lines of `=`."""
    return lines_of(random, lambda random, _: f"{'=' * 78}\n{words(random, 5)}\n{'=' * 78}\n")


def boxes(random: Random) -> str:
    """Drawings of boxes."""
    return lines_of(random, lambda random, _: f"+{'-' * 40}+\n|{words(random, 3):^40}|\n+{'-' * 40}+\n{' ' * 20}|\n")


def base64_file(random: Random) -> str:
    """A file in base64."""
    return base64.b64encode(random.randbytes(9_000)).decode()


def base64_blank(random: Random) -> str:
    """A bitmap in one colour, in base64, with a head."""
    pixel = random.choice((b"\0", b"\xff", b"\x20\x40\x80", b"\x20\x40\x80\xff"))
    return base64.b64encode(random.randbytes(54) + pixel * (9_000 // len(pixel))).decode()


def base64_records(random: Random) -> str:
    """Records of 48 bytes in base64, most of them zeros, of two sorts that differ little, in short lines."""
    usual = bytearray(48)
    for at in random.sample(range(48), 9):
        usual[at] = random.randrange(1, 256)
    other = bytearray(usual)
    other[random.randrange(48)] = random.randrange(1, 256)
    records = b"".join(random.choice((usual, usual, other)) for _ in range(480))
    text = base64.b64encode(records).decode()
    return "\n".join(text[at : at + 24] for at in range(0, len(text), 24))


def data_uris(random: Random) -> str:
    """Style sheets with pictures inside."""

    def rule(random: Random, n: int) -> str:
        picture = base64.b64encode(b"GIF89a" + bytes(600) + random.randbytes(300)).decode()
        return f".icon-{n} {{ background: url(data:image/gif;base64,{picture}) }}"

    return lines_of(random, rule)


def hex_dump(random: Random) -> str:
    """A dump of random bytes."""
    return lines_of(random, lambda random, n: f"{16 * n:08x}  {random.randbytes(16).hex(' ')}  |................|")


def hex_zeros(random: Random) -> str:
    """A dump of 4 kB of zeros."""
    return words(random, 9) + "\n" + "\n".join(f"{n:08x}: " + "0000 " * 8 for n in range(0, 4_096, 16))


def digests(random: Random) -> str:
    """Check sums of files."""
    return lines_of(random, lambda random, n: f"{random.randbytes(32).hex()}  dist/{random.choice(WORDS)}-{n}.tar.gz")


def zero_grid(random: Random) -> str:
    """A matrix of zeros as Python or JSON has it."""
    size = random.randint(20, 60)
    return "grid = [\n" + ("    [" + ", ".join(["0"] * size) + "],\n") * min(size, 15_000 // (3 * size)) + "]\n"


def null_grid(random: Random) -> str:
    """A board whose fields are all empty."""
    row = "[" + ", ".join(["null"] * 30) + "],"
    return json.dumps({"name": random.choice(WORDS), "board": row * 60})


def maze(random: Random) -> str:
    """A map of walls."""
    return "\n".join("".join(random.choices("#.", weights=(9, 1), k=80)) for _ in range(120))


def empty_map(random: Random) -> str:
    """A game's map of empty fields between walls."""
    return "#" * 80 + "\n" + ("#" + "." * 78 + "#\n") * random.randint(60, 180) + "#" * 80


def checkers(random: Random) -> str:
    """A pattern of ones and zeros."""
    size = random.randint(30, 80)
    return "\n".join(" ".join(str((x + y) % 2) for x in range(size)) for y in range(size))


def minified(random: Random) -> str:
    """JavaScript without spaces."""
    letters = string.ascii_letters

    def function(random: Random, n: int) -> str:
        a, b, c = random.sample(letters, 3)
        name = random.choice(WORDS)
        return f"function {a}{n}({b},{c}){{return {b}.{name}?{c}({b}.{name}):void 0}}"

    return lines_of(random, function).replace("\n", ";")


def svg(random: Random) -> str:
    """A drawing's path."""
    return (
        '<path d="M0 0' + "".join(f" L{random.randint(0, 999)} {random.randint(0, 999)}" for _ in range(1_500)) + '"/>'
    )


def svg_wave(random: Random) -> str:
    """A path of equal arcs."""
    return f'<path id="{random.choice(WORDS)}" d="M0 50' + " q 10 -20 20 0 t 20 0" * random.randint(150, 600) + '"/>'


def test_log(random: Random) -> str:
    """What a test run prints."""
    return lines_of(
        random,
        lambda random, n: (
            f"tests/test_{random.choice(WORDS)}.py::test_{random.choice(VERBS)}_{n} PASSED [{n % 100:3}%]"
        ),
    )


def counted_log(_random: Random) -> str:
    """What a run of 200 numbered tests prints."""
    return "\n".join(f"ok {n} - test case number {n} passes" for n in range(1, 201))


def dots(random: Random) -> str:
    """A short summary of many tests."""
    return lines_of(random, lambda random, n: "." * 72 + f" [{n:3}%] {random.choice(WORDS)}")


def server_log(random: Random) -> str:
    """Lines of an access log."""
    return lines_of(
        random,
        lambda random, n: (
            f"10.0.0.{random.randint(1, 9)} - - [23/Nov/2026:10:{n // 60 % 60:02}:{n % 60:02}] "
            f'"GET /{random.choice(WORDS)}/{random.randint(1, 10**6)} HTTP/1.1" 200 {random.randint(99, 99_999)}'
        ),
    )


def enumeration(random: Random) -> str:
    """A numbered list of sentences."""
    return lines_of(random, lambda random, n: f"{n}. {sentence(random)}")


def checklist(random: Random) -> str:
    """Tasks to be ticked off."""
    return lines_of(random, lambda random, n: f"- [ ] Step {n}: check the {random.choice(WORDS)}")


def numbers(_random: Random) -> str:
    """The numbers up to 2,500, one a line."""
    return "\n".join(map(str, range(1, 2_501)))


def csv(random: Random) -> str:
    """Rows of values."""
    return lines_of(
        random, lambda random, n: f"{n},{random.choice(WORDS)},{random.randint(1, 999)},{random.random():.3f}"
    )


def equal_rows(random: Random) -> str:
    """Rows of which a hundred in a row are equal."""
    return lines_of(random, lambda random, _: f"2026-11-{random.randint(1, 30):02},{words(random, 2)},open\n" * 100)


def sed_chain(random: Random) -> str:
    """A command that looks at many places of one file."""
    name, step = random.choice(WORDS), random.randint(20, 90)
    looks = [f"sed -n '{n * step},{n * step + 15}p' src/{name}/module.py && echo ----" for n in range(100)]
    return json.dumps({"command": "\n".join(looks)})


def links(random: Random) -> str:
    """A command that makes many links."""
    return lines_of(random, lambda random, n: f"ln -s ../lib/{random.choice(WORDS)}_{n}.so lib{n}.so")


def inserts(random: Random) -> str:
    """Rows of SQL for people who differ."""
    return lines_of(
        random,
        lambda random, n: (
            f"INSERT INTO users (id, name, mail) VALUES ({n}, '{words(random, 2)}', '{random.choice(WORDS)}@a.com');"
        ),
        20_000,
    )


def counted_inserts(random: Random) -> str:
    """A hundred and fifty rows of SQL that differ in their numbers only."""
    table_ = random.choice(WORDS)
    return "\n".join(
        f"INSERT INTO {table_} (id, name) VALUES ({n}, 'name {n}', 'user{n}@example.com');" for n in range(150)
    )


def points(random: Random) -> str:
    """Rows of SQL with random numbers."""
    return lines_of(
        random,
        lambda random, _: f"INSERT INTO points (x, y) VALUES ({random.randint(0, 999)}, {random.randint(0, 999)});",
        30_000,
    )


def records(random: Random) -> str:
    """JSON, indented, as arguments hold it: escaped once more."""
    rows = [{"id": n, "name": words(random, 2), "active": random.random() < 0.5, "tags": []} for n in range(120)]
    return json.dumps({"path": "data.json", "content": json.dumps(rows, indent=4)})


def measures(random: Random) -> str:
    """Records with many fields, of which only the random numbers differ."""
    row = "{{" + ", ".join(f'"{one}": {{}}' for one in random.sample(WORDS, 40)) + "}}"
    return "\n".join(row.format(*(random.randint(0, 9_999) for _ in range(40))) for _ in range(60))


def pairs(random: Random) -> str:
    """How often letters follow each other, in four degrees: blocks of rows that differ in a few numbers."""
    codes = [(random.randint(1, 60), letter) for letter in "abcdefghijklmnopqrstuvwxyzäöüß"]

    def block(random: Random, _: int) -> str:
        return "\n".join(f"        {code}: {int(random.random() > 0.9)},  # '{letter}'" for code, letter in codes)

    return lines_of(random, block, 60_000)


def coordinates(random: Random) -> str:
    """A polygon of a map."""
    places = [[round(random.uniform(5, 15), 5), round(random.uniform(47, 55), 5)] for _ in range(800)]
    return json.dumps({"type": "Polygon", "coordinates": [places]})


def manifests(random: Random) -> str:
    """Services in YAML that differ in name and port."""
    return lines_of(
        random,
        lambda random, n: (
            f"---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {random.choice(WORDS)}-{n}\nspec:\n"
            f"  type: ClusterIP\n  selector:\n    app: {random.choice(WORDS)}\n"
            f"  ports:\n    - port: {random.randint(1, 9_999)}"
        ),
        30_000,
    )


def cards(random: Random) -> str:
    """A page of products, of long equal markup and short texts."""
    return lines_of(
        random,
        lambda random, n: (
            f'<div class="card shadow-sm p-4 m-2 rounded border"><img class="card-img-top img-fluid" alt="" '
            f'src="/img/{n}.png"><div class="card-body"><h5 class="card-title">{words(random, 2)}</h5></div></div>'
        ),
        30_000,
    )


def unit_tests(random: Random) -> str:
    """Test functions of one shape."""
    return lines_of(
        random,
        lambda random, n: (
            f"def test_{random.choice(WORDS)}_{n}(client):\n    response = client.get('/{random.choice(WORDS)}')\n"
            f"    assert response.status_code == 200\n    assert response.json()['{random.choice(WORDS)}'] == {n}\n"
        ),
        30_000,
    )


def translations(random: Random) -> str:
    """A catalogue with empty entries still to be filled in."""
    return lines_of(random, lambda random, n: f'#: src/app.py:{n}\nmsgid "{words(random, 4)}"\nmsgstr ""\n', 30_000)


def diff(random: Random) -> str:
    """A patch that changes one word everywhere."""

    def hunk(random: Random, n: int) -> str:
        line = sentence(random)
        return f"@@ -{n * 9},3 +{n * 9},3 @@\n {sentence(random)}\n-{line}\n+{line.replace('The', 'A')}"

    return lines_of(random, hunk)


def emoji(random: Random) -> str:
    """A picture of emoji."""
    return "\n".join("".join(random.choices("🟥🟩🟦⬛", k=40)) for _ in range(200))


def genome(random: Random) -> str:
    """Bases, with a stretch of one motif."""
    return "".join(random.choices("ACGT", k=6_000)) + "CAG" * 60 + "".join(random.choices("ACGT", k=4_000))


def filler(random: Random) -> str:
    """A sample text of one paragraph, as often as a page needs it."""
    return (" ".join(sentence(random) for _ in range(6)) + "\n\n") * 4 + prose(random)


def deep_code(random: Random) -> str:
    """Code that is indented by many levels, with blank lines."""
    return lines_of(random, lambda random, n: " " * 4 * (n % 24) + f"if {random.choice(WORDS)}:\n\n\n")


HEALTHY: Final = (
    prose, doubts, chinese, poem, chant, bottles, fences, table, empty_tables, wide_separator, rulers, boxes,
    base64_file, base64_blank, base64_records, data_uris, hex_dump, hex_zeros, digests, zero_grid, null_grid, maze,
    empty_map, checkers, minified, svg, svg_wave, test_log, counted_log, dots, server_log, enumeration, checklist,
    numbers, csv, equal_rows,
    sed_chain, links, inserts, counted_inserts, points, records, measures, pairs,
    coordinates, manifests, cards, unit_tests,
    translations, diff, emoji, genome, filler, deep_code,
)  # fmt: skip


class Away(NamedTuple):
    """A text that runs away: where it begins to, and after how many characters it must be found at the latest, but for
    the way to the next look."""

    text: str
    begin: int
    within: int


def away(before: str, laps: str, unit: int, doubts_: int = 0) -> Away:
    """A text that repeats a unit of this length, with so many reasons to doubt that it is wrong."""
    return Away(before + laps, len(before), max(LEAST, LEAST_LAPS * unit) * DOUBT**doubts_)


def equal_laps(random: Random, unit: str, doubts_: int = 0) -> Away:
    """A text that repeats one unit for ever, in effect."""
    return away(prose(random)[: random.randint(0, 9_000)], unit * (100_000 // len(unit)), len(unit), doubts_)


def sentences_again(random: Random) -> Away:
    """One sentence."""
    return equal_laps(random, sentence(random) + " ")


def paragraph_again(random: Random) -> Away:
    """Some sentences, with what they repeat within."""
    return equal_laps(random, "\n".join(sentence(random) for _ in range(5)) + "\nWait. Wait. Wait, no.\n\n")


def page_again(random: Random) -> Away:
    """Nearly as much as a unit may have."""
    return equal_laps(random, prose(random)[:1_900] + "\n\n\n")


def hesitation(random: Random) -> Away:
    """A thought that does not come to its end."""
    return equal_laps(random, random.choice(("Wait, maybe I should check. ", "Let me think. ", "So I have to go on. ")))


def code_again(random: Random) -> Away:
    """A function."""
    return equal_laps(random, f"    def {random.choice(WORDS)}(self):\n        return self.{random.choice(WORDS)}\n\n")


def escaped_again(random: Random) -> Away:
    """Lines within arguments, with escaped ends."""
    return equal_laps(random, json.dumps(f"assert {random.choice(WORDS)}({random.choice(WORDS)}) == 1\n")[1:-1])


def chinese_again(random: Random) -> Away:
    """A sentence of a script that does not part words."""
    return equal_laps(random, "".join(random.sample(SIGNS, 12)) + "。")


def turns_again(random: Random) -> Away:
    """A dialogue that the model plays with itself."""
    return equal_laps(random, f"\n\nHuman: {sentence(random)}\n\nAssistant: I am done with this.")


def rows_again(random: Random) -> Away:
    """Equal rows."""
    return equal_laps(random, f"2026-11-23,{words(random, 3)},open\n")


def nested(random: Random) -> Away:
    """A query within a query."""
    name = random.choice(WORDS)
    return equal_laps(random, f"SELECT * FROM {name} WHERE id IN (")


def signs(random: Random) -> Away:
    """Punctuation."""
    return equal_laps(random, random.choice(("?!", "!", ".", "...\n", "=", "-", "_", "[]", "][", ")", "🎉")), 1)


def zeros(random: Random) -> Away:
    """Digits."""
    return equal_laps(random, random.choice(("0", "9", "571428", "0, ", "0,0\n", "1.0 ")), 1)


def one_word(random: Random) -> Away:
    """One word."""
    return equal_laps(random, random.choice(("ha", "the ", "No. ", "null, ", "<br>", "args()[0].", "AAAA", r"\x00")), 1)


def separator(random: Random) -> Away:
    """The separator of a table, which finds no end."""
    return equal_laps(random, random.choice(("---|", " --- |", ":---:|", "|-----")), 1)


def blanks(random: Random) -> Away:
    """Spaces, tabs or line ends, as they are or escaped."""
    return equal_laps(random, random.choice((" ", "\t", "\n", "\r\n", r"\n", r"\t", r"\\n", "\u3000")))


def mixed_blanks(random: Random) -> Away:
    """White space of all sorts, in no order."""
    sorts = random.choice(((" ", "\n", "\t"), (r"\n", r"\t", " "), (r"\\n", r"\n")))
    return away(prose(random)[: random.randint(0, 9_000)], "".join(random.choices(sorts, k=30_000)), 1)


def one_token(random: Random) -> Away:
    """A name without an end."""
    return equal_laps(random, f"{random.choice(WORDS)}_{random.choice(WORDS)}_", 1)


def counting(random: Random, laps: Iterator[str], doubts_: int = 1) -> Away:
    """A text whose laps differ in numbers only."""
    text = "".join(laps)
    return away(prose(random)[: random.randint(0, 9_000)], text, 150, doubts_)


def tests_counted(random: Random) -> Away:
    """Calls with a number that counts."""
    name = random.choice(WORDS)
    return counting(random, (f"assert is_{name}_of({n}) is True, 'failed'\n" for n in range(2_500)))


def steps_counted(random: Random) -> Away:
    """Steps of a plan, one as the other."""
    what = words(random, 4)
    return counting(random, (f"{n}. I should look at the {what} to find term {n + 1}.\n" for n in range(2_000)))


def dict_counted(random: Random) -> Away:
    """Entries of a dictionary."""
    first, second = random.sample(WORDS, 2)
    return counting(random, (f"    '{first} {n}': make('{second}', 'kind {2 * n}'),\n" for n in range(2_500)))


def decimals_counted(random: Random) -> Away:
    """A number that falls by a step that is not quite the same."""
    last = 1.9

    def laps() -> Iterator[str]:
        nonlocal last
        for _ in range(2_000):
            last -= random.uniform(1e-6, 2e-6)
            yield f"The moment of a {WORDS[0]} is {last:.12f} times that of the other.\n"

    return counting(random, laps())


def sed_counted(random: Random) -> Away:
    """A chain of commands that has left its file long ago."""
    name = random.choice(WORDS)
    return counting(random, (f"sed -n '{20 * n},{20 * n + 19}p' src/{name}/main.py; " for n in range(2_500)))


def numbers_counted(random: Random) -> Away:
    """Numbers alone."""
    return counting(random, (f"{n}, " for n in range(20_000)), 2)


def edited(random: Random, laps: Callable[[list[str]], list[str]]) -> Away:
    """A paragraph that comes again and again with small edits of its own words."""
    parts = [sentence(random) for _ in range(8)]
    text = "".join(" ".join(laps(parts)) + "\n\n" for _ in range(150))
    return away(prose(random)[: random.randint(0, 9_000)], text, len(" ".join(parts)) + 2, 1)


def word_lost(random: Random) -> Away:
    """Each lap lacks a word."""

    def lap(parts: list[str]) -> list[str]:
        all_words = " ".join(parts).split()
        del all_words[random.randrange(len(all_words))]
        return all_words

    return edited(random, lap)


def word_doubled(random: Random) -> Away:
    """Each lap has a word twice."""

    def lap(parts: list[str]) -> list[str]:
        all_words = " ".join(parts).split()
        at = random.randrange(len(all_words))
        return [*all_words[:at], all_words[at], *all_words[at:]]

    return edited(random, lap)


AWAY: Final = (
    sentences_again, paragraph_again, page_again, hesitation, code_again, escaped_again, chinese_again, turns_again,
    rows_again, nested, signs, zeros, one_word, separator, blanks, mixed_blanks, one_token, tests_counted,
    steps_counted, dict_counted, decimals_counted, sed_counted, numbers_counted, word_lost, word_doubled,
)  # fmt: skip
