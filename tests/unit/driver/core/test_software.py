"""Tests for what a run records about the software and the data sets of its ranks."""

from farandole.driver.core.software import Software

PACKAGES = {"python": "3.11.2"}


def of(*data_sets):
    said = []
    return Software.of([{"packages": PACKAGES, "data_sets": one} for one in data_sets], said.append), said


def test_a_digest_that_all_ranks_have_is_recorded_once():
    software, said = of({"digits@1": "sha256:a"}, {"digits@1": "sha256:a"})
    assert (software.packages, software.data_sets, said) == (PACKAGES, {"digits@1": "sha256:a"}, [])


def test_ranks_with_another_version_are_named():
    software, [said] = of({"digits@1": "sha256:a"}, {"digits@1": "missing"}, {}, {"digits@1": "sha256:a"})
    assert software.data_sets == {"digits@1": "sha256:a on ranks 0, 3; missing on ranks 1-2"}
    assert "do not all have the data set digits@1 (sha256:a on ranks 0, 3; missing on ranks 1-2)" in said


def test_a_data_set_that_no_rank_has_is_reported():
    software, said = of({"digits@1": "missing"})
    assert software.data_sets == {"digits@1": "missing"}
    assert ["no rank has the data set digits@1: its folder has no manifest" in one for one in said] == [True]
