"""The command line: arguments into a Configuration; invalid ones are rejected before anything starts."""

# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch.cli import parse, parser
from argosy.engine.launch.configuration import Configuration, shown


def test_the_list_of_options_is_a_decision() -> None:
    names = {s for action in parser()._actions for s in action.option_strings}
    assert names == {
        *(
            "-h",
            "--help",
            "-m",
            "--module",
            "--paddle",
            "--autotune",
            "--join_timeout",
            "--log_dir",
            "--log_level",
            "--tee",
            "--quiet",
            "--version",
            "--max_restarts",
            "--grace",
            "--requeue_code",
        ),
        *(
            "--timeout",
            "--nproc_per_node",
            "--gpus",
            "--selected_gpus",
            "--devices",
            "--xpus",
            "--selected_xpus",
        ),
        *("--nodes", "--nnodes", "--node_rank", "--node_role", "--master", "--interface", "--end_with_stdin"),
        *("--cluster_node_ips", "--node_ip", "--started_port", "--use_paddlecloud", "--print_config"),
        *("--run_mode", "--ips", "--host", "--start_port", "--servers", "--server_num", "--workers"),
        *("--worker_num", "--heter_workers", "--heter_worker_num", "--http_port"),
        *("--dashboard", "--dashboard_host", "--metrics_port", "--metrics_host", "--tensorboard"),
        *(
            "--timeline",
            "--timeline_steps",
            "--server_state",
            "--server_durability",
            "--dead_worker",
            "--encrypt",
        ),
        *("--doctor", "--json"),
    }


def test_the_defaults_are_those_of_the_dataclass() -> None:
    assert parse(["train.py"]) == Configuration("train.py")


@pytest.mark.parametrize("word", ["--nproc_per_node=2", "--nproc-per-node=2", "--nproc-per_node=2"])
def test_dash_and_underscore_are_the_same(word: str) -> None:
    assert parse([word, "t.py"]).nproc_per_node == 2


def test_a_value_may_be_the_next_argument() -> None:
    config = parse(["--max-restarts", "3", "--ips", "10.0.0.1, 10.0.0.2", "--timeout", "5", "t.py", "x"])
    assert (config.max_restarts, config.ips, config.timeout_s) == (3, ("10.0.0.1", "10.0.0.2"), 5.0)
    assert (config.script, config.script_args) == ("t.py", ("x",))


def test_the_port_of_the_dashboard_may_be_left_out() -> None:
    assert parse(["t.py"]).dashboard is None
    for words in (["--dashboard"], ["--dashboard", "--quiet"], ["--dashboard=0"]):
        config = parse([*words, "t.py", "8080"])
        assert (config.dashboard, config.script, config.script_args) == (0, "t.py", ("8080",))
    for words in (["--dashboard", "8080"], ["--dashboard=8080"]):
        assert parse([*words, "t.py"]).dashboard == 8080


def test_arguments_after_the_script_are_passed_to_it() -> None:
    rest = ("--gpus=7", "--worker_num", "3", "-m", "--log-dir", "x", "--", "-h")
    config = parse(["--gpus=0", "t.py", *rest])
    assert config.script_args == rest
    assert config.gpus == ("0",)


@pytest.mark.parametrize("name", ["--gpus", "--selected_gpus", "--selected-gpus", "--devices"])
def test_devices_have_three_names(name: str) -> None:
    assert parse([f"{name}=0,1", "t.py"]).gpus == ("0", "1")


