"""The accuracy of the planner's predictions: jobs in the lab, many settings in one start; see planner_accuracy.py."""

# SPDX-License-Identifier: Apache-2.0
