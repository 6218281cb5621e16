"""The version of Argosy, for the package and for the launcher, which must not import the API."""

# SPDX-License-Identifier: Apache-2.0
VERSION = "0.1.0"
