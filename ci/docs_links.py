"""A hook of mkdocs: what the documents link to that lies outside of ``docs/`` is no page of the site; there
the name stands without a link.  Links between documents stay, and mkdocs checks that they lead somewhere."""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!docs/)[^)]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Before a page is made: its text."""
    depth = page.file.src_uri.count("/")

    def named(match: re.Match[str]) -> str:
        ups = match[0].count("../")
        return match[1] if ups > depth else match[0]

    return OUTSIDE.sub(named, markdown)
