"""The table of findings: rows, loops, what is chosen, what is removed, and files that cannot be used."""

import sqlite3
import stat
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from callfuse.findings import FindingsQuery, FindingsTable
from callfuse.findings.table import MEMORY, WrongFileError
from callfuse.observe import fields as names

DAY = 86_400.0


def finding(id_: str, time: float, *, session: str = "s", lane: str = "main", **more: Any) -> dict[str, Any]:
    """What the event of a finding tells."""
    known = {"kind": "repeat", "tool": "search", "model": "gpt-x", "action": "steer", "saved": 0.0} | more
    return {
        names.EVENT: "finding", names.FINDING_ID: id_, names.TIME: time, names.SESSION: session, names.LANE: lane,
        names.KIND: known["kind"], names.TOOL: known["tool"], names.MODEL: known["model"],
        names.ACTION: known["action"], names.COUNT: 3, names.THRESHOLD: 3, names.HARD: False,
        names.SAVED_CALLS: known["saved"], names.ARGUMENTS: '{"query": "zebra"}',
    }  # fmt: skip


def begins(id_: str, *, session: str = "s", lane: str = "main") -> dict[str, Any]:
    """What the event of a loop that begins tells."""
    return {names.EVENT: "loop", names.FINDING_ID: id_, names.SESSION: session, names.LANE: lane}


def listed(table: FindingsTable, **query: Any) -> tuple[int, int, list[str]]:
    """How many findings and loops there are, and the ids of the rows."""
    found = table.listed(FindingsQuery(**query))
    return found["findings"], found["loops"], [row["id"] for row in found["rows"]]


def filled(path: str = MEMORY) -> FindingsTable:
    """Two loops of one lane, and one of another session."""
    table = FindingsTable(path)
    told = [
        *(finding("a", 1000), begins("a"), finding("b", 1001, action="block")),
        *(finding("c", 2000, kind="cycle", tool="read"), begins("c"), finding("d", 2001, kind="cycle", tool="read")),
        *(finding("x", 1500, session="t", model="claude", saved=2.5), begins("x", session="t")),
    ]
    table.add(told, 3000)
    return table


def test_findings_and_loops_are_counted() -> None:
    """A loop has the findings from its beginning to the next one of its lane; rows are the newest first."""
    table = filled()
    assert listed(table) == (5, 3, ["d", "c", "x", "b", "a"])
    rows = {row["id"]: row for row in table.listed(FindingsQuery())["rows"]}
    assert {id_: row["loop"] for id_, row in rows.items()} == {"a": "a", "b": "a", "c": "c", "d": "c", "x": "x"}
    assert rows["x"] | {"saved_calls": 2.5, "limit": 3, "hard": False, "begins": True, "time": 1500.0} == rows["x"]
    table.close()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"begin": 1500.0}, (3, 2, ["d", "c", "x"])),
        ({"begin": 1001.0, "end": 2000.0}, (2, 2, ["x", "b"])),
        ({"chosen": (("kind", ("cycle",)),)}, (2, 1, ["d", "c"])),
        ({"chosen": (("tool", ("read", "search")), ("action", ("block",)))}, (1, 1, ["b"])),
        ({"chosen": (("session", ("t",)),)}, (1, 1, ["x"])),
        ({"chosen": (("model", ("claude'; DROP TABLE findings; --",)),)}, (0, 0, [])),
        ({"sort": "time", "falling": False}, (5, 3, ["a", "b", "x", "c", "d"])),
        ({"sort": "saved_calls", "size": 2}, (5, 3, ["x", "d"])),
        ({"page": 1, "size": 2}, (5, 3, ["x", "b"])),
    ],
)
def test_rows_are_chosen(query: dict[str, Any], expected: tuple[int, int, list[str]]) -> None:
    """By time, values of columns, order and page; counts are of all that is chosen."""
    table = filled()
    assert listed(table, **query) == expected
    table.close()


def test_a_row_for_each_loop() -> None:
    """With its beginning, how many findings it has, and what was done."""
    table = filled()
    rows = table.listed(FindingsQuery(by_loop=True))["rows"]
    assert [(row["loop"], row["began"], row["time"], row["findings"], row["actions"]) for row in rows] == [
        ("c", 2000, 2001, 2, "steer"),
        ("x", 1500, 1500, 1, "steer"),
        ("a", 1000, 1001, 2, "steer,block"),
    ]
    table.close()


