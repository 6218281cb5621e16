"""fleetrun: start the ranks of a job on this host, supervise them, terminate them, report failures.

Only the standard library is used here: the first rank starts before torch could be imported.
"""

# SPDX-License-Identifier: Apache-2.0
