"""A topic that takes less than one row of its stream is refused at the start, with the setting to raise (SPEC B13)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import UsageError
from hotspare.bus.memory import MemoryBus
from hotspare.ha.rules.settings import OutputStream
from hotspare.host.message_sizes import check_message_sizes
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import MessageFormat

WIDE = Schema((Field("id", FieldType.INT64, KeyRole.KEY), *(Field(f"sensor_{i:04}", FieldType.DOUBLE) for i in range(300))))


@pytest.mark.parametrize("format_", [MessageFormat.ARROW, MessageFormat.JSON, MessageFormat.CSV])
def test_one_row_without_values_has_to_fit(format_: MessageFormat) -> None:
    bus, output = MemoryBus(), OutputStream("q/w", "out", format=format_)
    bus.client().create_topic("out")
    check_message_sizes(bus.client(), [(output, WIDE)])
    bus.message_bytes["out"] = 150
    with pytest.raises(UsageError, match="takes less than one row") as refused:
        check_message_sizes(bus.client(), [(output, WIDE)])
    assert "topic out takes 150 bytes, one row of stream q/w needs" in refused.value.detail
    assert "max.message.bytes" in refused.value.hint