def test_what_can_be_chosen_is_told() -> None:
    """Values of columns in the time that is asked for, the most frequent first."""
    table = filled()
    chosen = FindingsQuery(begin=1500.0, chosen=(("kind", ("repeat",)),))
    assert table.listed(chosen)["values"]["kind"] == [
        {"value": "cycle", "findings": 2, "loops": 1},
        {"value": "repeat", "findings": 1, "loops": 1},
    ]
    table.close()


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (2, 0, 1, 4, 3), (4, 2, 0, 3, 1)])
def test_the_order_in_which_processes_write_does_not_matter(order: tuple[int, ...]) -> None:
    """Each writes a finding with its beginning, if it is one; loops are as if one had written all."""
    told = [
        [finding("a", 1), begins("a")],
        [finding("b", 2)],
        [finding("c", 3), begins("c")],
        [finding("d", 4)],
        [finding("e", 5), begins("e")],
    ]
    table = FindingsTable()
    for at in order:
        table.add(told[at], 10)
    rows = table.listed(FindingsQuery(falling=False))["rows"]
    assert {row["id"]: row["loop"] for row in rows} == {"a": "a", "b": "a", "c": "c", "d": "c", "e": "e"}
    assert table.listed(FindingsQuery())["loops"] == 3
    table.close()


def test_what_is_told_later_is_added() -> None:
    """Another rung, what the model did, what somebody said; the details have all of it."""
    table = filled()
    place = {names.SESSION: "s", names.LANE: "main", names.FINDING_ID: "b"}
    table.add(
        [
            finding("b", 1002, action="block", saved=3.0),
            {names.EVENT: "action", names.ACTION: "block", names.TOLD: "Stopped.", **place},
            {names.EVENT: "mended", names.MENDED: "same", **place},
            {names.EVENT: "feedback", names.FEEDBACK: "false_positive", names.FINDING_ID: "b"},
            {names.EVENT: "feedback", names.FEEDBACK: "false_positive", names.FINDING_ID: "unknown"},
        ],
        3000,
    )
    (row,) = table.listed(FindingsQuery(chosen=(("action", ("block",)),)))["rows"]
    assert (row["then"], row["feedback"], row["saved_calls"], row["time"]) == ("same", "false_positive", 3.0, 1001)
    told = table.events("b")
    assert [one[names.EVENT] for one in told] == ["finding", "action", "mended", "feedback"]
    assert told[1][names.TOLD] == "Stopped."
    assert table.events("unknown") == []
    table.close()


def test_days_and_rows_are_bounded() -> None:
    """The oldest go first."""
    table = FindingsTable(keep_days=1, most=10)
    now = 100 * DAY
    table.add([finding(f"old{n}", now - 1.5 * DAY) for n in range(3)], now)
    assert listed(table)[0] == 0
    table.add([finding(f"f{n}", now + n) for n in range(15)], now + 61)
    assert listed(table, size=20)[2] == [f"f{n}" for n in range(14, 4, -1)]
    table.close()


def test_a_file_is_kept_and_shared(tmp_path: Path) -> None:
    """By what opens it later, and by several at once; it is readable for its owner alone."""
    path = str(tmp_path / "findings.db")
    tables = [FindingsTable(path) for _ in range(2)]

    def write(at: int) -> None:
        for number in range(50):
            tables[at].add([finding(f"{at}-{number}", number)], 100)

    threads = [Thread(target=write, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    for table in tables:
        assert listed(table, size=200)[0] == 100
        table.close()
    later = FindingsTable(path)
    assert listed(later, size=200)[0] == 100
    later.close()


def test_several_may_make_the_file_at_a_time(tmp_path: Path) -> None:
    """Workers that start together; each can use it."""
    opened: list[FindingsTable] = []
    path = str(tmp_path / "findings.db")
    threads = [Thread(target=lambda: opened.append(FindingsTable(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 8
    for at, table in enumerate(opened):
        table.add([finding(f"f{at}", at)], 100)
    assert listed(opened[0], size=20)[0] == 8
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    for table in opened:
        table.close()


def test_what_a_batch_cannot_write_is_not_written_in_part() -> None:
    """All of it or nothing."""
    table = filled()
    with pytest.raises(TypeError):
        table.add([finding("y", 5000), {**finding("z", 5001), names.TIME: None}], 5000)
    assert listed(table)[0] == 5
    table.close()


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """A text, the database of another program, one of a later version, a folder that is not there."""
    text, other, later = (tmp_path / name for name in ("text", "other", "later"))
    text.write_bytes(b"this is no database, and long enough to be seen as none" * 20)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE customers (id)")
    connection.close()
    with sqlite3.connect(later) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path, why in [
        (text, "not a database"),
        (other, "another program"),
        (later, "another version"),
        (tmp_path / "no" / "folder", "cannot be written"),
    ]:
        with pytest.raises(WrongFileError, match=why):
            FindingsTable(str(path))


def test_a_file_that_somebody_else_wrote_shows_nothing_odd(tmp_path: Path) -> None:
    """Whoever can write it can write anything."""
    path = str(tmp_path / "findings.db")
    table = filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE findings SET events = ? WHERE id = 'a'", ('{"finding": [1], "evil": {}}',))
        connection.execute("UPDATE findings SET events = 'no JSON' WHERE id = 'b'")
    connection.close()
    assert table.events("a") == [{}]
    assert table.events("b") == []
    table.close()
