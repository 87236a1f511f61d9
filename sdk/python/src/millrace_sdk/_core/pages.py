"""Lists that are read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any


def pages(read: Callable[[str], Any]) -> Iterator[Any]:
    """Go through a list. read returns the page at a cursor, and the cursor of the next page.

    An empty cursor is that of the first page, and says that there is no further one.
    """
    cursor = ""
    while True:
        page, cursor = read(cursor)
        yield from page
        if not cursor:
            return


async def apages(read: Callable[[str], Any]) -> AsyncIterator[Any]:
    """Go through a list as pages does, of a client whose calls are awaited."""
    cursor = ""
    while True:
        page, cursor = await read(cursor)
        for one in page:
            yield one
        if not cursor:
            return
