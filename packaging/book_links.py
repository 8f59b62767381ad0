#!/usr/bin/env python3
"""A preprocessor of mdBook: links to files outside of docs/ become plain text, or lead to ESKER_SOURCE_URL if that is set."""

import json
import os
import pathlib
import re
import sys

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"


def inside(page, link):
    """Returns true if a link leads to a page, a file of docs/ or another site."""
    path = link.split("#")[0]
    if not path or "://" in path:
        return True
    return (DOCS / page).parent.joinpath(path).resolve().is_relative_to(DOCS)


def changed(page, text):
    base = os.environ.get("ESKER_SOURCE_URL", "").rstrip("/")

    def replaced(match):
        _, shown, link = match.groups()
        if inside(page, link):
            return match[0]
        path = (DOCS / page).parent.joinpath(link).resolve().relative_to(DOCS.parent)
        return f"[{shown}]({base}/{path})" if base else shown

    return LINK.sub(replaced, text)


def walk(items):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            if chapter.get("path"):
                chapter["content"] = changed(chapter["path"], chapter["content"])
            walk(chapter["sub_items"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["supports"]:
        sys.exit(0)
    _, book = json.load(sys.stdin)
    walk(book.get("items", book.get("sections", [])))
    json.dump(book, sys.stdout)
