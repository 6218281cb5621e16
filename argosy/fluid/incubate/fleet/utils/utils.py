"""Paddle's tools for protobuf programs: any use raises."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import unsupported_module

__getattr__ = unsupported_module(
    __name__,
    "programs are saved by fluid.io.save and fluid.io.save_inference_model, and printed by print(program)",
)
