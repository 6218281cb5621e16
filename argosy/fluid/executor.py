"""fluid.executor: the executor, and FetchHandler, which train_from_dataset calls periodically."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.runtime.dataset_training import FetchHandler
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope, scope_guard
from argosy.framework.missing import missing

__all__ = ["Executor", "FetchHandler", "global_scope", "scope_guard"]
__getattr__ = missing(__name__, globals())
