"""Tests of the arguments of `Cluster.map_batches`. tests/contract has those of jobs on ranks."""

import json

import pytest
from farandole.driver.batches.manifest import MANIFEST
from farandole.driver.batches.plan import BatchPlan, BatchRequest
from farandole.exceptions import UsageError
from farandole.runs.notes import RunNotes


def double(batch):
    return batch


def request(tmp_path, **about):
    defaults = {"stages": double, "source": [{"n": 1}], "to": tmp_path / "out", "batch_size": 2}
    return BatchRequest(**{**defaults, "part_rows": None, "on_error": "raise", "name": None, **about})


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, not 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number of at least 1, not 2.5"),
        ({"batch_size": True}, "batch_size must be a whole number of at least 1, not True"),
        ({"batch_size": None}, "batch_size must be a whole number of at least 1, not None"),
        ({"part_rows": -1}, "part_rows must be a whole number of at least 1, not -1"),
        ({"part_rows": 0}, "part_rows must be a whole number of at least 1, not 0"),
        ({"part_rows": ""}, "part_rows must be a whole number of at least 1, not ''"),
        ({"part_rows": True}, "part_rows must be a whole number of at least 1, not True"),
        ({"to": None}, "to must be the path of the output folder, not None"),
        ({"to": b"out"}, "to must be the path of the output folder, not b'out'"),
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip', not 'ignore'"),
        ({"to": "s3://bucket/out"}, "map_batches writes to folders, not to the address s3://bucket/out"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path, about, said):
    with pytest.raises(UsageError, match=said):
        request(tmp_path, **about)


@pytest.mark.parametrize(
    ("to", "name", "found"),
    [
        ("labels", None, "labels"),
        ("cinic/labels-2/", None, "labels-2"),
        ("labels", "first try", "first try"),
        ("labels", "", "labels"),
        ("line\nbreak \udcff", None, "linebreak"),
        ("x" * 250, None, "x" * 200),
        ("/", None, ""),
    ],
)
def test_a_run_has_the_name_of_the_output_folder(tmp_path, to, name, found):
    about = request(tmp_path, to=to, name=name)
    assert about.run_name == found
    assert RunNotes(name=about.run_name).name == found


def test_the_manifest_has_what_distinguishes_a_job(tmp_path):
    folder = BatchPlan.of(request(tmp_path)).open()
    folder.finish()
    folder.close()
    job = json.loads((tmp_path / "out" / MANIFEST).read_text())["job"]
    assert job.keys() == {"stages", "source", "batch_size", "part_rows"}
    assert [stage["name"] for stage in job["stages"]] == ["double"]
    assert job["source"]["rows"] == 1


def test_the_output_may_not_be_in_the_source(tmp_path):
    (tmp_path / "a.png").write_bytes(b"1")
    for to in (tmp_path, tmp_path / "out"):
        with pytest.raises(UsageError, match="the output folder .* is in the source, which it would change"):
            BatchPlan.of(request(tmp_path, source=tmp_path, to=to))
    assert list(tmp_path.iterdir()) == [tmp_path / "a.png"]


def test_a_link_into_the_source_is_no_other_place(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "images")
    with pytest.raises(UsageError, match="is in the source, which it would change"):
        BatchPlan.of(request(tmp_path, source=tmp_path / "images", to=tmp_path / "link" / "out"))


def test_bad_arguments_make_no_folder(tmp_path):
    with pytest.raises(UsageError, match="has no rows"):
        BatchPlan.of(request(tmp_path, source=[]))
    assert list(tmp_path.iterdir()) == []


def test_ranks_get_the_source_unless_each_part_has_its_rows(tmp_path):
    assert BatchPlan.of(request(tmp_path)).spec().source is None
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"1")
    assert BatchPlan.of(request(tmp_path, source=tmp_path / "images")).spec().source
