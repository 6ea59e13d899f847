"""The pages speak of commands, keys, metrics and files that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.actuator.sharing import SHARERS
from koordlet.cli.arguments import Command
from koordlet.cli.commands import COMMANDS
from koordlet.collectors import CATALOGUE, COLLECTORS
from koordlet.config.load import Loaded, check
from koordlet.config.load import load as load_config
from koordlet.config.schema import Config
from koordlet.config.show import show
from koordlet.decision.family import Kind
from koordlet.report.metrics import FAMILIES, PREFIX
from tests.test_floors import COMPANION_FLOOR, FLOOR
from tools.docs import concepts

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
"""Pages that speak of the commands, keys, metrics and files of the reference."""
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != REFERENCE),
]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
CITED = re.compile(r"docs/reference/(\w+)\.md(?: section)? (\d+(?:\.\d+)*)")
TREE = re.compile(r"(?:koordlet|tests|tools|docs|bench|proto|systemd|\.ci)/[\w./-]+")


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


pages = pytest.mark.parametrize("page", PAGES, ids=_id)


def _spans(page: Path) -> list[str]:
    return SPAN.findall(FENCE.sub("", page.read_text()))


def _commands(page: Path) -> Iterator[list[str]]:
    """What is typed: spans that begin with ``koordlet``, and such lines of code blocks."""
    blocks = [body for _, body in FENCE.findall(page.read_text())]
    for line in [*_spans(page), *(line for body in blocks for line in body.splitlines())]:
        words = line.strip().replace("\\|", "|").partition("#")[0].split()
        if words[:1] == ["koordlet"] and len(words) > 1:
            yield words[1:]


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _table_keys(loaded: Loaded) -> set[str]:
    """Every dotted key, and every table above one."""
    keys = {shown.key for shown in show(loaded)}
    return {key.rsplit(".", depth)[0] for key in keys for depth in range(key.count(".") + 1)}


# A package, and the name that the reference registers with NRI.
NOT_METRICS = {"koordlet_fakefs", "koordlet_nri"}


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert anchor in map(_slug, headings), f"{target}#{anchor}"


@pages
def test_files_of_the_tree_exist(page: Path) -> None:
    for span in _spans(page):
        if TREE.fullmatch(span) and "<" not in span:
            assert (ROOT / span).exists(), span


@pages
def test_commands_exist(page: Path) -> None:
    for words in _commands(page):
        choices = {command.name: command for command in COMMANDS}
        command = Command("koordlet", "", children=COMMANDS)
        while command.children and words and not words[0].startswith("-"):
            names = words.pop(0).split("|")
            assert set(names) <= set(choices), f"koordlet {command.name} {names}"
            command = choices[names[0]]
            choices = {child.name: child for child in command.children}
        known = {name for argument in command.arguments for name in argument.names}
        for word in words:
            is_ago = word[1:2].isdigit()  # a time
            if word.startswith("-") and not is_ago and not command.children:
                option = word.strip("[]").partition("=")[0]
                assert option in known, f"koordlet {command.name} {option}"


@pages
def test_make_targets_exist(page: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for name in re.findall(r"^make ([\w-]+)|`make ([\w-]+)", page.read_text(), re.MULTILINE):
        assert "".join(name) in targets


@pages
def test_configuration_keys_exist(page: Path) -> None:
    keys = _table_keys(load_config("/does/not/exist", missing_ok=True))
    tables = set(Config.__struct_fields__) - {"applications"}
    for span in _spans(page):
        if re.fullmatch(r"[a-z]+(\.[A-Za-z_-]+)+", span) and span.partition(".")[0] in tables:
            assert span in keys, span


TABLE = re.compile(r"^\| Key \| Default \| Meaning \|\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)
ROW = re.compile(r"^\| `([\w.-]+)` \| `?(.*?)`? \|", re.MULTILINE)


@pages
def test_defaults_in_tables_are_those_of_the_declarations(page: Path) -> None:
    """A key stands for every dotted key that ends with it."""
    values = {
        each.key: each.value for each in show(load_config("/does/not/exist", missing_ok=True))
    }
    for table in TABLE.findall(page.read_text()):
        for key, default in ROW.findall(table):
            found = {text for name, text in values.items() if f".{name}".endswith(f".{key}")}
            wanted = {default, f'"{default}"'} if default != "unset" else set()
            assert found & wanted if wanted else not found, (key, default, found)


def test_the_table_of_collectors_is_that_of_the_declarations() -> None:
    page = (ROOT / "docs/concepts/collectors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) s \|.*\| (.*?) \|$", page, re.MULTILINE)
    declared = [(part.name, part.options.interval_seconds) for part in COLLECTORS.values()]
    assert [(name, float(interval)) for name, interval, _ in rows] == declared


def test_the_table_of_other_writers_is_that_of_the_declarations() -> None:
    text = (ROOT / "docs" / "concepts" / "actuator.md").read_text()
    found = text.partition("| Who | When |")[2].partition("\n\n")[0].splitlines()[2:]
    assert found == [f"| {each.who} | {each.when} | {each.effect} |" for each in SHARERS]


@pages
def test_toml_blocks_are_valid(page: Path, tmp_path: Path) -> None:
    for language, body in FENCE.findall(page.read_text()):
        if language == "toml":
            file = tmp_path / "koordlet.toml"
            file.write_text(body)
            assert check(str(file)).errors == (), body


@pages
def test_metrics_exist(page: Path) -> None:
    known = {PREFIX + family.name for family in FAMILIES.values()}
    for family in FAMILIES.values():
        if family.kind is Kind.HISTOGRAM:
            known |= {f"{PREFIX}{family.name}_{end}" for end in ("bucket", "sum", "count")}
    for span in _spans(page):
        for name, star in re.findall(rf"\b({PREFIX}[a-z_]+)(\*?)", span):
            if name in NOT_METRICS or name in CATALOGUE:
                continue
            assert name in known or (star and any(each.startswith(name) for each in known)), name


def test_whoever_is_told_to_switch_suppression_on_is_told_what_that_arms() -> None:
    """`resourceUsedThresholdWithBE` arms memory eviction as well."""
    others = [ROOT / "koordlet/config/koordlet.toml"]
    for page in (*PAGES, *others):
        text = page.read_text()
        if "[slo.resourceUsedThresholdWithBE]" in text:
            assert re.search(r"arms\s+(#\s+)?memory\s+(#\s+)?eviction|BEMemoryEvict", text), page


def test_every_command_is_described() -> None:
    page = (ROOT / "docs/cli.md").read_text()

    def leaves(commands: tuple[Command, ...], prefix: str) -> Iterator[str]:
        for command in commands:
            name = f"{prefix} {command.name}"
            yield from leaves(command.children, name) if command.children else (name,)

    assert [name for name in leaves(COMMANDS, "koordlet") if f"| `{name}" not in page] == []


def test_the_design_names_every_room_and_its_floor() -> None:
    page = (ROOT / "docs/design.md").read_text()
    ours, _, companion = page.partition("The companion, `koord_scheduler/`")
    for text, floors in ((ours, FLOOR), (companion, COMPANION_FLOOR)):
        rows = re.findall(r"^\| (\d+) \| (.*?) \|", text, re.MULTILINE)
        named = {room: int(f) for f, cell in rows for room in re.findall(r"`(\w+)/`", cell)}
        assert named == floors


def test_the_index_of_concepts_lists_every_page() -> None:
    index = ROOT / "docs/concepts/README.md"
    assert index.read_text() == concepts(index.parent), "run: make docs"


def test_the_sections_of_the_facts_that_the_code_cites_are_there() -> None:
    headings = {
        page.stem: set(re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", page.read_text(), re.MULTILINE))
        for page in REFERENCE.glob("*.md")
    }
    missing = [
        f"{path.relative_to(ROOT)}: {page} {section}"
        for room in ("koordlet", "koord_scheduler", "tests", "bench", "tools")
        for path in (ROOT / room).rglob("*.py")
        for page, section in CITED.findall(path.read_text())
        if section not in headings[page]
    ]
    assert missing == []
