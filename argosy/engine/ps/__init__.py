"""Parameter servers: transport, tables, update rules; knows nothing of Programs."""

# SPDX-License-Identifier: Apache-2.0
