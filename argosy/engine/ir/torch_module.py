"""Record a `torch.nn.Module` that is called on a Variable into the Variable's program.

    net = torch.nn.Sequential(…)
    y = net(x)              x: Variable  ──▶  y: Variable; net's parameters are parameters of the program

The module's code sees fake tensors with symbolic sizes, never Variables: `x.shape[0]` is a size, and computations that
do not depend on the input, such as a position embedding, are recorded as well. A module has the same variables in all
its calls, in every program: calling it twice shares the weights.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy.engine import process_effects
from argosy.engine.errors import ArgosyError, ProgramError
from argosy.engine.ir import module_tensors
from argosy.engine.ir.build_errors import building
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.module_forwards import replace_forwards
from argosy.engine.ir.module_state import ModuleChanges, tensors_of, with_tensors
from argosy.engine.ir.program import Program
from argosy.engine.ir.record import RecordAgain, record_call, unwrap, wrap
from argosy.engine.ir.recorded_call import Substitute, substituted
from argosy.engine.ir.symbols import hint
from argosy.engine.ir.variable import Variable, first_variable
from argosy.engine.log import logger

_plain_call = torch.nn.Module.__call__

Loaded = Callable[[dict[str, Tensor]], None]
_loaded: Loaded | None = None


_tensors_at_call: WeakKeyDictionary[nn.Module, dict[str, Tensor]] = WeakKeyDictionary()
"""The tensors, by name, that a submodule had when it was last recorded: these are variables."""


def accept_variables(loaded: Loaded) -> None:
    """Patch torch.nn.Module.__call__ so that every torch module accepts Variables in this process.

    `loaded` is called with {variable: tensor} when `load_state_dict` has changed tensors that are variables.

    Hooks of a module see its arguments too late to record the whole call, and a subclass would exclude existing
    modules. torch.fx patches the same method to trace.
    """

    def patch() -> process_effects.Undo:
        global _loaded  # noqa: PLW0603  (set with the patch)
        _loaded = loaded
        torch.nn.Module.__call__ = _call  # type: ignore[method-assign]  # see the docstring
        return _restore_call

    process_effects.install("module-call", patch)


def _restore_call() -> None:
    if torch.nn.Module.__call__ is _call:  # else another library has patched it since, and calls ours
        torch.nn.Module.__call__ = _plain_call  # type: ignore[method-assign]  # see accept_variables


def _call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    variable = first_variable((args, kwargs))
    if variable is None:
        return _plain_call(self, *args, **kwargs)
    return call_module(variable.program, self, args, kwargs)


def call_module(program: Program, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record the module's forward in the program."""
    module = recordable(module)
    plain_args, plain_kwargs = unwrap(program, (args, kwargs))

    def what() -> str:
        return f"{type(module).__name__} called"

    with building(what, program.symbols):
        if any(is_lazy(t) for t in (*module.parameters(), *module.buffers())):
            _initialize_lazy(module, plain_args, plain_kwargs)
        values = _variables(program, module)
        run = _ModuleCall(
            module,
            {key: program.recorder.local(v.value) for key, v in values.items()},
            plain_args,
            plain_kwargs,
        )
        inputs = [
            t for t in tree_leaves((run.tensors, plain_args, plain_kwargs)) if isinstance(t, FakeTensor)
        ]
        is_training = any(sub.training for sub in module.modules())
        out, attributes = record_call(
            program, what(), inputs, run, run.evaluate if is_training else None, has_attributes=True
        )
        _check_state(run)
    prefix = module_tensors.prefix_of(module, (), ())
    for (sub, name), tree in attributes.items():
        setattr(sub, name, wrap(program, tree, f"{prefix}.{name}"))
    return wrap(program, out, prefix)


def values_for(program: Program, module: nn.Module) -> dict[str, Variable]:
    """The program's variables of this module, by their paths in the module."""
    tensors = tensors_of(recordable(module))
    names = {key: program.module_tensors.name_of(tensor) for key, tensor in tensors.items()}
    missing = [key for key, name in names.items() if name is None]
    if missing:
        raise ProgramError(
            f"{type(module).__name__} was never called in {program.name}, which has no variable for {missing[0]!r}; "
            "call the module on a Variable of the program first"
        )
    return {key: program.var(name) for key, name in names.items() if name is not None}


