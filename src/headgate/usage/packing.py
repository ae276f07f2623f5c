"""
The form of a packed journal event in memory: ten numbers of eight bytes.
"""

from __future__ import annotations

import struct
from typing import Final

PACK: Final = struct.Struct("=qdddqqqqdq").pack_into
"""Takes buffer, offset, the origin's index, then ``format.Event``'s fields after ``origin``."""
ROW: Final = 80
"""Bytes of an event."""
NOTHING: Final = -(2**63)
"""What stands for null among whole numbers; NaN does among the others."""
