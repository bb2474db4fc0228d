"""Tests for the names and values of hyper-parameters."""

import math
from fractions import Fraction

import numpy as np
import pytest
from farandole.exceptions import UsageError
from farandole.hyperparameters import checked, parse


@pytest.mark.parametrize("value", ["adam", "", "x" * 1000, 3, -0.5, True, None])
def test_plain_values_stay_as_they_are(value):
    assert checked({"optimizer.name_2": value}) == {"optimizer.name_2": value}


@pytest.mark.parametrize(
    ("value", "plain"),
    [(np.float64(0.5), 0.5), (np.float32(0.5), 0.5), (np.int64(3), 3), (np.str_("a"), "a"), (Fraction(1, 2), 0.5)],
)
def test_numbers_and_texts_of_other_libraries_become_plain(value, plain):
    [found] = checked({"lr": value}).values()
    assert (found, type(found)) == (plain, type(plain))


@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, (1, 2), 1j, b"a", object(), math.nan, math.inf, 10**400, Fraction(10**400), "x" * 1001]
)
def test_another_value_is_an_error_with_the_name(value):
    with pytest.raises(UsageError, match="the hyper-parameter 'lr' cannot be .*; use a finite number, a text of at mo"):
        checked({"lr": value})


@pytest.mark.parametrize("name", ["", "1st", "a b", "a-b", ".lr", "lr.", "a..b", "x" * 101, "<b>"])
def test_another_name_is_an_error(name):
    with pytest.raises(UsageError, match="cannot be the name of a hyper-parameter; use at most 100 letters, digits"):
        checked({name: 1})


def test_there_are_at_most_200_names():
    values = {f"p{number}": number for number in range(201)}
    with pytest.raises(UsageError, match="at most 200 hyper-parameters, not 201"):
        checked(values)
    del values["p0"]
    assert checked(values) == values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.1),
        ("1e-3", 0.001),
        ("64", 64),
        ("-1", -1),
        ("True", True),
        ("None", None),
        ("'64'", "64"),
        ("adam", "adam"),
        ("a=b", "a=b"),
        ("", ""),
        ("true", "true"),
        ("64,64", "64,64"),
        ("[1, 2]", "[1, 2]"),
        ("b'x'", "b'x'"),
        ("1j", "1j"),
        ("(" * 900, "(" * 900),
        ("\0", "\0"),
        ("__import__('os')", "__import__('os')"),
    ],
)
def test_a_word_is_a_literal_or_a_text(text, value):
    [found] = parse([f"lr={text}"]).values()
    assert (found, type(found)) == (value, type(value))


def test_a_later_word_replaces_an_earlier_one():
    assert parse(["lr=1", "batch=2", "lr=3"]) == {"lr": 3, "batch": 2}


@pytest.mark.parametrize("word", ["lr", ""])
def test_a_word_without_a_value_is_an_error(word):
    with pytest.raises(UsageError, match=f"`--config {word}` has no value; write for example"):
        parse([word])


def test_a_number_that_is_not_finite_is_an_error():
    with pytest.raises(UsageError, match="'lr' cannot be inf"):
        parse(["lr=1e999"])


def test_a_text_that_is_too_long_is_an_error():
    with pytest.raises(UsageError, match="'lr' cannot be"):
        parse([f"lr={'x' * 1001}"])
