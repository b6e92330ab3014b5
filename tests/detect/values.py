"""Arguments of every form that models, vendors and clients send, as text or as values."""

import json
import math
from typing import Any

from hypothesis import strategies as st

values: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 1, 1.0, -0.0, 2**60, 2**70, math.nan, math.inf, "é", "\ud800", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
arguments = values | values.map(json.dumps) | st.sampled_from(["", "  ", "{", '{"a":1e400}', '{"a": 1}', '{"a":1.0}'])
