"""Kubernetes: manifests against the published schemas, and the commands of their pods, run on this host.

There is no cluster here: a pod is a process with the host name and the hosts file that Kubernetes would give it.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from argosy.engine.cluster.kubernetes import Kubernetes
from argosy.engine.cluster.kubernetes_manifests import manifests
from tests.engine.cluster.cluster_jobs import cluster_job
from tests.engines.proof import TIMEOUT_S, EngineJob

COLLECTIVE = "--nodes=2 --nproc_per_node=2 --grace=60 --log_dir=logs train.py"
SERVERS = "--server_num=1 --worker_num=2 --grace=60 --log_dir=logs train.py"
SETTINGS = {"image": "me/train:1", "cpus": "4", "memory": "16G", "volume": "ckpt:/c", "retries": "2"}
VERSIONS = ("1.31", "1.37")
"""Of Kubernetes: pods of a StatefulSet have their number as a label since 1.28."""
_JOB_SET = {"network", "successPolicy", "failurePolicy", "replicatedJobs"}
_REPLICATED_JOB = {"name", "replicas", "template"}


def validate(manifest: Any) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for version in VERSIONS:
        schemas.validate(manifest, version, strict=True)


def printed(line: str, **settings: str) -> list[Any]:
    """The manifests as another parser reads what fleetrun prints."""
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
    job = cluster_job(line, **(SETTINGS | settings))
    documents = list(yaml.safe_load_all(Kubernetes().plan(job)))
    assert documents == manifests(job)
    return documents


@pytest.mark.parametrize("line", [COLLECTIVE, SERVERS, "train.py"])
def test_manifests_have_the_published_schemas(line: str) -> None:
    for manifest in printed(line, namespace="research"):
        validate(manifest)


def test_the_schemas_reject_a_misspelt_field() -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    job = printed(COLLECTIVE)[-1]
    job["spec"]["template"]["spec"]["restartPolice"] = "Never"
    with pytest.raises(schemas.ValidationError, match="restartPolice"):
        validate(job)


@pytest.mark.parametrize("line", [COLLECTIVE, SERVERS])
@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_the_jobs_of_a_set_have_the_published_schema_and_the_set_known_fields(line: str, kind: str) -> None:
    """JobSet and TrainJob are no part of the bundled schemas: their own fields are those of their Go types."""
    secret, first, *rest = printed(line, kind=kind)
    validate(secret)
    spec = first["spec"]
    if kind == "trainjob":
        assert spec.keys() == {"mlPolicy", "template"}
        assert rest[0]["spec"].keys() == {"runtimeRef", "trainer"}
        spec = spec["template"]["spec"]
    assert spec.keys() <= _JOB_SET
    for replicated in spec["replicatedJobs"]:
        assert replicated.keys() <= _REPLICATED_JOB
        template = {"metadata": {"name": "job"}} | replicated["template"]
        validate({"apiVersion": "batch/v1", "kind": "Job", **template})


def expanded(text: str, variables: dict[str, str]) -> str:
    """A command as Kubernetes passes it on: $(NAME) is replaced if there is such a variable, and $$ is $."""
    pattern = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
    return pattern.sub(lambda m: m[1] or variables.get(m[2], m[0]), text)


def start_pod(job: EngineJob, template: Any, name: str, index: int, hosts: Path) -> "subprocess.Popen[str]":
    """The command of a pod, as host `name`."""
    container = template["spec"]["containers"][0]
    numbers = {"JOB_COMPLETION_INDEX": f"{index}", "SERVER_INDEX": f"{index}", "ARGOSY_JOB_TOKEN": "secret"}
    variables = {v["name"]: v["value"] for v in container["env"] if "value" in v} | numbers
    command = [expanded(word, variables) for word in container["command"]]
    inside = f'hostname {name} && mount --bind {hosts} /etc/hosts && exec "$@"'
    path = os.pathsep.join([str(Path(sys.executable).parent), job.environ["PATH"]])
    return subprocess.Popen(
        ["unshare", "--mount", "--uts", "sh", "-c", inside, "sh", *command],
        cwd=job.directory,
        env=job.environ | variables | {"PATH": path, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="namespaces need root and unshare"
)
@pytest.mark.parametrize("line", [COLLECTIVE, SERVERS])
def test_the_commands_of_the_pods_form_one_job(line: str, job: EngineJob) -> None:
    job.script(
        "if os.environ['TRAINING_ROLE'] == 'TRAINER': print('worker', os.environ['PADDLE_TRAINER_ID'])\n"
    )
    pods, names = [], []
    for manifest in manifests(cluster_job(line, image="i")):
        spec: Any = manifest.get("spec", {})
        group: Any = manifest["metadata"]
        for index in range(spec.get("completions", spec.get("replicas", 0))):
            names.append(f"{group['name']}-{index}")
            pods.append((spec["template"], names[-1], index))
    hosts = job.directory / "hosts"
    hosts.write_text("".join(f"127.0.0.1 {name} {name}.train\n" for name in names))
    processes = [start_pod(job, template, name, i, hosts) for template, name, i in reversed(pods)]
    outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(pods), "\n".join(outputs)
    assert "worker 0\n" in outputs[-1]
    lines = sorted(path.read_text() for path in (job.directory / "logs").glob("node-*/workerlog.*"))
    assert [line.split()[-1] for line in lines] == [f"{i}" for i in range(4 if line == COLLECTIVE else 2)]
    job.check_nothing_left()


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_a_cluster_that_cannot_be_reached_is_an_error_in_the_words_of_kubectl(job: EngineJob) -> None:
    configuration = job.directory / "kubeconfig"
    configuration.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: none\n"
        "clusters: [{name: none, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "contexts: [{name: none, context: {cluster: none, user: none}}]\n"
    )
    words = ("--on=k8s", "--image=me/train:1", "--apply=yes", "train.py")
    done = job.run(*words, KUBECONFIG=str(configuration))
    assert done.returncode == 2
    assert "kubectl create failed:" in done.stderr
    assert "127.0.0.1:9" in done.stderr
