"""Names that a configuration chooses among, for those who must know them without torch.

The tables that the names are keys of stand where the code is; a test holds both equal.
"""

from __future__ import annotations

from typing import Literal

AdvantageName = Literal["group_norm", "group_center", "leave_one_out", "gpg", "optimal"]
"""Keys of ``tensors.advantage.ADVANTAGES``."""

ReductionName = Literal["response_mean", "token_mean", "response_sum", "constant"]
"""What ``objectives.reduction.reduction`` builds."""

AnchorName = Literal["none", "sampling_version", "batch_start", "interpolated"]
"""What ``learner.anchor`` may be; see ``learner.anchor.ANCHORS``."""

Precision = Literal["float32", "bfloat16", "int8", "int6"]
"""The weights that an engine samples with; ``rollout.precision`` makes them."""
