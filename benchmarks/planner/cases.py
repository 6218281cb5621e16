"""A case: a setting of a job on hosts of the lab."""

# SPDX-License-Identifier: Apache-2.0
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from argosy.distributed.auto.setting import Setting

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """Switches, ranks, hosts and the rate of their links."""

    hosts: int
    ranks: int
    """Of the job."""
    rate: str
    setting: Setting

    @property
    def place(self) -> str:
        """Cases of one place are run by the same processes."""
        return f"{self.hosts}x{self.ranks // self.hosts}"

    def text(self) -> str:
        where = f"{self.hosts} host{'s' if self.hosts > 1 else ''} x {self.ranks // self.hosts}"
        return f"{where}{f', {self.rate}' if self.hosts > 1 else ''}; {self.setting.text()}"


def read(name: str) -> list[Case]:
    """The cases of a file: held_out or training."""
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text())["settings"]
    switches = {field.name for field in fields(Setting)}
    return [
        Case(
            entry["hosts"],
            entry["ranks"],
            entry.get("rate", ""),
            Setting(**{k: v for k, v in entry.items() if k in switches}),
        )
        for entry in content
    ]
