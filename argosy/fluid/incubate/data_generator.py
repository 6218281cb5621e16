"""fluid.incubate.data_generator: the data generators of 1.x scripts."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet.data_generator import (
    DataGenerator,
    MultiSlotDataGenerator,
    MultiSlotStringDataGenerator,
)

__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]
