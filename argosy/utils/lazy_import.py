"""utils.try_import."""

# SPDX-License-Identifier: Apache-2.0
import importlib
from types import ModuleType


def try_import(module_name: str, err_msg: str | None = None) -> ModuleType:
    """Import a module; the ImportError says how to install it if that fails."""
    try:
        return importlib.import_module(module_name)
    except ImportError as e:
        package = {"cv2": "opencv-python"}.get(module_name, module_name)
        advice = f"cannot import {module_name}; install it with pip install {package}"
        raise ImportError(err_msg or advice) from e
