"""Damage to the journal: whatever is done to the file, ``restore`` never says that everything is
back while something is not, and never writes a value over one that nobody knows to be ours.

``KOORDLET_MUTATIONS=1500`` tries as many mutations on each layout.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from koordlet.actuator.journal.journal import Boot, Journal, Original, load
from koordlet.actuator.journal.lines import write_line
from koordlet.actuator.merge import Key
from koordlet.actuator.restore import RestoreReport, Status
from koordlet.decision.resource import UNLIMITED, Resource
from tests.actuator.journal.test_journal import intent, original
from tests.actuator.world import World, fake, plan

QUOTA, SHARES, CPUS = Resource.CPU_QUOTA_US, Resource.CPU_SHARES, Resource.CPUSET_CPUS
PERIOD, HIGH = Resource.CPU_PERIOD_US, Resource.MEMORY_HIGH
MUTATIONS = int(os.environ.get("KOORDLET_MUTATIONS", "150"))

Files = dict[Key, bytes]


class Story:
    """A journal that a real sequence of writes has left, and what its files hold before and after
    an undamaged restore."""

    def __init__(self, layout: str, directory: Path, seed: int) -> None:
        chance = random.Random(seed)
        host = fake(layout)
        for pod in ("a", "b"):
            host.make_cgroup(f"be/{pod}/box")
        host.make_cgroup("ls")
        self.world = World(host, str(directory))
        self.earlier: list[bytes] = []
        """The file as it was on the way."""
        self._play(chance)
        self.journal, self.anchor = self._on_disk()
        keys = list(self.world.journal.entries)
        self.held = {key: self.world.cgroups.read_raw(*key) for key in keys}
        report = self.world.restore()
        assert report.ok, report
        self.back = {key: self.world.cgroups.read_raw(*key) for key in keys}
        assert {key for key in keys if self.held[key] != self.back[key]}

    def _play(self, chance: random.Random) -> None:
        world, cgroups = self.world, self.world.cgroups
        boxes = ["be", "be/a", "be/b", "be/a/box", "be/b/box"]
        for turn in range(25):
            quota = chance.randrange(50, 200) * 1000
            wants = [(box, QUOTA, max(quota - 10_000 * box.count("/"), 2000)) for box in boxes]
            others = [("ls", SHARES, chance.randrange(2, 5000)), ("ls", PERIOD, 50_000 + turn)]
            if turn % 3 == 0:
                others.append(("be/a", SHARES, chance.randrange(2, 2000)))
            lists = [(box, CPUS, chance.choice(["0", "0-1", "0-2"])) for box in boxes[:1]]
            lists += [(box, CPUS, "0") for box in boxes[1:]]
            world.apply(plan("suppress", *wants, *lists), plan("other", *others))
            if turn in (6, 14):
                world.cgroups.write("ls", SHARES, 3000 + turn)  # somebody else: a new original
            if turn == 10:
                world.apply(plan("other"))
            if turn == 12:
                world.start()  # a restart
                world.actuator.apply([], now=world.now, time=world.now)
            self.earlier.append(self._on_disk()[0])
        assert cgroups.read("be", QUOTA) != UNLIMITED

    def _on_disk(self) -> tuple[bytes, bytes]:
        path = Path(self.world.journal_path)
        return path.read_bytes(), path.with_name("journal.anchor").read_bytes()

    def set_up(self, journal: bytes | None, anchor: bytes | None = None) -> None:
        """The host and the directory as they were when the journal was written, but for this."""
        for path in Path(self.world.journal_path).parent.glob("journal*"):
            path.unlink()
        path = Path(self.world.journal_path)
        if journal is not None:
            path.write_bytes(journal)
        path.with_name("journal.anchor").write_bytes(self.anchor if anchor is None else anchor)
        self._write(self.held)

    def _write(self, files: Files) -> None:
        """In some order that the kernel takes."""
        for _ in range(4):
            for key, raw in files.items():
                if self.world.cgroups.read_raw(*key) != raw:
                    try:
                        self.world.cgroups.write_raw(*key, raw)
                    except OSError:
                        continue
        assert self.now() == files

    def now(self) -> Files:
        return {key: self.world.cgroups.read_raw(*key) for key in self.held}


def cut_anywhere(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    return data[: chance.randrange(len(data))]


def cut_at_a_line_end(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[: chance.randrange(len(lines))])


def begin_late(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[chance.randrange(1, len(lines)) :])


def empty(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes | None:
    return chance.choice([b"", None, b"\n", b"\0" * len(data)])


def swap(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    lines = data.splitlines(keepends=True)
    a, b = chance.sample(range(len(lines)), 2)
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def shuffle(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def drop(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(chance.choice([1, 1, 2, 5])):
        del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def repeat(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    lines = data.splitlines(keepends=True)
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    return b"".join(lines)


def flip(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 3, 20])):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def hole(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    start = chance.randrange(len(data))
    length = chance.randrange(1, 4096)
    return data[:start] + b"\0" * min(length, len(data) - start) + data[start + length :]


def mix(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    lines, theirs = data.splitlines(keepends=True), other.journal.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    return b"".join(
        chance.choice(
            [
                [*lines[:at], *theirs[at:]],
                [*theirs[:at], *lines[at:]],
                [line for pair in zip(lines, theirs, strict=False) for line in pair],
                [*lines[:at], chance.choice(theirs), *lines[at:]],
                theirs,
            ]
        )
    )


def go_back(chance: random.Random, data: bytes, story: Story, other: Story) -> bytes:
    old = chance.choice(story.earlier)
    lines, before = data.splitlines(keepends=True), old.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    return chance.choice([old, b"".join([*lines[:at], *before[at:]])])


MUTATIONS_OF = (
    *(cut_anywhere, cut_at_a_line_end, begin_late, empty, swap, shuffle, drop, repeat, flip, hole),
    *(mix, go_back),
)


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_complete_is_said_only_where_everything_is_back(layout: str, tmp_path: Path) -> None:
    story = Story(layout, tmp_path / "a", seed=1)
    other = Story(layout, tmp_path / "b", seed=2)
    chance = random.Random(3)
    claimed = damaged = 0
    for number in range(MUTATIONS):
        kind = MUTATIONS_OF[number % len(MUTATIONS_OF)]
        data = kind(chance, story.journal, story, other)
        report = judge(story, data, f"{kind.__name__}, mutation {number}")
        claimed += report.ok
        damaged += not report.ok
    # A repeated or an empty line takes nothing away; most mutations do.
    assert damaged > MUTATIONS / 2


@pytest.mark.parametrize("layout", ["hybrid"])
def test_a_cut_at_each_line_end(layout: str, tmp_path: Path) -> None:
    story = Story(layout, tmp_path / "a", seed=4)
    lines = story.journal.splitlines(keepends=True)
    step = max(1, len(lines) // (len(lines) if MUTATIONS >= 1500 else 40))
    for length in range(0, len(lines), step):
        report = judge(story, b"".join(lines[:length]), f"cut after line {length}")
        assert not report.ok
        if length:
            assert f"{len(lines) - length} record" in report.damage
            assert "missing at the end" in report.damage
        else:
            assert "the file was emptied" in report.damage


def test_a_damaged_anchor_is_told(tmp_path: Path) -> None:
    story = Story("hybrid", tmp_path / "a", seed=5)
    chance = random.Random(6)
    for number in range(MUTATIONS // 5):
        anchor = bytearray(story.anchor)
        anchor[chance.randrange(len(anchor) // 3)] ^= 1 << chance.randrange(8)
        data: bytes | None = story.journal
        if number % 2:
            data = chance.choice(MUTATIONS_OF)(chance, story.journal, story, story)
        report = judge(story, data, f"anchor, mutation {number}", bytes(anchor))
        assert not report.ok


def judge(
    story: Story, data: bytes | None, what: str, anchor: bytes | None = None
) -> RestoreReport:
    story.set_up(data, anchor)
    dry = story.world.restore(dry_run=True)
    assert story.now() == story.held, what
    report = story.world.restore()
    after = story.now()
    if report.ok:
        assert after == story.back, what
    if report.damage:
        assert dry.damage and not dry.ok, what
    told = {Key(item.cgroup, item.resource): item for item in report.items}
    for key, raw in after.items():
        if raw != story.held[key] and raw != story.back[key]:
            # Another original than the last: only where it says that it may be.
            assert "damaged journal" in told[key].text, what
    assert story.world.restore().ok is report.ok, what  # as long as nobody looks after it
    story.world.restore(force=True)
    assert story.world.restore().ok, what  # the operator has taken it on
    return report


def lines_of(path: str) -> list[bytes]:
    return Path(path).read_bytes().splitlines(keepends=True)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    """Of a journal with originals a to f, each with an intent; 13 lines."""
    path = str(tmp_path / "state" / "journal")
    journal = Journal(path, boot_id="boot")
    for name in "abcdef":
        journal.begin([original(name)], [intent(name, 2)])
    journal.close()
    yield path


def without(*numbers: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [line for n, line in enumerate(lines, start=1) if n not in numbers]


@pytest.mark.parametrize(
    ("change", "told", "doubtful"),
    [
        (without(8, 9), "2 records missing between line 7 and line 8", "abc"),
        (without(1), "1 record missing before line 1", ""),
        (without(12, 13), "2 records missing at the end", "abcde"),
        (without(2), "1 record missing between line 1 and line 2", ""),
        (lambda lines: [], "the file was emptied: 13 records missing", ""),
        (
            lambda lines: [*lines[:4], b"rubbish\n", *lines[5:]],
            "1 record missing between line 4 and line 6; line 5 is not a record of this journal",
            "ab",
        ),
        (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], "wrong place", ""),
        (lambda lines: [*lines[:5], lines[3], *lines[5:]], "line 6 is in the place of line 4", ""),
    ],
)
def test_what_is_missing_is_said(
    path: str, change: Callable[[list[bytes]], list[bytes]], told: str, doubtful: str
) -> None:
    Path(path).write_bytes(b"".join(change(lines_of(path))))
    contents = load(path, "boot")
    assert told in "; ".join(contents.damage)
    found = "".join(each.original.cgroup for each in contents.entries.values())
    unsure = [each.original for each in contents.entries.values() if each.original.doubtful]
    assert "".join(each.cgroup for each in unsure) == doubtful
    assert set(doubtful) <= set(found)


def test_a_value_whose_original_is_missing_is_listed(path: str) -> None:
    Path(path).write_bytes(b"".join(without(2)(lines_of(path))))
    (lost,) = load(path, "boot").lost.values()
    assert lost.cgroup == "a" and lost.values == (2,)


def test_a_file_that_is_gone_is_noticed(path: str) -> None:
    os.unlink(path)
    assert load(path, "boot").damage == ("the file is gone: 13 records missing",)


def test_losing_a_journal_that_held_nothing_loses_nothing(path: str) -> None:
    journal = Journal(path, boot_id="boot")
    journal.release(list(journal.entries))
    journal.close()
    os.unlink(path)
    assert not load(path, "boot").damage
    Journal(path, boot_id="boot").close()


def test_a_reboot_ends_the_damage(path: str) -> None:
    os.unlink(path)
    assert not load(path, "later").damage
    Journal(path, boot_id="later").close()
    assert not load(path, "later").damage


def test_damage_is_remembered_and_kept_aside_until_somebody_forgives_it(path: str) -> None:
    damaged = b"".join(without(8, 9)(lines_of(path)))
    Path(path).write_bytes(damaged)
    first = Journal(path, boot_id="boot")
    told = first.damage
    assert first.incomplete and Path(first.aside).read_bytes() == damaged
    first.intend([intent("a", 3)])
    first.begin([original("later")], [])
    first.close()
    second = Journal(path, boot_id="boot")
    assert second.damage == told and second.aside == first.aside
    names = [each.original for each in second.entries.values() if each.original.doubtful]
    assert [each.cgroup for each in names] == ["a", "b", "c", "later"]
    second.forgive()
    assert not second.damage and not second.incomplete
    second.close()
    contents = load(path, "boot")
    assert not contents.damage
    assert not [each for each in contents.entries.values() if each.original.doubtful]


def test_one_damaged_file_is_kept(path: str) -> None:
    for _ in range(3):
        Path(path).write_bytes(b"".join(lines_of(path)[:-1]))
        Journal(path, boot_id="boot").close()
    names = os.listdir(os.path.dirname(path))
    assert len([name for name in names if "damaged" in name]) == 1


def test_a_journal_of_the_first_format_is_read_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal"
    path.parent.mkdir()
    raw = b""
    for line in (Boot("boot"), original("a"), intent("a", 2), original(r"b\x41"), intent("c", 1)):
        text = msgspec.json.encode(line)
        raw += b"%08x %s\n" % (zlib.crc32(text), text)
    path.write_bytes(raw + b'12345678 {"type":"orig')
    before = load(str(path), "boot")
    assert not before.damage and [key.cgroup for key in before.entries] == ["a", r"b\x41"]
    journal = Journal(str(path), boot_id="boot")
    assert journal.entries == before.entries and not journal.damage
    journal.begin([original("d")], [])
    journal.close()
    after = load(str(path), "boot")
    assert after.tail is not None and not after.damage
    assert [key.cgroup for key in after.entries] == ["a", r"b\x41", "d"]


@pytest.mark.parametrize(
    "name", ["sp ace", r"back\slash", "b\udcff\udc80", "\u202e", r"x\x41", "ü"]
)
def test_names_are_journaled_byte_for_byte(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "state" / "journal")
    journal = Journal(path, boot_id="boot")
    journal.begin([original(f"be/{name}")], [intent(f"be/{name}", 2)])
    journal.release([Key("gone/" + name, SHARES)])
    journal.close()
    found: Original = load(path, "boot").entries[Key(f"be/{name}", SHARES)].original
    assert found == original(f"be/{name}")


def test_every_state_that_a_kill_can_leave_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory after each single system call that changes it."""
    path = str(tmp_path / "state" / "journal")
    states: list[dict[str, bytes]] = []

    def look(call: Callable[..., object]) -> Callable[..., object]:
        def called(*args: object) -> object:
            answer = call(*args)
            found = {}
            for name in os.listdir(os.path.dirname(path)):
                with open(os.path.join(os.path.dirname(path), name), "rb") as file:
                    found[name] = file.read()
            states.append(found)
            return answer

        return called

    for name in ("pwrite", "rename", "ftruncate", "fsync"):
        monkeypatch.setattr(os, name, look(getattr(os, name)))
    monkeypatch.setattr("koordlet.actuator.journal.journal._COMPACT_BYTES", 2000)
    for _ in range(2):
        journal = Journal(path, boot_id="boot")
        for name in "abcdefgh":
            journal.begin([original(name)], [intent(name, 2)])
            journal.intend([intent(name, 2, 3)])
        journal.release(list(journal.entries)[:4])
        journal.close()
    monkeypatch.undo()
    assert len({state["journal"].partition(b" ")[0] for state in states if "journal" in state}) > 2
    copy = tmp_path / "copy"
    copy.mkdir()
    for state in states:
        for file in copy.iterdir():
            file.unlink()
        for name, data in state.items():
            (copy / name).write_bytes(data)
        contents = load(str(copy / "journal"), "boot")
        assert not contents.damage and not contents.damaged_lines