class _ModuleCall:
    """One call of a module on tensors of a program; it is run to record it, and again for evaluation mode."""

    def __init__(self, module: nn.Module, tensors: dict[str, Tensor], args: Any, kwargs: Any) -> None:
        self.module = module
        self.tensors = tensors
        self.args = args
        self.kwargs = kwargs
        self.changes = ModuleChanges()
        self.copied: set[str] = set()
        """Paths of the buffers that forward gets a copy of."""

    def __call__(self) -> tuple[Any, dict[tuple[nn.Module, str], Any]]:
        """The result, and the tensors that forward assigned to attributes.

        A buffer that forward assigns is written at the end of the call. Backward needs its old value, so the call is
        then recorded again with a copy of the buffer.
        """
        tensors = {path: t.clone() if path in self.copied else t for path, t in self.tensors.items()}
        with with_tensors(self.module, tensors) as self.changes:
            out = self._forward(self.args, self.kwargs)
        if self.changes.buffers.keys() - self.copied:
            self.copied |= self.changes.buffers.keys()
            raise RecordAgain
        return self._assign_buffers(out, self.tensors, self.changes), self._attributes(self.changes)

    def evaluate(self, substitute: Substitute) -> tuple[Any, dict[tuple[nn.Module, str], Any]]:
        """The same in evaluation mode, with other tensors."""
        tensors, args, kwargs = substituted((self.tensors, self.args, self.kwargs), substitute)
        with with_tensors(self.module, tensors) as changes:
            self.module.eval()
            out = self._forward(args, kwargs)
        return self._assign_buffers(out, tensors, changes), self._attributes(changes)

    def rerun(self, substitute: Substitute, attributes: dict[tuple[nn.Module, str], Any]) -> None:
        """Call forward again with these attributes set, as the next eager call would."""
        tensors, args, kwargs = substituted((self.tensors, self.args, self.kwargs), substitute)
        with with_tensors(self.module, tensors):
            for (sub, name), value in attributes.items():
                sub.__dict__[name] = value
            self._forward(args, kwargs)

    def _forward(self, args: Any, kwargs: Any) -> Any:
        replace_forwards(self.module)  # until with_tensors restores the attributes
        try:
            return _plain_call(self.module, *args, **kwargs)
        except ArgosyError:
            raise
        except Exception as e:
            where = _innermost(self.module, e.__traceback__)
            if where:
                e.add_note(where)
            raise

    @staticmethod
    def _assign_buffers(out: Any, tensors: dict[str, Tensor], changes: ModuleChanges) -> Any:
        """Write assigned buffers; a result that aliases an old buffer is copied first, to keep the old value."""
        if not changes.buffers:
            return out
        memory = {tensors[path].untyped_storage()._cdata for path in changes.buffers}
        out = tree_map_only(Tensor, lambda t: t.clone() if t.untyped_storage()._cdata in memory else t, out)
        with torch.no_grad():
            for path, value in changes.buffers.items():
                old = tensors[path]
                known = [(a, b) for a, b in zip(value.shape, old.shape, strict=False) if isinstance(a, int)]
                if value.dtype != old.dtype or value.ndim != old.ndim or any(a != b for a, b in known):
                    raise ProgramError(
                        f"forward assigns {_kind(value)} to buffer {path!r}, which is {_kind(old)}; a variable keeps "
                        "its dtype and shape"
                    )
                for size, wanted in zip(value.shape, old.shape, strict=True):
                    torch._check(size == wanted)
                old.copy_(value)
        return out

    @staticmethod
    def _attributes(changes: ModuleChanges) -> dict[tuple[nn.Module, str], Any]:
        """The tensors assigned to attributes, except where a real tensor was before: every call recomputes those."""
        return {
            (sub, name): tree
            for (sub, name), tree in changes.tensors.items()
            if not any(_is_real(leaf) for leaf in tree_leaves(sub.__dict__.get(name)))
        }


def _kind(value: Tensor) -> str:
    sizes = ", ".join(str(size) if isinstance(size, int) else "any" for size in value.shape)
    return f"{dtype_name(value.dtype)}[{sizes}]"


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, FakeTensor)


def _variables(program: Program, module: nn.Module) -> dict[str, Variable]:
    tensors = tensors_of(module)
    prefix = module_tensors.prefix_of(module, tensors, program.vars)
    for sub in module.modules():
        if _after_load not in sub._load_state_dict_post_hooks.values():
            sub.register_load_state_dict_pre_hook(_before_load)
            sub.register_load_state_dict_post_hook(_after_load)
        _tensors_at_call[sub] = {
            key: tensor
            for key, tensor in (*sub._parameters.items(), *sub._buffers.items())
            if tensor is not None
        }
    return {
        key: program.add_module_tensor(tensor, f"{prefix}.{key}", module) for key, tensor in tensors.items()
    }


_loading: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()
"""The names of a submodule's tensors that `load_state_dict` is about to load."""


