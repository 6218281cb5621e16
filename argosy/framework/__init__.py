"""What every layer is made with: attributes of parameters, layer names, places."""

# SPDX-License-Identifier: Apache-2.0
