"""Slow links."""
from dataclasses import dataclass
from typing import Any
from argosy.engine.metrics.job_directory import Record

@dataclass
class SlowLinks:
    def update(self, record: Record) -> list[dict[str, Any]]:
        return []
