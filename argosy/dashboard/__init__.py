"""A page that shows a running job: `python -m argosy.dashboard log`, or `fleetrun --dashboard`.

job directory ──▶ LiveJob ──changes──▶ event stream ──▶ page (charts.js)
                  logs, timelines ──── requests ──────▶

The server reads the files of the job directory and nothing else. Needs the extra argosy[dashboard]; needs no torch.
"""
# SPDX-License-Identifier: Apache-2.0
