"""What a relation does otherwise while pages of it are absent (`absent`)."""

from __future__ import annotations

from hotspare.engine.kernels import Whole
from hotspare.engine.kernels import absent as kernels
from hotspare.engine.kernels import relation as k
from hotspare.engine.state.absent import KeptPages
from hotspare.engine.state.key_pages import RememberedKeys, given_of
from hotspare.engine.state.row_layout import Known, Layout
from hotspare.engine.state.row_pages import RowPages


def relate_where_absent(pages: RowPages, out: k.OutputArrays, policy: k.Policy, given: k.InputArrays) -> Whole:
    """As `kernels.relation.relate`, of a relation that forgets nothing: in pieces, before each of which the page is brought that it
    may clear. Pages with the keys of the chunk were brought."""
    while True:
        rows, row = pages.rows, int(out.counts[k.ROW])
        count = int(kernels.rows_before_gaps(rows.state))
        if not count:
            count = 1
            bring_to_clear(pages)
            rows = pages.rows
        piece = given._replace(rank=given.rank[: row + count])  # the second row of a block may stand behind it
        state = k.relate(rows, out, policy, piece)
        if state in (k.NEEDS_INDEX, k.NEEDS_ROOM):
            return state
        if int(out.counts[k.ROW]) >= len(given.rank):
            return k.DONE
        if out.counts[k.MADE] >= out.counts[k.ROOM]:
            return k.IS_FULL


def bring_to_clear(pages: RowPages) -> None:
    """Read the page that the next event may clear, if it is absent."""
    if pages.absent is not None and (page := int(kernels.page_to_clear(pages.rows))) >= 0:
        pages.bring(page)


def remember(known: Known, keys: RememberedKeys, layout: Layout, pages: KeptPages) -> None:
    """By what the store knows pages of the snapshot that was restored: they need not be written again."""
    for at, number in enumerate(layout.numbers.tolist()):
        given = layout.page_slots if at + 1 < len(layout.numbers) else layout.fill
        if (of_page := pages.known(number)) is not None:
            known.by_page[number] = given, 0, of_page
    for number in pages.key_numbers:
        if (of_page := pages.key_page_known(number)) is not None:
            keys.known.by_page[number] = given_of(number, layout), 0, of_page
