"""Tests for suggestions of similar words."""

import pytest
from farandole.suggestions import did_you_mean


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("stp", " Did you mean 'stop'?"),
        ("strat", " Did you mean 'start' or 'status'?"),
        ("dance", ""),
        ("", ""),
        ("stop", ""),
    ],
)
def test_similar_words_are_suggested(word, suggestion):
    assert did_you_mean(word, ["start", "stop", "status"]) == suggestion
