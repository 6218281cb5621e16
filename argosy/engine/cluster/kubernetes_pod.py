"""The pod of a node on Kubernetes: without root or privileges, with shared memory and the job's token."""

# SPDX-License-Identifier: Apache-2.0
import math
import re
from dataclasses import replace

from argosy.engine.cluster.job import ClusterJob
from argosy.engine.cluster.kubernetes_shm import shm_mebibytes
from argosy.engine.cluster.node_roles import PORT, NodeRole, in_image, task_script
from argosy.engine.cluster.sizes import mebibytes, whole_number
from argosy.engine.cluster.yaml_text import Value
from argosy.engine.errors import ConfigError
from argosy.engine.launch.configuration import Configuration

CONTAINER = "launcher"
TOKEN = "ARGOSY_JOB_TOKEN"
_USER = 1000
"""A user that is not root: images rarely name one, and without a number Kubernetes rejects them."""
_SAVED_S = 30
"""Besides --grace: how long the launchers may take to end after the checkpoint; Kubernetes' own default."""


def labels(name: str, component: str | None = None) -> dict[str, str]:
    """The labels of a job's objects, or of the pods of one of its roles."""
    common = {"app.kubernetes.io/name": "argosy", "app.kubernetes.io/instance": name}
    return common | ({"app.kubernetes.io/component": component} if component else {})


def pod_template(
    job: ClusterJob, role: NodeRole, name: str, index: str, master: str, subdomain: str | None
) -> dict[str, Value]:
    """The template of a role's pods.

    `index` is the variable with the number of a pod in its role, `master` the host name of node 0. `subdomain` is the
    headless service, unless a controller sets it.
    """
    spec: dict[str, Value] = {"subdomain": subdomain} if subdomain else {}
    spec |= {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(role.config.grace_s or 0) + _SAVED_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(job, role, name, index, master)],
        "volumes": _volumes(job, role),
    }
    return {"metadata": {"labels": labels(name, role.name)}, "spec": spec}


def _container(job: ClusterJob, role: NodeRole, name: str, index: str, master: str) -> dict[str, Value]:
    if not (image := job.settings.get("image")):
        raise ConfigError(
            "--on=k8s without an image; add --image=NAME, one that contains Argosy and the script"
        )
    written = role.config.log_dir != Configuration.log_dir
    config = role.config if written else replace(role.config, log_dir="/tmp/log")
    script = task_script(
        in_image(job), replace(role, config=config), f"${index}", master, PORT, is_named=True
    )
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "tmp", "mountPath": "/tmp"}]
    mounts += [{"name": claim, "mountPath": path} for claim, path in _claims(job)]
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["/bin/sh", "-c", _escaped(script)],
        "env": _environment(job, name, index),
        "ports": [{"name": CONTAINER, "containerPort": PORT}],
        "resources": _resources(job),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": mounts,
    }


def _escaped(text: str) -> str:
    """Kubernetes replaces $(NAME) in commands and variables, and $$ with $."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _environment(job: ClusterJob, name: str, index: str) -> list[Value]:
    """HOME and USER are for a user without a line in /etc/passwd; caches are written to HOME."""
    plain = {"HOME": "/tmp", "USER": "argosy", **{k: v for k, v in job.environ.items() if k != TOKEN}}
    variables: list[Value] = [
        {"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": name, "key": TOKEN}}},
        *({"name": key, "value": _escaped(value)} for key, value in plain.items()),
    ]
    if index == "SERVER_INDEX":  # a Job sets its own variable, a StatefulSet only a label
        path = "metadata.labels['apps.kubernetes.io/pod-index']"
        variables.append({"name": index, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    return variables


def _resources(job: ClusterJob) -> dict[str, Value]:
    """Requests that equal the limits: the pod is not evicted for using what it asked for."""
    amounts: dict[str, Value] = {}
    if cpus := job.settings.get("cpus"):
        amounts["cpu"] = f"{whole_number(cpus, 'cpus')}"
    if memory := job.settings.get("memory"):
        amounts["memory"] = f"{mebibytes(memory, 'memory')}Mi"
    if gpus := job.config.gpus:
        amounts["nvidia.com/gpu"] = f"{len(gpus)}"
    return {"requests": amounts, "limits": dict(amounts)} if amounts else {}


def _volumes(job: ClusterJob, role: NodeRole) -> list[Value]:
    shm: dict[str, Value] = {"medium": "Memory", "sizeLimit": f"{shm_mebibytes(job, role)}Mi"}
    volumes: list[Value] = [{"name": "shm", "emptyDir": shm}, {"name": "tmp", "emptyDir": {}}]
    for claim, _ in _claims(job):
        volumes.append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
    return volumes


def _claims(job: ClusterJob) -> list[tuple[str, str]]:
    """The persistent volume claims of --volume and their directories."""
    claims = []
    for text in filter(None, job.settings.get("volume", "").split(",")):
        claim, colon, path = text.partition(":")
        if not claim or not colon or not path.startswith("/"):
            raise ConfigError(
                f"--volume={text}: write CLAIM:/DIRECTORY, the name of a persistent volume claim and where it appears"
            )
        claims.append((claim, path))
    return claims
