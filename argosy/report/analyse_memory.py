"""Memory of the ranks, and the tables of parameter servers."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.report.collect import JobRun, ServerRun, cut
from argosy.report.values import dicts, finite, over_time, rounded, text


def memory(run: JobRun) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for number, rank in sorted(run.ranks.items()):
        memory = (rank.profile or {}).get("memory")
        memory = memory if isinstance(memory, dict) else {}
        breakdown = memory.get("breakdown")
        rows.append(
            {
                "rank": number,
                "peak_rss": rank.peak_rss or None,
                "peak_bytes": finite(memory.get("peak_bytes")),
                "node": cut(memory.get("node") or "", 200),
                "source": cut(memory.get("source") or "", 300),
                "breakdown": {str(k): finite(v) or 0.0 for k, v in breakdown.items()}
                if isinstance(breakdown, dict)
                else {},
                "largest": [
                    {
                        "name": cut(text(entry.get("name")), 200),
                        "kind": cut(text(entry.get("kind")), 200),
                        "what": cut(text(entry.get("what")), 200),
                        "bytes": finite(entry.get("nbytes")),
                        "source": cut(text(entry.get("source")), 300),
                    }
                    for entry in dicts(memory.get("largest"))[:10]
                ],
            }
        )
    rss = over_time({n: r.rss for n, r in run.ranks.items()})
    largest = max(rows, key=lambda row: (row["peak_bytes"] or 0.0, -row["rank"]), default=None)
    for row in rows:
        if row is not largest:
            row["largest"] = []  # alike on all ranks
    return {"ranks": rows, "rss": rss, "largest_rank": largest["rank"] if largest else None}


def servers(run: JobRun) -> dict[str, Any] | None:
    if not run.servers:
        return None
    tables: dict[str, dict[str, Any]] = {}
    for server in run.servers.values():
        for entry in dicts(server.last.get("tables")):
            name = cut(text(entry.get("name")), 200)
            table = tables.setdefault(
                name, {"name": name, "rows": 0, "bytes": 0, "pulled": 0, "pushed": 0, "spilled": 0.0}
            )
            rows = finite(entry.get("rows")) or 0.0
            table["rows"] += int(rows)
            table["bytes"] += int(finite(entry.get("bytes")) or 0)
            table["spilled"] += rows * (finite(entry.get("spilled_fraction")) or 0.0)
            table["pulled"] += server.pulled[text(entry.get("name"))]
            table["pushed"] += server.pushed[text(entry.get("name"))]
    for table in tables.values():
        table["spilled"] = rounded(table["spilled"] / table["rows"]) if table["rows"] else None
    seconds = max((server.seconds for server in run.servers.values()), default=0.0)
    for table in tables.values():
        for key in ("pulled", "pushed"):
            table[f"{key}_per_s"] = rounded(table[key] / seconds) if seconds else None
    hits, misses = (
        sum(r.counts[key] for r in run.ranks.values()) for key in ("prefetch_hits", "prefetch_misses")
    )
    return {
        "tables": list(tables.values())[:100],
        "servers": [_server_row(number, server) for number, server in sorted(run.servers.items())],
        "rate": over_time({n: s.rate for n, s in run.servers.items()}),
        "p99": over_time({n: s.p99 for n, s in run.servers.items()}),
        "prefetch_hit_rate": rounded(hits / (hits + misses)) if hits + misses else None,
    }


def _server_row(number: int, server: ServerRun) -> dict[str, Any]:
    dense = server.last.get("dense")
    dense = dense if isinstance(dense, dict) else {}
    requests = {
        cut(kind, 100): {key: rounded(value) for key, value in entry.items()}
        for kind, entry in list(server.requests.items())[:30]
    }
    return {
        "server": number,
        "host": text(server.starts[-1].get("host")) if server.starts else "",
        "requests": requests,
        "requests_per_s": rounded(sum(e["count"] for e in server.requests.values()) / server.seconds)
        if server.seconds
        else None,
        "max_queue": server.max_queue,
        "max_staleness": server.max_staleness,
        "trainers": finite(server.last.get("trainers")),
        "dense_bytes": finite(dense.get("bytes")),
        "peak_rss": server.peak_rss or None,
        "outcome": server.outcome,
    }
