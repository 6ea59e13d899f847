"""``koordlet report``: a time of the past on one HTML page, and in sentences."""

from __future__ import annotations

import argparse
import os
import sys
import time

from koordlet.cli import output
from koordlet.cli.main import Exit, complain
from koordlet.cli.past import opened, range_of
from koordlet.history.incident import incident
from koordlet.history.page import render_incident
from koordlet.history.summary import sentences, title

STDOUT = "-"


def main(args: argparse.Namespace) -> int:
    try:
        asked = range_of(args)
    except ValueError as error:
        return complain(error, Exit.USAGE)
    wrong = _cannot_write(args.output)
    if wrong:
        return complain(wrong, Exit.USAGE)
    with opened(args) as source:
        found = incident(source, *asked)
    page = render_incident(found, time.time())
    if args.output == STDOUT:
        sys.stdout.write(page)
        return Exit.OK
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(page)
    print(title(found))
    for text in (*sentences(found), *found.missing):
        print()
        print("\n".join(output.wrap(text)))
    print(f"\nReport: {os.path.abspath(args.output)}")
    return Exit.OK


def _cannot_write(path: str) -> str:
    """Known before the daemon is asked, not after."""
    if path == STDOUT:
        return ""
    target = path if os.path.exists(path) else os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(target, os.W_OK):
        return f"--output: {path} cannot be written"
    return ""
