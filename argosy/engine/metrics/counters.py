"""Counters of this process, incremented by the layers below the executor; the recorder reads their differences.

Plain integers of the module, so that an increment costs some 50 ns. They only grow.
"""

# SPDX-License-Identifier: Apache-2.0

exposed_ns = 0
"""Time in which the main thread was blocked on collectives, or ran them, or waited for parameter servers."""
sent_bytes = 0
"""Payload of the collectives that were started, and of requests to parameter servers."""
input_ns = 0
"""Time in which a loader had no batch ready."""
prefetch_hits = 0
"""Rows of tables that were there before the step looked them up."""
prefetch_misses = 0
"""Rows of tables that the step had to wait for."""
