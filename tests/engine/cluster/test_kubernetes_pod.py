"""Pods: what they may do, ask for and see."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from argosy.engine.cluster.kubernetes_pod import pod_template
from argosy.engine.cluster.node_roles import node_roles
from argosy.engine.errors import ConfigError
from tests.engine.cluster.cluster_jobs import cluster_job


def pod(line: str = "--nodes=2 train.py", **settings: str) -> tuple[Any, Any]:
    """The spec of the pod of node 0, and its container."""
    job = cluster_job(line, **({"image": "me/train:1"} | settings))
    template: Any = pod_template(
        job, node_roles(job)[0], "train", "JOB_COMPLETION_INDEX", "train-0.train", "train"
    )
    return template["spec"], template["spec"]["containers"][0]


def test_the_pod_has_no_privileges() -> None:
    """The restricted Pod Security Standard of Kubernetes, and a read-only root file system."""
    spec, container = pod()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert spec["automountServiceAccountToken"] is False


def test_what_is_written_goes_to_volumes() -> None:
    spec, container = pod(volume="data:/data,ckpt:/checkpoints")
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {"/dev/shm": "shm", "/tmp": "tmp", "/data": "data", "/checkpoints": "ckpt"}
    assert {volume["name"] for volume in spec["volumes"]} == set(mounts.values())
    assert "--log_dir=/tmp/log" in container["command"][2]
    assert "--log_dir=/data/log" in pod("--log_dir=/data/log train.py")[1]["command"][2]
    for text in ("ckpt", "ckpt:", ":/a", "ckpt:relative"):
        with pytest.raises(ConfigError, match="write CLAIM:/DIRECTORY"):
            pod(volume=text)


def test_shared_memory_is_in_memory_and_limited() -> None:
    volumes: list[Any] = pod("--nodes=2 --nproc_per_node=4 train.py")[0]["volumes"]
    assert volumes[0] == {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}}


def test_requests_equal_limits() -> None:
    assert pod()[1]["resources"] == {}
    resources = pod("--gpus=0,1 train.py", cpus="4", memory="16G")[1]["resources"]
    assert resources["requests"] == {"cpu": "4", "memory": "16384Mi", "nvidia.com/gpu": "2"}
    assert resources["limits"] == resources["requests"]


def test_the_grace_period_contains_that_of_the_launcher() -> None:
    assert pod()[0]["terminationGracePeriodSeconds"] == 30
    assert pod("--grace=90.5 train.py")[0]["terminationGracePeriodSeconds"] == 121
    assert "--grace=90.5" in pod("--grace=90.5 train.py")[1]["command"][2]


def test_the_token_comes_from_the_secret_and_nothing_is_expanded() -> None:
    """Kubernetes reads $$( as $(, and $$$ followed by another character for $$."""
    variables = {v["name"]: v for v in pod()[1]["env"]}
    reference = {"secretKeyRef": {"name": "train", "key": "ARGOSY_JOB_TOKEN"}}
    assert variables["ARGOSY_JOB_TOKEN"] == {"name": "ARGOSY_JOB_TOKEN", "valueFrom": reference}
    assert variables["PRICE"]["value"] == "$$(HOME)$$$"
    assert "host=$$(uname -n)" in pod()[1]["command"][2]


def test_an_image_is_required() -> None:
    with pytest.raises(ConfigError, match="add --image=NAME"):
        pod(image="")
