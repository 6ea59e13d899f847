"""Completion for fish, from the table of commands (``complete(1)`` of fish)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordlet.cli.arguments import Argument, Command
from koordlet.cli.commands import COMMANDS
from koordlet.cli.completion import NAMES
from koordlet.cli.main import named

_HEAD = """\
# Completion of koordlet for fish; written by `koordlet completion fish`.

# The words before the cursor are exactly these commands.
function __koordlet_at
    set -l words (commandline -opc)
    set -e words[1]
    test "$words" = "$argv"
end

# They begin with these commands.
function __koordlet_in
    set -l words (commandline -opc)
    set -e words[1]
    set -l size (count $argv)
    test (count $words) -ge $size; and test "$words[1..$size]" = "$argv"
end

complete -c koordlet -f
complete -c koordlet -n __koordlet_at -l version -d 'show the version'
"""
_FLAGS = ("store_true", "store_false", "version", "help")


def script() -> str:
    return _HEAD + "".join(f"complete -c koordlet {line}\n" for line in _lines(COMMANDS, ()))


def _lines(commands: Iterable[Command], above: tuple[str, ...]) -> Iterator[str]:
    for command in commands:
        at = _condition("at", above)
        yield f"-n {at} -a {quoted(command.name)} -d {quoted(command.help)}"
        path = (*above, command.name)
        if command.children:
            yield from _lines(command.children, path)
            continue
        inside = _condition("in", path)
        yield f"-n {inside} -s h -l help -d 'show the help'"
        for argument in command.arguments:
            if line := _argument(argument):
                yield f"-n {inside} {line}"


def _argument(argument: Argument) -> str:
    """Empty for a word that nothing can be offered for."""
    names = [name for name in argument.names if name.startswith("-")]
    options = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in sorted(names)
    ]
    takes_value = not names or argument.options.get("action") not in _FLAGS
    if takes_value:
        words = argument.options.get("choices") or (named(argument.words) if argument.words else ())
        if argument.is_path:
            options.append("-r -F" if names else "-F")
        elif names:
            options.append("-x")
        if argument.is_name:
            options.append(f"-a {quoted(f'({NAMES})')}")
        elif words:
            options.append(f"-a {quoted(' '.join(sorted(map(str, words))))}")
        elif not names and not argument.is_path:
            return ""
    if about := argument.options.get("help"):
        options.append(f"-d {quoted(about)}")
    return " ".join(options)


def _condition(function: str, path: tuple[str, ...]) -> str:
    return quoted(" ".join((f"__koordlet_{function}", *path)))


def quoted(text: str) -> str:
    """In single quotes fish reads a backslash before a quote or a backslash alone."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
