"""Kubernetes: manifests against the published schemas, and the commands of their pods, run on this host.

There is no cluster here: a pod is the first process of a pid namespace, with the host name and the hosts file that
Kubernetes would give it.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no annotations
import pytest

from argosy.engine.cluster.kubernetes import Kubernetes
from argosy.engine.cluster.kubernetes_manifests import manifests
from tests.engine.cluster.cluster_jobs import cluster_job
from tests.engines.proof import HOLDING, SCRIPTS, TIMEOUT_S, EngineJob, Reference, wait_until

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
    namespaces = ["--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return subprocess.Popen(
        ["unshare", *namespaces, "sh", "-c", inside, "sh", *command],
        cwd=job.directory,
        env=job.environ | variables | {"PATH": path, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_pods(job: EngineJob, line: str) -> "list[subprocess.Popen[str]]":
    """The pods of a job; the first one is node 0, and is started last."""
    pods, names = [], []
    for manifest in manifests(cluster_job(line, image="i")):
        spec: Any = manifest.get("spec", {})
        group: Any = manifest["metadata"]
        for index in range(spec.get("completions", spec.get("replicas", 0))):
            names.append(f"{group['name']}-{index}")
            pods.append((spec["template"], names[-1], index))
    hosts = job.directory / "hosts"
    hosts.write_text("".join(f"127.0.0.1 {name} {name}.train\n" for name in names))
    return [start_pod(job, template, name, i, hosts) for template, name, i in reversed(pods)][::-1]


def ended(pods: "list[subprocess.Popen[str]]") -> tuple[list[int], list[str]]:
    """Exit codes and outputs, when all pods have ended."""
    outputs = [pod.communicate(timeout=TIMEOUT_S)[0] for pod in pods]
    return [pod.returncode for pod in pods], outputs


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="namespaces need root and unshare"
)


@needs_namespaces
@pytest.mark.parametrize("line", [COLLECTIVE, SERVERS])
def test_the_commands_of_the_pods_form_one_job(line: str, job: EngineJob) -> None:
    job.script(
        "if os.environ['TRAINING_ROLE'] == 'TRAINER': print('worker', os.environ['PADDLE_TRAINER_ID'])\n"
    )
    codes, outputs = ended(start_pods(job, line))
    assert codes == [0] * len(codes), "\n".join(outputs)
    assert "worker 0\n" in outputs[0]
    lines = sorted(path.read_text() for path in (job.directory / "logs").glob("node-*/workerlog.*"))
    assert [line.split()[-1] for line in lines] == [f"{i}" for i in range(4 if line == COLLECTIVE else 2)]
    job.check_nothing_left()


@needs_namespaces
@pytest.mark.slow
def test_sigterm_to_the_first_process_of_a_pod_saves_a_checkpoint_from_which_new_pods_resume_bit_equal(
    job: EngineJob, reference: Reference
) -> None:
    """As at an eviction: the kubelet signals the pod's first process, the Job replaces all pods that exit with 75."""
    words = "--nodes=2 --nproc_per_node=1 --grace=120 --log_dir=logs"
    script = f"{SCRIPTS['resnet18']} --checkpoint=checkpoints --hold_until=go {' '.join(HOLDING)}"
    pods = start_pods(job, f"{words} {script}")
    job.wait_until_held()
    (first_process,) = psutil.Process(pods[1].pid).children()
    first_process.send_signal(signal.SIGTERM)
    log = job.directory / "logs/node-1/fleetrun.log"
    wait_until(lambda: "SIGTERM: waiting at most 120 s" in log.read_text(), problem=log.read_text)
    (job.directory / "go").touch()
    codes, outputs = ended(pods)
    assert codes == [75, 75], "\n".join(outputs)
    job.check_nothing_left()
    codes, outputs = ended(start_pods(job, f"{words} {script}"))
    assert codes == [0, 0], "\n".join(outputs)
    assert outputs[0].count("\nloss: ") < 10, "it began with the first step"
    reference.check("resnet18", job.directory / "weights.npz")
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