def _before_load(module: nn.Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Called by torch before `load_state_dict` loads into one submodule."""
    names = (*module._parameters, *module._buffers)
    # torch adds a module's own counter to the state dict where old files have none: that is not loaded.
    current = {**module._parameters, **module._buffers}
    _loading[module] = {
        name for name in names if state_dict.get(f"{prefix}{name}", current[name]) is not current[name]
    }


def _after_load(module: nn.Module, incompatible_keys: Any) -> None:
    """Called by torch after `load_state_dict` has loaded into one submodule."""
    tensors = {**module._parameters, **module._buffers}
    loaded, changed = _loading.pop(module, set()), {}
    for key, before in _tensors_at_call.get(module, {}).items():
        if key not in loaded:
            continue
        name, tensor = module_tensors.known_name(before), tensors.get(key)
        if tensor is not before:
            raise ProgramError(
                f"load_state_dict replaced {key!r} of {type(module).__name__}, which is variable {name!r}; "
                "load without assign=True"
            )
        if name is not None:
            changed[name] = before
    if changed and _loaded is not None:
        _loaded(changed)


# --- modules that need preparation --------------------------------------------------------------------


def recordable(module: nn.Module) -> nn.Module:
    """The module, or the one inside of torch.compile's; raises ProgramError if it cannot be recorded."""
    if type(module).__module__.startswith("torch._dynamo") and "_orig_mod" in module._modules:
        return module.get_submodule("_orig_mod")  # a program is compiled as a whole, by Argosy
    scripted = next(
        (path for path, sub in module.named_modules() if isinstance(sub, torch.jit.ScriptModule)), None
    )
    if scripted is not None:
        raise ProgramError(
            f"{scripted or type(module).__name__} is compiled TorchScript, which cannot be recorded; use the module "
            "that it was made from"
        )
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise ProgramError(
            f"{type(module).__name__} distributes an eager module; call module.module on the Variable and use "
            "fleet.distributed_optimizer to train on several ranks"
        )
    return module


def _initialize_lazy(module: nn.Module, args: Any, kwargs: Any) -> None:
    """Initialize lazy modules by running them on zeros, with hints for unknown sizes."""
    _run_on_zeros(module, args, kwargs, hint)
    try:  # other numbers for the unknown sizes must work as well
        _run_on_zeros(module, args, kwargs, lambda size: 2 * hint(size) + 1)
    except Exception as e:
        raise ProgramError(
            f"{type(module).__name__} takes the shape of a parameter from a size of its input that is unknown while "
            "the program is built; give the size in static.data and create the module again, or use one that is "
            "not lazy"
        ) from e


def _run_on_zeros(module: nn.Module, args: Any, kwargs: Any, number: Callable[[Any], int]) -> None:
    def zeros(value: Tensor) -> Tensor:
        sizes = [size if isinstance(size, int) else number(size) for size in value.shape]
        return torch.zeros(sizes, dtype=value.dtype)

    real_args, real_kwargs = tree_map_only(FakeTensor, zeros, (args, kwargs))
    modes = [(sub, sub.training) for sub in module.modules()]
    module.eval()
    with torch.no_grad():
        _plain_call(module, *real_args, **real_kwargs)
    for sub, mode in modes:
        sub.training = mode


# --- state in attributes ------------------------------------------------------------------------------


def _check_state(run: _ModuleCall) -> None:
    """Raise if forward depends on attributes that it sets itself: in eager mode the second call would differ."""
    changes, module = run.changes, run.module
    if not changes.tensors and not changes.values:
        return
    first, _ = _trace(run, {}, {})
    second, is_read = _trace(run, changes.tensors, {key: after for key, (_, after) in changes.values.items()})
    paths = {sub: path for path, sub in module.named_modules()}
    if is_read or first != second:
        keys = (*changes.tensors, *changes.values)
        names = ", ".join(f"{paths.get(sub, '')}.{name}".strip(".") for sub, name in keys)
        raise ProgramError(
            f"forward sets {names} and depends on the value in its next call, which a static program does not see; "
            "make it a buffer (register_buffer), or an argument and a result of forward"
        )
    for (sub, name), (before, after) in changes.values.items():
        logger.warning(
            "%s: forward changes %s from %r to %r; the program records one call, and later values have no effect",
            type(module).__name__,
            f"{paths.get(sub, '')}.{name}".strip("."),
            before,
            after,
        )


def _trace(
    run: _ModuleCall, tensors: dict[tuple[nn.Module, str], Any], values: dict[tuple[nn.Module, str], Any]
) -> tuple[list[Any], bool]:
    """The ops of the call with these attributes set, traced in a new program; True if it reads one of the tensors."""
    program = Program("trace")

    def concrete(value: Tensor) -> Tensor:
        if _is_real(value):
            return value
        sizes = [hint(size) for size in value.shape]
        trainable = True if value.requires_grad else None
        name = f"input_{id(value)}"  # the same in both traces
        return program.state(name, sizes, value.dtype, trainable).value

    attributes = {key: tree_map_only(Tensor, concrete, tree) for key, tree in tensors.items()}
    set_before = {id(leaf) for leaf in tree_leaves(attributes) if isinstance(leaf, FakeTensor)}
    with program.recording():
        run.rerun(concrete, {**attributes, **values})
    ops = [
        fx.map_arg((n.target, n.args, n.kwargs), lambda source: source.name)
        for n in program.graph.nodes
        if isinstance(n.target, OpOverload)
    ]
    return ops, any(v.node.users for v in program.vars.values() if id(v.value) in set_before)


def _innermost(module: nn.Module, trace: TracebackType | None) -> str:
    """`in encoder.layers.0 (TransformerEncoderLayer)`: the submodule whose forward raised."""
    inner = None
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "_call_impl":
            inner = trace.tb_frame.f_locals.get("self")
        trace = trace.tb_next
    path = next((path for path, sub in module.named_modules() if sub is inner), "")
    return f"in {path} ({type(inner).__name__})" if path else ""
