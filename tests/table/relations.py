"""The content of a relation, and a relation written and read back."""

from __future__ import annotations

from hotspare.table.relation import Relation


def content(relation: Relation) -> dict[str, object]:
    """Returns rows in order of arrival, their places, and the rest of what a snapshot has."""
    lanes, valid, times = relation.stored()
    columns = {name: column.array.tolist() for name, column in relation.columns().items()}
    return {"lanes": lanes.tolist(), "valid": valid.tolist(), "times": times.tolist(), **columns}


def reload(relation: Relation, into: Relation) -> Relation:
    """Loads a snapshot of `relation` into `into`, which is fresh."""
    twin = relation.freeze()
    into.load_pages(twin.columns(), {page.number: page.columns() for page in twin.row_pages()})
    return into
