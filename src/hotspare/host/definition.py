"""Defines the groups of a project: the identity that their engines compare, their lease settings, and the factory of their
cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from hotspare.base.shard import WHOLE, Shard
from hotspare.bus.open import call_timeout_ms, read_interval_ms
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan
from hotspare.flow.window_meter import WindowMeter
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.ha.effects.joining import ProjectIdentity
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host.options import EngineOptions
from hotspare.model.project import Project
from hotspare.projects.fingerprint import differences, from_document, to_document
from hotspare.table.memory import NO_BUDGET, PageCache
from hotspare.telemetry.log import Log, LogEvent


def with_slow_bus_limits(options: EngineOptions) -> GroupSettings:
    """Returns the settings for the bus of the options. Promotion steps are at least as long as one bus call may take plus the
    lease: else a slow promotion could never end. Reads are not more frequent than is worth while."""
    settings, url = options.settings, options.bus_url
    step_ms, read_ms = call_timeout_ms(url) + settings.lease_ms, read_interval_ms(url)
    settings = replace(settings, promotion_step_ms=max(settings.promotion_step_ms, step_ms))
    return replace(settings, read_interval_ms=max(settings.read_interval_ms, read_ms))


def project_identity(project: Project, plan: Plan) -> ProjectIdentity:
    return ProjectIdentity(
        hash=plan.project_hash,
        document=to_document(project),
        differences=lambda stored: differences(from_document(stored), project),
    )


class PipelineFactory:
    """Makes cores of one shard of a plan (`ha.core.CoreFactory`) and logs their traced events. `meter` counts what the windows of
    all these cores process; None: nothing does."""

    def __init__(
        self,
        plan: Plan,
        log: Log,
        shard: Shard = WHOLE,
        residence: PageCache = NO_BUDGET,
        meter: WindowMeter | None = None,
    ) -> None:
        self._plan = plan
        self._log = log
        self._shard = shard
        self._residence = residence
        self._meter = meter

    def fresh(self) -> Pipeline:
        return self._metered(Pipeline.fresh(self._plan, self._trace, shard=self._shard.number, residence=self._residence))

    def restore(self, header: bytes, pages: Mapping[str, bytes]) -> Pipeline:
        return self._metered(Pipeline.restore(self._plan, header, pages, self._trace, residence=self._residence))

    def _metered(self, pipeline: Pipeline) -> Pipeline:
        if self._meter is not None:
            pipeline.attach_meter(self._meter)
        return pipeline

    def _trace(self, window: str, events: pa.RecordBatch) -> None:
        for row in row_texts(events, CsvStyle.EXACT):
            self._log.event(LogEvent.TRACE, window=window, row=row)
