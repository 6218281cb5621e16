"""Shared by all layers: parameter attributes, layer names, places."""

# SPDX-License-Identifier: Apache-2.0