def test_the_file_is_mended_from_memory_while_a_daemon_runs(path: str) -> None:
    journal = Journal(path, boot_id="boot")
    assert not journal.inspect()
    for harm in (
        lambda: os.truncate(path, 100),
        lambda: os.unlink(path),
        lambda: os.rename(path, path + ".moved"),
        lambda: Path(path).write_bytes(Path(path).read_bytes().replace(b"owner", b"ownar")),
        lambda: os.unlink(path + ".anchor"),
    ):
        harm()
        assert "has rewritten it" in journal.inspect()
        contents = load(path, "boot")
        assert contents.entries == journal.entries and not contents.damage
        assert not journal.inspect()
    os.truncate(path, 100)
    journal.intend([intent("a", 5)])  # or at the next record
    assert load(path, "boot").entries == journal.entries
    journal.close()


def test_the_report_of_a_damaged_journal_says_what_to_do(tmp_path: Path) -> None:
    story = Story("hybrid", tmp_path, seed=7)
    lines = story.journal.splitlines(keepends=True)
    story.set_up(b"".join(lines[:-3]))
    key = Key("be", QUOTA)
    story.world.cgroups.write(*key, 777_000)
    report = story.world.restore()
    assert not report.ok and "3 records missing at the end" in report.damage
    assert "koordlet restore --force" in report.damage and "journal.damaged-" in report.damage
    (item,) = [each for each in report.items if (each.cgroup, each.resource) == key]
    assert item.status is Status.DOUBTFUL and "777000" in item.text
    assert story.world.cgroups.read(*key) == 777_000
    forced = story.world.restore(force=True)
    assert not forced.ok
    assert story.world.cgroups.read(*key) == UNLIMITED
    assert story.world.restore().ok


def test_records_of_another_boot_have_no_gap_to_tell(tmp_path: Path) -> None:
    """What a power failure leaves: the disk has not what was in the page cache alone."""
    path = str(tmp_path / "state" / "journal")
    journal = Journal(path, boot_id="boot")
    journal.begin([original("a")], [intent("a", 2)])
    journal.intend([intent("a", 3)])
    journal.close()
    Path(path).write_bytes(b"".join(lines_of(path)[:-1]))
    assert load(path, "boot").damage and not load(path, "later").damage


def test_a_line_tells_its_place(tmp_path: Path) -> None:
    data, crc = write_line(original("a"), 1, 2, 3)
    assert data.startswith(b"00000001 00000002 00000003 %08x {" % crc)
