"""Kubernetes: `fleetrun --on k8s --image NAME train.py` prints manifests; with --apply=yes kubectl creates them."""

# SPDX-License-Identifier: Apache-2.0
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from argosy.engine.cluster import yaml_text
from argosy.engine.cluster.engine import Engine, Outcome
from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.kubernetes_manifests import KINDS, kind, manifests, object_name
from argosy.engine.cluster.kubernetes_pod import labels
from argosy.engine.errors import ConfigError
from argosy.engine.launch.console import logger

_POLL_S = 2.0
_RESOURCES = {
    "job": "job,statefulset,service,secret",
    "jobset": "jobset,secret",
    "trainjob": "trainjob,trainingruntime,secret",
}
"""By kind: what a job consists of, for kubectl delete."""
_ENDED = {"Complete": 0, "Completed": 0, "Failed": 1}
"""The conditions that end a Job, JobSet or TrainJob, and the exit code of fleetrun."""


class _JobId(NamedTuple):
    """[NAMESPACE/]KIND/NAME, as fleetrun prints it."""

    namespace: str
    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "_JobId":
        *namespace, kind, name = ["", "", *text.split("/")][-3:]
        if kind not in KINDS or not name or text.count("/") > 2:
            raise ConfigError(
                f"{text} is no job on Kubernetes; write [NAMESPACE/]KIND/NAME, such as job/train"
            )
        return cls(namespace[0], kind, name)

    def __str__(self) -> str:
        return "/".join(part for part in self if part)

    @property
    def selector(self) -> str:
        return ",".join(f"{key}={value}" for key, value in labels(self.name).items())


class Kubernetes(Engine):
    """Objects are created, watched and deleted with kubectl, as its configuration selects the cluster."""

    name = "k8s"
    settings: ClassVar[tuple[str, ...]] = (
        *("image", "namespace", "kind", "cpus", "memory", "volume", "shm_size", "retries", "apply"),
    )
    is_detached = True

    def only_plans(self, job: ClusterJob) -> bool:
        apply = job.settings.get("apply")
        if apply not in (None, "yes", "no"):
            raise ConfigError(f"--apply={apply}; write --apply=yes, or leave it out to print the manifests")
        return apply != "yes"

    def plan(self, job: ClusterJob) -> str:
        """The manifests; the Secret contains the job's token."""
        if job.arguments:
            raise ConfigError(
                f"--engine_args={' '.join(job.arguments)}: kubectl gets none; edit the printed manifests instead"
            )
        return yaml_text.documents(manifests(job)).rstrip("\n")

    def submit(self, job: ClusterJob) -> str:
        job_id = _JobId(job.settings.get("namespace", ""), kind(job), object_name(job.name))
        _kubectl(job_id, "create", "--filename=-", text=self.plan(job))
        return str(job_id)

    def nodes(self, job_id: str) -> tuple[str, ...]:
        job = _JobId.parse(job_id)
        listed = _get(job, "pods", f"--selector={job.selector}")["items"]
        pods = sorted(listed, key=_pod_order)
        return tuple(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))

    def logs(self, job_id: str) -> Iterator[str]:
        """The log of node 0; if Kubernetes replaces its pod, the log of the next one follows."""
        job, seen, reported = _JobId.parse(job_id), set(), ""
        while True:
            outcome = self._outcome(job)
            for pod in sorted(self._first_pods(job), key=lambda p: str(p["metadata"]["creationTimestamp"])):
                name = pod["metadata"]["name"]
                if name in seen:
                    continue
                if (waits := waits_for(pod)) is None:
                    seen.add(name)
                    yield from _follow(job, name)
                elif waits != reported:
                    reported = waits
                    logger.info("pod %s waits: %s", name, waits)
            if outcome is not None:
                return
            time.sleep(_POLL_S)

    def _first_pods(self, job: _JobId) -> list[dict[str, Any]]:
        """The pods that are or were node 0."""
        first = (
            f"{job.selector},app.kubernetes.io/component!=server,batch.kubernetes.io/job-completion-index=0"
        )
        pods: list[dict[str, Any]] = _get(job, "pods", f"--selector={first}")["items"]
        return pods

    def wait(self, job_id: str) -> Outcome:
        """Wait for the workers; then the servers of a StatefulSet are deleted, which Kubernetes would restart."""
        job = _JobId.parse(job_id)
        while (outcome := self._outcome(job)) is None:
            time.sleep(_POLL_S)
        if job.kind == "job":
            _kubectl(job, "delete", "statefulset", f"--selector={job.selector}", "--ignore-not-matching")
        return outcome

    def _outcome(self, job: _JobId) -> Outcome | None:
        matching = _get(job, job.kind, f"--selector={job.selector}")["items"]
        if not matching:
            raise ConfigError(f"there is no job {job}; `kubectl get {job.kind}` lists what there is")
        return outcome_of(matching[0].get("status", {}))

    def cancel(self, job_id: str) -> None:
        job = _JobId.parse(job_id)
        _kubectl(
            job,
            *("delete", _RESOURCES[job.kind], f"--selector={job.selector}"),
            *("--ignore-not-matching", "--cascade=foreground", "--wait"),
        )


def outcome_of(status: Mapping[str, Any]) -> Outcome | None:
    """How a Job, JobSet or TrainJob with this status has ended; None if it has not."""
    for condition in status.get("conditions", ()):
        if condition["type"] in _ENDED and condition["status"] == "True":
            parts = (condition["type"], condition.get("reason"), condition.get("message"))
            return Outcome(_ENDED[condition["type"]], ": ".join(part for part in parts if part))
    return None


def waits_for(pod: Mapping[str, Any]) -> str | None:
    """Why the pod's container has not started: an image that cannot be pulled, no node; None if it has."""
    status = pod["status"]
    if status.get("phase") != "Pending":
        return None
    for container in status.get("containerStatuses", ()):
        if waiting := container.get("state", {}).get("waiting"):
            return f"{waiting.get('reason', 'waiting')} {waiting.get('message', '')}".strip()
    conditions = (c for c in status.get("conditions", ()) if c["status"] != "True" and c.get("message"))
    return next((str(c["message"]) for c in conditions), "it is pending")


def _pod_order(pod: Mapping[str, Any]) -> tuple[bool, int]:
    """Servers after workers, each by number."""
    marks = pod["metadata"]["labels"]
    indices = (marks.get(f"{group}.kubernetes.io/{key}") for group, key in _INDICES)
    index = next((int(text) for text in indices if text), 0)
    return marks.get("app.kubernetes.io/component") == "server", index


_INDICES = (("batch", "job-completion-index"), ("apps", "pod-index"))


def _get(job: _JobId, *words: str) -> Any:
    return json.loads(_kubectl(job, "get", *words, "--output=json"))


def _command(job: _JobId, *words: str) -> list[str]:
    if (kubectl := shutil.which("kubectl")) is None:
        raise ConfigError(
            "kubectl is not installed, or not in PATH; install it, or leave out --apply and apply the printed "
            "manifests where it is: kubectl create -f job.yaml"
        )
    return [kubectl, *((f"--namespace={job.namespace}",) if job.namespace else ()), *words]


def _kubectl(job: _JobId, *words: str, text: str | None = None) -> str:
    done = subprocess.run(_command(job, *words), input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigError(f"kubectl {words[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _follow(job: _JobId, pod: str) -> Iterator[str]:
    """The lines of `kubectl logs --follow`, which ends with the pod."""
    with subprocess.Popen(
        _command(job, "logs", "--follow", pod), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None, "a pipe"
        try:
            for line in process.stdout:
                yield line.rstrip("\n")
        finally:
            process.terminate()
