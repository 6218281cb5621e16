"""A job as Kubernetes objects: what `fleetrun --on k8s` prints.

--kind=job        collective: Secret, headless Service, Indexed Job; master NAME-0.NAME
                  servers:    Secret, headless Service, Indexed Job NAME-worker, StatefulSet NAME-server
--kind=jobset     Secret, JobSet of one or two Indexed Jobs; the JobSet creates the Service
--kind=trainjob   Secret, TrainingRuntime, TrainJob of Kubeflow Trainer, which creates the JobSet
"""

# SPDX-License-Identifier: Apache-2.0
import re

from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.kubernetes_pod import CONTAINER, TOKEN, labels, pod_template
from argosy.engine.cluster.node_roles import PORT, NodeRole, node_roles
from argosy.engine.cluster.sizes import whole_number
from argosy.engine.cluster.yaml_text import Value
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration

Manifest = dict[str, Value]
KINDS = ("job", "jobset", "trainjob")
_MAX_NAME = 40
"""Pods are named NAME-worker-0-99999, with a random suffix: at most 63 characters."""
_JOB_INDEX = "JOB_COMPLETION_INDEX"
_TRAINER = "trainer.kubeflow.org"


def manifests(job: ClusterJob) -> list[Manifest]:
    """The objects of the job, in the order in which they are created."""
    name = object_name(job.name)
    build = {"job": _jobs, "jobset": _job_set, "trainjob": _train_job}[kind(job)]
    objects = [_secret(job, name), *build(job, name)]
    if namespace := job.settings.get("namespace"):
        for item in objects:
            metadata = item["metadata"]
            assert isinstance(metadata, dict), item
            item["metadata"] = {"name": metadata["name"], "namespace": namespace, **metadata}
    return objects


def kind(job: ClusterJob) -> str:
    """--kind."""
    given = job.settings.get("kind", "job")
    if given not in KINDS:
        raise ConfigError(f"--kind={given}; use one of {', '.join(KINDS)}")
    return given


