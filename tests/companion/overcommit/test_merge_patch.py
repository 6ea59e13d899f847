from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from koord_scheduler.overcommit.merge_patch import merge_patch

trees = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from("abcd"), trees, max_size=4)


def applied(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2, to the letter."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = applied(found.get(name), value)
    return found


@given(objects, objects)
def test_a_patch_makes_one_of_the_other(present: Any, wanted: Any) -> None:
    assert applied(present, merge_patch(present, wanted)) == wanted
    assert merge_patch(wanted, wanted) == {}
