from __future__ import annotations

import tomllib

import pytest

from koordlet.config.lines import toml_lines

TEXT = '''\
# comment
top = 1
[a.b]  # a header
c = [
  1,
  { d = 2 },
]
text = """
[not.a.header]
x = 1
"""
e.f = "x"
"quoted key" = 1

[[list]]
name = "first"
[list.sub]
k = 1
[[list]]
  name = "second"
  [[list.inner]]
  k = 1
  [[list.inner]]
  k = 2
[list.sub]
k = 3
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("top", 2),
        ("a.b", 3),
        ("a.b.c", 4),
        ("a.b.c[1].d", 4),
        ("a.b.text", 8),
        ("a.b.e.f", 12),
        ('a.b["quoted key"]', 13),
        ("list[0].name", 16),
        ("list[0].sub.k", 18),
        ("list[1]", 19),
        ("list[1].name", 20),
        ("list[1].inner[0].k", 22),
        ("list[1].inner[1].k", 24),
        ("list[1].sub.k", 26),
    ],
)
def test_lines_of_keys(path: str, line: int) -> None:
    tomllib.loads(TEXT)
    assert toml_lines(TEXT).exact(path) == line


def test_a_missing_key_is_looked_for_by_its_table() -> None:
    lines = toml_lines(TEXT)
    assert lines.find("list[1].nmae") == 19
    assert lines.find("a.b.zzz.y") == 3
    assert lines.exact("x") is None
    assert lines.exact("not.a.header") is None
    assert lines.find("nowhere.at.all") is None
    assert lines.exact("A.B.c") == 4


def test_after_a_long_value_lines_are_still_right() -> None:
    items = "".join(f'  "[{i}]", # item\n' for i in range(1000))
    text = f"[a]\nlist = [\n{items}]\ntext = '''\n[x]\nb = 1\n'''\n[y]\nz = 1\n"
    tomllib.loads(text)
    assert toml_lines(text).exact("y.z") == 1009
    assert toml_lines(text).exact("x") is None


def test_a_value_full_of_ends_costs_the_lines_behind_it_alone() -> None:
    text = "[a]\nb = 1\ntext = '''\n" + "]\n" * 500 + "'''\n[y]\nz = 1\n"
    tomllib.loads(text)
    lines = toml_lines(text)
    assert lines.exact("a.b") == 2 and lines.exact("y.z") is None
