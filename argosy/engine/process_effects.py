"""What Argosy changes outside of its own objects: one list, which says when each effect begins and when it ends.

    import argosy              changes nothing of this list
    install(name, apply)       an effect that stays, until undo(name), undo_all() or fleet.shutdown()
    with during(name)          an effect of a scope: the caller restores the original at the end of it
    installed()                the effects that are in force now

`docs/reference/process-effects.md` has the list for users; a test compares the two.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

Undo = Callable[[], None]


class Effect(NamedTuple):
    """One change of the process."""

    name: str
    what: str
    begins: str
    ends: str


_SHUTDOWN = "fleet.shutdown()"

EFFECTS = (
    Effect(
        "module-call",
        "torch.nn.Module.__call__ is replaced, so that torch modules accept Variables",
        "the first Variable of the process",
        _SHUTDOWN,
    ),
    Effect(
        "gc-freeze",
        "gc.freeze: the objects of that moment, those of the imported modules, are excluded from garbage collection",
        "the first Variable of the process",
        _SHUTDOWN,
    ),
    Effect(
        "fake-tensor-log",
        "the logger torch._subclasses.fake_tensor logs critical records only",
        "the first op that is recorded into a program",
        _SHUTDOWN,
    ),
    Effect(
        "exit-hooks",
        "sys.exit, sys.excepthook and an atexit function publish to the other ranks how this one ends",
        "fleet.init, in a job of several ranks",
        _SHUTDOWN,
    ),
    Effect(
        "open-files",
        "the soft limit of open files is raised, so that every rank can connect to the job's store, or every "
        "node to the launcher of node 0",
        "fleet.init, on rank 0 of a job of so many ranks; in the launcher of node 0, its start",
        _SHUTDOWN,
    ),
    Effect(
        "random-seed",
        "torch's random generator is seeded with its initial seed plus the rank",
        "fleet.init, on every rank but the first",
        "never: restoring it would repeat random numbers",
    ),
    Effect(
        "process-groups",
        "a reference to each gloo process group is leaked: its destructor waits for collectives that a lost rank "
        "never joins",
        "the first collective of a communicator",
        "never: the operating system frees them at the exit",
    ),
    Effect(
        "private-before-fork",
        "os.register_at_fork: variables that ranks share become private, so that a child process gets their values of "
        "that moment",
        "the second step of ranks that divide updates",
        "never: Python cannot remove the hook; it does nothing without shared variables",
    ),
    Effect(
        "gathers-before-fork",
        "os.register_at_fork: a fork waits for the all-gathers of parameters in flight, so that a child process gets "
        "complete parameters",
        "the first step of ranks on several hosts with strategy.sharding",
        "never: Python cannot remove the hook; it does nothing without all-gathers in flight",
    ),
    Effect(
        "malloc",
        "mallopt: glibc retains freed memory for the next step (unless ARGOSY_KEEP_MEMORY=0)",
        "the second step of a program",
        f"{_SHUTDOWN}, which sets glibc's default values",
    ),
    Effect(
        "inductor-cache",
        "the environment variable TORCHINDUCTOR_CACHE_DIR is set to a folder of Argosy's cache, unless the user set it",
        "the first region that Inductor compiles",
        _SHUTDOWN,
    ),
    Effect(
        "timeline-at-exit",
        "an atexit function writes the timeline that ARGOSY_TIMELINE requests",
        "the first Executor",
        f"{_SHUTDOWN}, which writes the file",
    ),
    Effect(
        "metrics-at-exit",
        "an atexit function writes the last record of this process to the job directory",
        "the first training step, or the first call of argosy.metrics, in a process of fleetrun",
        _SHUTDOWN,
    ),
    Effect(
        "trainer-at-exit",
        "an atexit function warns if this trainer has not left its parameter servers",
        "the connection to the servers",
        "fleet.stop_worker(), exe.close()",
    ),
    Effect(
        "paddle-import",
        "a finder in sys.meta_path loads Argosy for `import paddle`; argosy.__version__ is that of Paddle's API",
        "argosy.paddle.install(), python -m argosy.paddle",
        "argosy.paddle.uninstall()",
    ),
    Effect(
        "torch-config",
        "torch.fx.experimental._config, torch._inductor.config and the warning filters have other values",
        "shape inference of a view; Inductor compiles a region",
        "the end of that",
    ),
    Effect(
        "without-dynamo",
        "sys.modules has stand-ins for torch._dynamo, its config and torch.fx.experimental.validator, which import the "
        "modules when more of them is used than a few options; a FakeTensorMode that another thread creates then has "
        "no cache",
        "shape inference of an op, unless torch._dynamo is imported",
        "the end of that",
    ),
    Effect(
        "gc",
        "Python's garbage collector is paused",
        "the first use of a name of argosy imports the API; a program is built or compiled",
        "the end of that",
    ),
    Effect(
        "random-state",
        "torch's random generator has the state of the program's last run",
        "a run of a program with random_seed that draws random numbers",
        "the end of that run",
    ),
    Effect(
        "num-threads",
        "torch.set_num_threads: the threads that train share the cores",
        "train_from_dataset with several threads",
        "the end of that call",
    ),
    Effect(
        "server-signals",
        "SIGTERM and SIGINT stop the server gracefully; with fleetrun --grace, SIGTERM preempts the job while it has "
        "workers",
        "run_server, in the main thread",
        "the end of that call",
    ),
    Effect(
        "preemption-signal",
        "SIGTERM lets the job save a checkpoint and exit with the requeue code",
        "Checkpoint.batches, or the first Checkpoint.preempted(), in a job with fleetrun --grace",
        "the end of that loop; fleet.shutdown()",
    ),
    Effect(
        "launcher-signals",
        "SIGINT, SIGTERM and SIGHUP terminate the job",
        "fleetrun starts a job",
        "the end of the job",
    ),
    Effect(
        "subreaper",
        "PR_SET_CHILD_SUBREAPER: fleetrun adopts the processes that ranks leave behind",
        "fleetrun starts a job",
        "the end of the job",
    ),
    Effect(
        "ray-environment",
        "the environment variables RAY_AUTH_MODE, RAY_AUTH_TOKEN, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER, "
        "RAY_USAGE_STATS_ENABLED and RAY_worker_niceness are set: the cluster listens on the loopback interface, with "
        "a token",
        "argosy.ray.run or fleetrun --on=ray starts a local cluster",
        "the end of the job",
    ),
)
_BY_NAME = {effect.name: effect for effect in EFFECTS}
_lock = threading.RLock()
_installed: dict[str, Undo | None] = {}
_scoped: Counter[str] = Counter()


def install(name: str, apply: Callable[[], Undo | None]) -> None:
    """Apply an effect of the list, unless it is installed; `apply` returns the function that undoes it, if any can."""
    if name in _installed:
        return
    with _lock:
        if name not in _installed:
            _check(name)
            _installed[name] = apply()


@contextlib.contextmanager
def during(name: str) -> Iterator[None]:
    """An effect of the list is in force inside; the caller applies it and restores the original."""
    _check(name)
    with _lock:
        _scoped[name] += 1
    try:
        yield
    finally:
        with _lock:
            _scoped[name] -= 1


def installed() -> list[Effect]:
    """The effects that are in force now, in the order of the list."""
    with _lock:
        return [effect for effect in EFFECTS if effect.name in _installed or _scoped[effect.name] > 0]


def undo(name: str) -> None:
    """Restore the original of one effect; nothing if it is not installed, or cannot be undone."""
    with _lock:
        _check(name)
        if (undo_function := _installed.get(name)) is not None:
            del _installed[name]
            undo_function()


def undo_all(keep: Collection[str] = ()) -> None:
    """Restore the originals of all installed effects that can be undone, except `keep`; the last one first."""
    with _lock:
        for name in [name for name in reversed(_installed) if name not in keep]:
            undo(name)


def _check(name: str) -> None:
    assert name in _BY_NAME, f"{name!r} is not in the list of process-wide effects; add it"
