"""Determines the topics that the groups of a project read and write, and the windows of these topics (SPEC B1)."""

from __future__ import annotations

from collections.abc import Mapping

from hotspare.base.inbound_role import InboundRole
from hotspare.base.shard import WHOLE, Shard
from hotspare.bus.naming import bad_topic, inbound_topic, outbound_topic, ticks_topic
from hotspare.flow.plan import BAD_KEY, Plan
from hotspare.formats.topic_format import inbound_format, outbound_format, outbound_key
from hotspare.ha.rules.settings import GroupTopics, InboundTopic, OutputStream
from hotspare.model.partitioning import partition_fields
from hotspare.model.project import Beats, Project, WindowId
from hotspare.model.quality import PRECISE
from hotspare.model.resolved import Resolved
from hotspare.rows.batch import BAD_STREAM, MessageFormat
from hotspare.runners.contract import SourceTopic


def source_topic(resolved: Resolved, prefix: str, source: WindowId) -> str:
    """Returns the inbound topic of a source window: its own, or the output topic of the window that it reads."""
    read = resolved.reads(source)
    if read is not None:
        return outbound_topic(prefix, read.project, read.query, read.window)
    return inbound_topic(prefix, resolved.project.name, source.query, source.window)


def group_topics(
    project: Project, plan: Plan, prefix: str, shard: Shard = WHOLE, found: Mapping[str, int] | None = None
) -> GroupTopics:
    """Returns the topics that a group reads and writes (SPEC B1). `found` has the partition counts of existing topics; a project
    that is not divided reads all partitions of another project's topics."""
    by, resolved = {} if shard.is_whole else partition_fields(plan.resolved), plan.resolved
    inbound = [_inbound(resolved, prefix, source, shard, found or {}, by.get(source, "")) for source in resolved.sources]
    if any(topic.kind is InboundRole.OUTPUTS for topic in inbound):
        inbound.append(InboundTopic(ticks_topic(prefix, project.name), shard.count, kind=InboundRole.TICKS))
    outbound = [_outbound(resolved, prefix, window) for window in resolved.streams]
    bad = OutputStream(BAD_STREAM, bad_topic(prefix, project.name), PRECISE, MessageFormat.JSON, message_key=BAD_KEY)
    return GroupTopics(tuple(inbound), (*outbound, bad), shard)


def _outbound(resolved: Resolved, prefix: str, stream: WindowId) -> OutputStream:
    window = resolved.window(stream).window
    return OutputStream(
        str(stream),
        outbound_topic(prefix, resolved.project.name, stream.query, stream.window),
        resolved.quality(stream),
        outbound_format(window),
        window.beats is Beats.INCLUDED,
        outbound_key(window, resolved.schema(stream)),
    )


def _inbound(
    resolved: Resolved, prefix: str, source: WindowId, shard: Shard, found: Mapping[str, int], partition_by: str
) -> InboundTopic:
    name = source_topic(resolved, prefix, source)
    if resolved.reads(source) is None:
        return InboundTopic(name, shard.count, partition_by)
    return InboundTopic(name, found.get(name, shard.count), partition_by, InboundRole.OUTPUTS)


def source_topics(resolved: Resolved, topics: GroupTopics, shard: int | None = None) -> tuple[SourceTopic, ...]:
    """Returns the inbound topics of a group as a runner reads them: only partition `shard` of each, all partitions if it is
    None."""
    formats = [inbound_format(resolved.window(source).window) for source in resolved.sources]
    formats += [MessageFormat.CSV] * (len(topics.inbound) - len(formats))  # a topic of ticks alone
    return tuple(
        SourceTopic(topic.name, topic.partitions, format_, shard, topic.kind)
        for topic, format_ in zip(topics.inbound, formats, strict=True)
    )
