"""What a relation holds, and the same written and read back."""

from __future__ import annotations

from hotspare.table.relation import Relation


def content(relation: Relation) -> dict[str, object]:
    """Rows in order of arrival, where they stand, and what a snapshot has beside them."""
    lanes, valid, times = relation.stored()
    columns = {name: column.array.tolist() for name, column in relation.columns().items()}
    return {"lanes": lanes.tolist(), "valid": valid.tolist(), "times": times.tolist(), **columns}


def reload(relation: Relation, into: Relation) -> Relation:
    """`into`, which is fresh, as a snapshot of `relation` makes it."""
    twin = relation.freeze()
    into.load_pages(twin.columns(), {page.number: page.columns() for page in twin.row_pages()})
    return into
