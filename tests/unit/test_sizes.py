"""Tests for sizes as text, with the values of the page's test of `bytes`."""

from farandole.sizes import share_text, size_text


def test_sizes_have_the_units_of_the_page():
    sizes = [size_text(count) for count in (0, 999, 1536, 640 * 2**20, 2415919104)]
    assert sizes == ["0 B", "999 B", "2 KiB", "640 MiB", "2.3 GiB"]


def test_a_size_that_is_rounded_to_1024_has_the_next_unit():
    sizes = [size_text(count) for count in (2**10 - 0.4, 2**20 - 1, 2**20 - 513, 2**30 - 1)]
    assert sizes == ["1 KiB", "1 MiB", "1023 KiB", "1.0 GiB"]


def test_a_share_names_both_units():
    assert share_text(512 * 2**20, 16 * 2**30) == "512 MiB of 16.0 GiB"