def object_name(text: str) -> str:
    """The job's name as a DNS label: lower case, digits and hyphens, first a letter."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not name[:1].isalpha():
        name = f"job-{name}".rstrip("-")
    if len(name) > _MAX_NAME:
        raise ConfigError(
            f"--job_name={text}: the name {name} is too long for pods and services that are derived from it; use at "
            f"most {_MAX_NAME} characters"
        )
    return name


def _object(version: str, what: str, name: str, job: str, **fields: Value) -> Manifest:
    return {
        "apiVersion": version,
        "kind": what,
        "metadata": {"name": name, "labels": labels(job)},
        **fields,
    }


def _secret(job: ClusterJob, name: str) -> Manifest:
    return _object("v1", "Secret", name, name, type="Opaque", stringData={TOKEN: job.environ[TOKEN]})


def _jobs(job: ClusterJob, name: str) -> list[Manifest]:
    """The headless Service gives the pods their names, also before they are ready."""
    roles = node_roles(job)
    first = name if len(roles) == 1 else f"{name}-worker"
    spec: dict[str, Value] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": labels(name),
        "ports": [{"name": CONTAINER, "port": PORT, "targetPort": CONTAINER}],
    }
    service = _object("v1", "Service", name, name, spec=spec)
    master = f"{first}-0.{name}"
    template = pod_template(job, roles[0], name, _JOB_INDEX, master, name)
    # A failed attempt is a failed pod on every node.
    retries = _retries(job) * roles[0].nodes
    main = _object("batch/v1", "Job", first, name, spec=_job_spec(roles[0], template, retries))
    return [service, main, *(_stateful_set(job, role, name, master) for role in roles[1:])]


def _job_spec(role: NodeRole, template: dict[str, Value], retries: int) -> dict[str, Value]:
    spec: dict[str, Value] = {
        "completionMode": "Indexed",
        "completions": role.nodes,
        "parallelism": role.nodes,
        "backoffLimit": retries,
    }
    if role.config.grace_s is not None:
        spec["podFailurePolicy"] = {"rules": _preempted(role.config)}
    pod = template["spec"]
    assert isinstance(pod, dict), template
    return {**spec, "template": {**template, "spec": {"restartPolicy": "Never", **pod}}}


def _preempted(config: Configuration) -> list[Value]:
    """A pod that was preempted and has saved a checkpoint is replaced, and does not count as a failure."""
    code: dict[str, Value] = {"containerName": CONTAINER, "operator": "In", "values": [config.requeued_with]}
    return [
        {"action": "Ignore", "onExitCodes": code},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def _stateful_set(job: ClusterJob, role: NodeRole, name: str, master: str) -> Manifest:
    template = pod_template(job, role, name, "SERVER_INDEX", master, None)
    spec: dict[str, Value] = {
        "serviceName": name,
        "replicas": role.nodes,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels(name, role.name)},
        "template": template,
    }
    return _object("apps/v1", "StatefulSet", f"{name}-{role.name}", name, spec=spec)


def _job_set(job: ClusterJob, name: str) -> list[Manifest]:
    return [_object("jobset.x-k8s.io/v1alpha2", "JobSet", name, name, spec=_job_set_spec(job, name))]


def _job_set_spec(job: ClusterJob, name: str) -> dict[str, Value]:
    """A JobSet restarts all its Jobs if one fails, and ends with its workers."""
    roles = node_roles(job)
    replicated: list[Value] = []
    for role in roles:
        template = pod_template(job, role, name, _JOB_INDEX, f"{name}-{roles[0].name}-0-0.{name}", None)
        replicated.append(
            {"name": role.name, "replicas": 1, "template": {"spec": _job_spec(role, template, 0)}}
        )
    return {
        "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [roles[0].name]},
        "failurePolicy": {"maxRestarts": _retries(job)},
        "replicatedJobs": replicated,
    }


def _train_job(job: ClusterJob, name: str) -> list[Manifest]:
    """Kubeflow Trainer has nodes of one kind, so each runs servers and workers; it creates a JobSet of that name."""
    role = NodeRole("node", job.nodes, 0, job.config)
    template = pod_template(job, role, name, _JOB_INDEX, f"{name}-node-0-0.{name}", None)
    pod = template["spec"]
    assert isinstance(pod, dict), template
    containers = pod["containers"]
    assert isinstance(containers, list), pod
    pod["containers"] = [{**containers[0], "name": "node"}]  # the name by which a TrainJob finds it
    spec = _job_spec(role, template, 0)
    if isinstance(policy := spec.get("podFailurePolicy"), dict):
        rules = policy["rules"]
        assert isinstance(rules, list), policy
        rules[0]["onExitCodes"]["containerName"] = "node"
    for counted in ("completions", "parallelism"):  # the TrainJob sets them
        del spec[counted]
    step: dict[str, Value] = {"labels": {f"{_TRAINER}/trainjob-ancestor-step": "trainer"}}
    replicated: dict[str, Value] = {
        "name": "node",
        "replicas": 1,
        "template": {"metadata": step, "spec": spec},
    }
    runtime: dict[str, Value] = {
        "mlPolicy": {"numNodes": job.nodes},
        "template": {
            "spec": {"failurePolicy": {"maxRestarts": _retries(job)}, "replicatedJobs": [replicated]}
        },
    }
    version = f"{_TRAINER}/v1alpha1"
    reference = {"apiGroup": _TRAINER, "kind": "TrainingRuntime", "name": name}
    train: dict[str, Value] = {"runtimeRef": reference, "trainer": {"numNodes": job.nodes}}
    return [
        _object(version, "TrainingRuntime", name, name, spec=runtime),
        _object(version, "TrainJob", name, name, spec=train),
    ]


def _retries(job: ClusterJob) -> int:
    return whole_number(job.settings.get("retries", "0"), "retries", least=0)
