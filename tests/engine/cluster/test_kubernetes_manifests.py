"""Manifests: names, labels and ports agree; the schemas are checked in tests/engines/test_kubernetes.py."""

# SPDX-License-Identifier: Apache-2.0
import re
from typing import Any

import pytest

from argosy.engine.cluster.kubernetes_manifests import manifests, object_name
from argosy.engine.errors import ConfigError
from tests.engine.cluster.cluster_jobs import TOKEN, cluster_job

COLLECTIVE = "--nodes=4 --grace=60 train.py"
SERVERS = "--nodes=4 --server_num=2 --worker_num=6 --grace=60 train.py"


def objects(line: str, name: str = "train", **settings: str) -> dict[str, Any]:
    """By kind."""
    return {str(m["kind"]): m for m in manifests(cluster_job(line, name, image="me/train:1", **settings))}


def script(template: Any) -> str:
    return str(template["spec"]["containers"][0]["command"][2])


@pytest.mark.parametrize(("line", "groups"), [(COLLECTIVE, ["Job"]), (SERVERS, ["Job", "StatefulSet"])])
def test_names_labels_and_ports_agree(line: str, groups: list[str]) -> None:
    by_kind = objects(line)
    assert list(by_kind) == ["Secret", "Service", *groups]
    service = by_kind["Service"]
    (port,) = service["spec"]["ports"]
    for group in groups:
        template = by_kind[group]["spec"]["template"]
        marks, container = template["metadata"]["labels"], template["spec"]["containers"][0]
        assert service["spec"]["selector"].items() <= marks.items()
        selector = by_kind[group]["spec"].get("selector", {"matchLabels": {}})
        assert selector["matchLabels"].items() <= marks.items()
        subdomain = template["spec"].get("subdomain") or by_kind[group]["spec"]["serviceName"]
        assert subdomain == service["metadata"]["name"]
        assert container["ports"] == [{"name": port["targetPort"], "containerPort": port["port"]}]
        assert f'--master="$host:{port["port"]}"' in script(template)
        assert (
            container["env"][0]["valueFrom"]["secretKeyRef"]["name"] == by_kind["Secret"]["metadata"]["name"]
        )
    master = f"host={by_kind['Job']['metadata']['name']}-0.{service['metadata']['name']}\n"
    assert all(master in script(by_kind[group]["spec"]["template"]) for group in groups)
    assert by_kind["Secret"]["stringData"] == {"ARGOSY_JOB_TOKEN": TOKEN}


def test_servers_do_not_match_the_selector_of_workers() -> None:
    by_kind = objects(SERVERS)
    workers = by_kind["Job"]["spec"]["template"]["metadata"]["labels"]
    assert not by_kind["StatefulSet"]["spec"]["selector"]["matchLabels"].items() <= workers.items()


def test_the_numbers_of_the_nodes_are_those_of_the_pods() -> None:
    job = objects(COLLECTIVE)["Job"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 4, 4)
    assert "rank=$JOB_COMPLETION_INDEX\n" in script(job["template"])
    by_kind = objects(SERVERS)
    assert by_kind["Job"]["spec"]["completions"] == by_kind["StatefulSet"]["spec"]["replicas"] == 2
    assert "rank=$$((2 + $SERVER_INDEX))\n" in script(by_kind["StatefulSet"]["spec"]["template"])
    variables = by_kind["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["env"]
    field = {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}
    assert {"name": "SERVER_INDEX", "valueFrom": {"fieldRef": field}} in variables


def test_preempted_pods_are_replaced_and_do_not_count() -> None:
    job = objects("--nodes=4 --grace=60 --requeue_code=99 train.py", retries="2")["Job"]["spec"]
    exit_codes, disruption = job["podFailurePolicy"]["rules"]
    assert exit_codes["action"] == disruption["action"] == "Ignore"
    assert exit_codes["onExitCodes"] == {"containerName": "launcher", "operator": "In", "values": [99]}
    assert job["template"]["spec"]["restartPolicy"] == "Never", "a pod failure policy needs it"
    assert job["backoffLimit"] == 8, "a failed attempt is four failed pods"
    assert "podFailurePolicy" not in objects("--nodes=4 train.py")["Job"]["spec"]


def test_a_job_set_ends_with_its_workers() -> None:
    by_kind = objects(SERVERS, kind="jobset", retries="3")
    assert list(by_kind) == ["Secret", "JobSet"]
    spec = by_kind["JobSet"]["spec"]
    assert spec["network"] == {
        "enableDNSHostnames": True,
        "subdomain": "train",
        "publishNotReadyAddresses": True,
    }
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["worker"]}
    assert spec["failurePolicy"] == {"maxRestarts": 3}
    workers, servers = spec["replicatedJobs"]
    for role in (workers, servers):
        assert role["template"]["spec"]["backoffLimit"] == 0
        assert "host=train-worker-0-0.train\n" in script(role["template"]["spec"]["template"])
    assert "rank=$$((2 + $JOB_COMPLETION_INDEX))\n" in script(servers["template"]["spec"]["template"])


def test_a_train_job_refers_to_its_runtime() -> None:
    by_kind = objects(SERVERS, kind="trainjob")
    assert list(by_kind) == ["Secret", "TrainingRuntime", "TrainJob"]
    runtime, train = by_kind["TrainingRuntime"], by_kind["TrainJob"]["spec"]
    assert train["runtimeRef"]["name"] == runtime["metadata"]["name"]
    assert train["trainer"]["numNodes"] == runtime["spec"]["mlPolicy"]["numNodes"] == 4
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert node["name"] == "node"
    assert node["template"]["metadata"]["labels"] == {
        "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"
    }
    spec = node["template"]["spec"]
    assert "completions" not in spec
    (container,) = spec["template"]["spec"]["containers"]
    assert container["name"] == spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == "node"
    assert "--node_role" not in container["command"][2], "every node runs servers and workers"
    assert "host=train-node-0-0.train\n" in container["command"][2]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("train", "train"),
        ("Train_ResNet.v2", "train-resnet-v2"),
        ("2nd", "job-2nd"),
        ("__", "job"),
        ("é1", "job-1"),
    ],
)
def test_names_become_dns_labels(text: str, name: str) -> None:
    assert object_name(text) == name
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)


@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob"])
@pytest.mark.parametrize("line", [COLLECTIVE, SERVERS])
def test_names_of_pods_have_at_most_63_characters(line: str, kind: str) -> None:
    """Jobs add a number and five random characters to the names of pods, a JobSet two numbers."""
    text = " ".join(map(str, manifests(cluster_job(line, "a" * 40, image="i", kind=kind))))
    hosts = re.findall(r"host=([a-z0-9-]+)\.", text)
    assert hosts
    assert all(len(host.removesuffix("0") + "99999" + "-abcde") <= 63 for host in hosts)
    with pytest.raises(ConfigError, match="use at most 40 characters"):
        object_name("a" * 41)


def test_all_objects_are_in_the_namespace() -> None:
    by_kind = objects(SERVERS, namespace="research")
    assert {m["metadata"]["namespace"] for m in by_kind.values()} == {"research"}
    assert "namespace" not in objects(SERVERS)["Job"]["metadata"]


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--kind=pod; use one of job, jobset, trainjob"):
        objects(COLLECTIVE, kind="pod")