def test_options_of_1_8_have_their_meaning() -> None:
    hosts = ["--cluster_node_ips=10.0.0.1,10.0.0.2", "--node_ip=10.0.0.2", "--started_port=6170"]
    config = parse([*hosts, "--selected_gpus=0,1", "--print_config=False", "t.py"])
    ips = ("10.0.0.1", "10.0.0.2")
    assert config == Configuration(
        "t.py", ips=ips, host="10.0.0.2", start_port=6170, gpus=("0", "1"), quiet=True
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--use_paddlecloud", "t.py"], "--use_paddlecloud: .*; write --ips="),
        (["--nproc_per_nod=2", "t.py"], "unknown option --nproc_per_nod .did you mean '--nproc_per_node'"),
        (["--nproc_per_node=two", "t.py"], "invalid int value: 'two'"),
        (["--nproc_per_node=2"], "no script is given"),
        (["--nproc_per_node"], "expected one argument"),
        (["--nproc_per_node=0", "t.py"], "--nproc_per_node=0: at least one process"),
        (["--xpus=0", "t.py"], "--xpus=0: XPUs are not supported"),
        (["--gpus=", "t.py"], "--gpus=: an entry is empty"),
        (["--gpus=0,0", "t.py"], "--gpus=0,0: 0 is listed more than once"),
        (["--ips=a,,b", "t.py"], "--ips=a,,b: an entry is empty"),
        (["--max_restarts=-1", "t.py"], "--max_restarts=-1: use 0"),
        (["--timeout=0", "t.py"], "--timeout=0: use a number of seconds greater than 0"),
        (["--timeout=nan", "t.py"], "--timeout=nan"),
        (["--start_port=70000", "t.py"], "--start_port=70000 is not a port"),
        (["--host=c", "--ips=a,b", "t.py"], "--host=c is not among --ips=a,b"),
        (["--timeline=", "t.py"], "--timeline= is empty"),
        (["--tensorboard=", "t.py"], "--tensorboard= is empty"),
        (["--dashboard=70000", "t.py"], "--dashboard=70000 is not a port"),
        (["--metrics_port=0", "t.py"], "--metrics_port=0 is not a port"),
        (["--dashboard=80", "--metrics_port=80", "t.py"], "--metrics_port=80 is that of --dashboard, too"),
        (["--metrics_host=::1", "t.py"], "--metrics_host=::1 without a port; add --metrics_port=P"),
        (
            ["--dashboard", "--dashboard_host=localhost", "t.py"],
            "--dashboard_host=localhost is not an address",
        ),
        (["--timeline_steps=3-12", "t.py"], "--timeline_steps=3-12 without a timeline; add --timeline=DIR"),
        *(
            (
                [f"--timeline_steps={bad}", "--timeline=d", "t.py"],
                f"--timeline_steps='{bad}' are not steps; use",
            )
            for bad in ("", "0-3", "5-4", "3-", "a-b", "-3", "1-2-3")
        ),
        (["--run_mode=fast", "t.py"], "invalid choice: 'fast'"),
        (["--nproc_per_node=25000", "t.py"], "--nproc_per_node=25000: this host has .* use fewer"),
        (["--server_num=25000", "--worker_num=1", "t.py"], "--server_num=25000: this host has .* use fewer"),
        (
            ["--server_num=1", "--worker_num=1", "--ips=127.0.0.1", "t.py"],
            "--ips=127.0.0.1 selects .* --server_num=1",
        ),
        (
            ["--dead_worker=end", "--nproc_per_node=2", "t.py"],
            "--nproc_per_node=2 selects .* --dead_worker=end selects",
        ),
        (
            ["--worker_num=2", "--ips=a,b", "t.py"],
            "--ips=a,b selects .* --worker_num=2 selects parameter servers",
        ),
        (
            ["--run_mode=collective", "--server_num=1", "t.py"],
            "--run_mode=collective selects .* --server_num=1",
        ),
        (
            ["--run_mode=ps", "--nproc_per_node=2", "t.py"],
            "--nproc_per_node=2 selects .* --run_mode=ps selects",
        ),
        (
            ["--server_num=2", "--servers=a:1", "--worker_num=1", "t.py"],
            "--server_num=2, but --servers lists 1",
        ),
        (["--servers=a", "t.py"], "'a' is not an endpoint; use host:port"),
        (["--servers=a:0", "t.py"], "'a:0' is not an endpoint; use host:port"),
        (["--servers=:1", "t.py"], "':1' is not an endpoint; use host:port"),
        (["--servers=a:1,a:1", "t.py"], "a:1 is listed more than once"),
        (["--servers=a:1", "--workers=a:b", "t.py"], "'a:b' is not an endpoint; use host:port"),
        (["--server_num=1", "t.py"], "--server_num=1 selects .* no workers are given; add --worker_num=N or"),
        (["--worker_num=1", "t.py"], "no servers are given; add --server_num=N or --servers=host:port"),
        (["--run_mode=ps", "t.py"], "--run_mode=ps selects .* no servers are given"),
        (["--encrypt", "t.py"], "--encrypt selects .* no servers are given"),
        (
            ["--encrypt", "--nproc_per_node=2", "t.py"],
            "--nproc_per_node=2 selects .* --encrypt selects parameter",
        ),
        (
            ["--server_num=1", "--worker_num=3", "--workers=a,b", "t.py"],
            "--worker_num=3, but --workers lists 2",
        ),
        (["--servers=a:1,b:1", "--worker_num=2", "t.py"], "--worker_num counts .* has a, b; list them too"),
        (["--server_num=1", "--worker_num=1", "--gpus=0", "t.py"], "--gpus=0: workers .* leave it out"),
        (["--server_num=1", "--worker_num=1", "--host=c", "t.py"], "--host=c is not among --servers and"),
        (["--servers=a:1", "--workers=b:1", "--start_port=9", "t.py"], "have ports already; leave it out"),
        (["--server_num=1", "--worker_num=1", "--server_state=", "t.py"], "--server_state= is empty; write"),
        (["--dead_worker=stay", "t.py"], "invalid choice: 'stay'"),
        (["--grace=0", "t.py"], "--grace=0: use a number of seconds greater than 0"),
        (["--requeue_code=75", "t.py"], "--requeue_code=75 without a grace period; add --grace=S"),
        (["--grace=9", "--requeue_code=143", "t.py"], "--requeue_code=143: use 3 to 125"),
        (["--run_mode=ps-heter", "t.py"], "--run_mode=ps-heter: heter workers are not supported; use"),
        (["--heter_worker_num=2", "t.py"], "--heter_worker_num=2: heter workers are not supported; use"),
        (["--heter_workers=a:1", "t.py"], "--heter_workers=a:1: heter workers are not supported; use"),
    ],
)
def test_invalid_arguments_are_rejected(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(words)


def test_the_mode_does_not_depend_on_arguments_of_the_script() -> None:
    assert parse(["t.py", "--servers=x", "--worker_num=2"]).script_args == ("--servers=x", "--worker_num=2")


def test_the_doctor_is_a_quiet_job_of_a_module() -> None:
    config = parse(["--doctor", "--ips=10.0.0.1,10.0.0.2", "checkpoints"])
    assert (config.script, config.script_args, config.module) == ("argosy.doctor", ("checkpoints",), True)
    assert (config.quiet, config.log_dir, config.doctor, config.json) == (True, "log/doctor", True, False)
    assert parse(["--doctor", "--log_dir=x", "--json"]).log_dir == "x"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--doctor", __file__], "--doctor runs no script"),
        (["--doctor", "-m", "package"], "--doctor runs no script"),
        (["--doctor", "a", "b"], "a b is given"),
        (["--json", "t.py"], "--json is for --doctor"),
        (["--doctor", "--max_restarts=3"], "--max_restarts=3: leave out one of them"),
        (["--doctor", "--server_num=1", "--worker_num=1"], "leave out one of them"),
    ],
)
def test_the_doctor_rejects_what_is_for_scripts(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(words)


def test_a_python_caller_gets_the_same_errors() -> None:
    with pytest.raises(ConfigError, match="at least one process"):
        Configuration("t.py", nproc_per_node=0)
    with pytest.raises(ConfigError, match="is not a mode"):
        Configuration("t.py", run_mode="fast")
    with pytest.raises(ConfigError, match="--dead_worker=stay; use end .* or drop"):
        Configuration("t.py", server_num=1, worker_num=1, dead_worker="stay")
    with pytest.raises(ConfigError, match="is not a level"):
        Configuration("t.py", log_level="loud")
    with pytest.raises(ConfigError, match="ips='a,b' is a str; write a tuple"):
        Configuration("t.py", ips="a,b")


def test_the_banner_has_the_format_of_the_seed() -> None:
    lines = shown(parse(["--gpus=0,1", "train.py", "--lr", "1"])).splitlines()
    assert lines[0] == "-----------  Configuration Arguments -----------"
    assert lines[-1] == "-" * 48
    names = [line.partition(":")[0] for line in lines[1:-1]]
    assert names == sorted(names)
    wanted = [
        "gpus: 0,1",
        "heter_worker_num: None",
        "heter_workers: ",
        "http_port: None",
        "ips: 127.0.0.1",
        "log_dir: log",
    ]
    assert [line for line in lines if line in wanted] == wanted
    assert "training_script_args: ['--lr', '1']" in lines


def test_the_banner_has_options_of_argosy_only_if_they_are_given() -> None:
    given = ["--max_restarts=2", "--tee", "--timeline=t", "--start_port=7000"]
    names = ("max_restarts: 2", "tee: True", "timeline: t", "start_port: 7000")
    assert set(names) < set(shown(parse([*given, "train.py"])).splitlines())
    lines = shown(parse(["train.py"])).splitlines()
    assert not {name.partition(":")[0] for name in names} & {line.partition(":")[0] for line in lines}
    assert len(lines) <= 16


def test_the_launcher_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; import argosy.engine.launch.cli, argosy.engine.launch.supervise;"
        "print([m for m in ('torch', 'numpy', 'rich', 'asyncio') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
