"""Tests of output folders: what is complete, what is another job, and what cannot be used."""

import errno
import json
import os
from types import SimpleNamespace

import pyarrow as pa
import pytest
from farandole.batches.parts import Part, PartResult
from farandole.batches.results import Skipped
from farandole.driver.batches import manifest
from farandole.driver.batches.manifest import ERRORS, LOCK, MANIFEST, OutputFolder
from farandole.exceptions import RankError, UsageError

PARTS = [Part(name=f"part-{place}.parquet", start=place, stop=place + 1) for place in range(3)]
JOB = {
    "stages": [{"name": "decode", "code": "1"}, {"name": "iris:3", "code": "2"}],
    "source": {"kind": "files", "path": "/images", "rows": 3, "names": "3"},
    "batch_size": 64,
    "part_rows": 1,
}


def opened(folder, job=JOB, *, skip=False):
    return OutputFolder(folder, job, PARTS, skip=skip)


def result(content=b"rows", skipped=(), **columns):
    return PartResult(
        rows=len(content), size=len(content), sha256="0" * 64, columns=columns or {"n": pa.int64()}, skipped=skipped
    )


def add(output, place, content=b"rows", **about):
    target = output.temporary(PARTS[place])
    target.write_bytes(content)
    output.add(PARTS[place], result(content, **about), target)


def skipped(place):
    return Skipped(index=place, part=PARTS[place].name, input="{}", stage="stage 1 (decode)", error="ValueError")


@pytest.fixture
def complete(tmp_path):
    output = opened(tmp_path / "out")
    for place in (2, 0, 1):
        add(output, place)
    output.finish()
    output.close()
    return tmp_path / "out"


def test_parts_are_complete_when_they_are_added(tmp_path):
    output = opened(tmp_path)
    assert output.missing == PARTS
    add(output, 1, b"abc")
    assert [part.name for part in output.missing] == ["part-0.parquet", "part-2.parquet"]
    assert (output.rows, output.files) == (3, [tmp_path / "part-1.parquet"])
    output.write()
    output.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, MANIFEST, "part-1.parquet"]
    assert json.loads((tmp_path / MANIFEST).read_text())["parts"]["part-1.parquet"]["rows"] == 3


def test_the_order_of_the_parts_does_not_change_the_manifest(complete, tmp_path):
    output = opened(tmp_path / "other")
    for place in range(3):
        add(output, place)
    output.finish()
    output.close()
    assert (complete / MANIFEST).read_bytes() == (tmp_path / "other" / MANIFEST).read_bytes()


def test_nothing_is_missing_in_a_complete_folder(complete):
    output = opened(complete)
    assert output.missing == []
    output.close()


def test_parts_that_are_missing_damaged_or_unknown_are_computed_again(complete):
    (complete / "part-0.parquet").unlink()
    (complete / "part-2.parquet").write_bytes(b"half")
    (complete / "part-2.parquet").write_bytes(b"half a part")
    content = json.loads((complete / MANIFEST).read_text())
    content["parts"]["part-9.parquet"] = content["parts"]["part-0.parquet"]
    (complete / MANIFEST).write_text(json.dumps(content))
    output = opened(complete)
    assert [part.name for part in output.missing] == ["part-0.parquet", "part-2.parquet"]
    output.close()


def test_what_lost_ranks_have_left_is_deleted(tmp_path):
    output = opened(tmp_path)
    output.temporary(PARTS[0]).write_bytes(b"half")
    output.close()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    (tmp_path / f".{PARTS[0].name}.1.tmp").write_bytes(b"half")
    opened(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_size": 32}, "batch_size was 64 and is 32"),
        ({"part_rows": 2}, "part_rows was 1 and is 2"),
        ({"stages": JOB["stages"][:1]}, "stage 2 was iris:3 and is none"),
        ({"stages": [JOB["stages"][0], {"name": "iris:4", "code": "2"}]}, "stage 2 was iris:3 and is iris:4"),
        (
            {"stages": [{"name": "decode", "code": "9"}, JOB["stages"][1]]},
            r"the code of stage 1 \(decode\) has changed",
        ),
        ({"source": {**JOB["source"], "rows": 4}}, r"the source has changed \(rows: 3 before, 4 now\)"),
        ({"source": {**JOB["source"], "names": "4"}}, "the content of the source has changed"),
    ],
)
def test_the_folder_of_another_job_is_refused(complete, change, said):
    with pytest.raises(UsageError, match=f"has the output of another job: {said}"):
        opened(complete, {**JOB, **change})
    opened(complete).close()


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ({"batch_size": 8, "part_rows": 8}, {"batch_size": 16, "part_rows": 16}, "batch_size was 8 and is 16"),
        ({"batch_size": 64, "part_rows": 128}, {"batch_size": 50, "part_rows": 100}, "batch_size was 64 and is 50"),
        ({"part_rows": 64}, {"part_rows": 128}, "part_rows was 64 and is 128"),
        (
            {"batch_size": 8, "part_rows": 80},
            {"batch_size": 16, "part_rows": 160},
            "batch_size was 8 and is 16; part_rows was 80 and is 160",
        ),
        (
            {"part_rows": 64},
            {"part_rows": 128, "source": {**JOB["source"], "rows": 4000}},
            r"the source has changed \(rows: 3 before, 4000 now\)",
        ),
    ],
)
def test_part_rows_that_follow_from_other_changes_are_not_named(tmp_path, was, now, said):
    output = opened(tmp_path, {**JOB, **was})
    add(output, 0)
    output.finish()
    output.close()
    with pytest.raises(UsageError, match=rf"has the output of another job: {said}\. Use"):
        opened(tmp_path, {**JOB, **now})


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="has files and no _manifest.json, so it is no output of map_batches"):
        opened(tmp_path)


def test_a_job_without_any_part_may_be_replaced_and_leaves_nothing(tmp_path):
    output = opened(tmp_path)
    output.begin()
    # A driver was killed after it had named the part, and before it wrote the manifest.
    (tmp_path / "part-9.parquet").write_bytes(b"rows")
    output.close()
    other = opened(tmp_path, {**JOB, "batch_size": 1})
    assert other.missing == PARTS
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, MANIFEST]
    other.close()


def test_a_part_that_the_manifest_lacks_is_computed_again(tmp_path):
    output = opened(tmp_path)
    output.begin()
    add(output, 1)
    output.close()
    output = opened(tmp_path)
    assert output.missing == PARTS
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, MANIFEST]
    output.close()


def test_the_manifest_is_written_now_and_then(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(manifest, "time", SimpleNamespace(monotonic=lambda: clock.now))
    written = []
    monkeypatch.setattr(manifest, "write_atomically", lambda *_, **__: written.append(clock.now))
    monkeypatch.setattr(manifest, "_sync", lambda _folder: setattr(clock, "now", clock.now + 0.5))
    output = opened(tmp_path)
    output.begin()
    for place in range(3):
        clock.now += 3
        add(output, place)
    # A write takes half a second, which is at most a tenth of the time.
    assert written == [100.5, 107.0]
    output.close()


def test_too_many_records_that_fail_end_the_job(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "MOST_SKIPPED", 2)
    output = opened(tmp_path, skip=True)
    add(output, 0, skipped=(skipped(0), skipped(0)))
    with pytest.raises(RankError, match="more than 2 records fail, .* The last one is {}: ValueError"):
        add(output, 1, skipped=(skipped(1),))
    output.write()
    output.close()
    output = opened(tmp_path, skip=True)
    with pytest.raises(RankError, match="more than 2 records fail"):
        add(output, 1, skipped=(skipped(1),))
    output.close()


@pytest.mark.parametrize("version", [1, "2", None])
def test_another_format_of_the_manifest_is_refused(complete, version):
    content = json.loads((complete / MANIFEST).read_text()) | {"format": version}
    (complete / MANIFEST).write_text(json.dumps(content))
    said = (
        f"has the format {version!r}, and this version of Farandole reads the format 2; use the version that wrote it"
    )
    with pytest.raises(UsageError, match=said):
        opened(complete)
    assert len(list(complete.glob("part-*"))) == 3


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"job": 1, "columns": {}, "parts": {"a": {}}}'])
def test_a_damaged_manifest_is_refused(complete, content):
    (complete / MANIFEST).write_text(content)
    with pytest.raises(UsageError, match=r"_manifest.json in .* cannot be read \(.*\); delete the folder"):
        opened(complete)


def test_a_folder_is_used_by_one_call_at_a_time(tmp_path):
    output = opened(tmp_path)
    with pytest.raises(UsageError, match="another call of map_batches is writing to"):
        opened(tmp_path)
    output.close()
    opened(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="the output folder .*/file/out cannot be used: Not a directory"):
        opened(tmp_path / "file" / "out")
    with pytest.raises(UsageError, match="the output folder .*/file cannot be used: File exists"):
        opened(tmp_path / "file")


def test_a_full_disk_keeps_the_parts_that_are_complete(tmp_path, monkeypatch):
    output = opened(tmp_path)
    add(output, 0)

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "write_atomically", fail)
        with pytest.raises(UsageError, match="cannot be written: No space left on device. Make room"):
            output.finish()
    output.close()
    assert json.loads((tmp_path / MANIFEST).read_text())["parts"].keys() == {"part-0.parquet"}
    output = opened(tmp_path)
    assert output.missing == PARTS[1:]
    output.close()


def test_a_part_that_a_rank_has_written_elsewhere_is_named(tmp_path):
    output = opened(tmp_path)
    with pytest.raises(UsageError, match="part-0.parquet is not in .*, although a rank has written it there"):
        output.add(PARTS[0], result(), output.temporary(PARTS[0]))
    output.close()


def test_parts_with_other_columns_are_refused(tmp_path):
    output = opened(tmp_path)
    text, n = pa.string(), pa.int64()
    add(output, 0, text=pa.null(), n=n)
    add(output, 1, text=text, n=n)
    with pytest.raises(RankError, match="part-2.parquet has the columns text: string, n: double, and other parts have"):
        add(output, 2, text=text, n=pa.float64())
    with pytest.raises(RankError, match="has the columns n: int64, and other parts have text: string, n: int64"):
        add(output, 2, n=n)
    add(output, 2, text=pa.null(), n=n)
    output.close()


BOXES = pa.list_(pa.list_(pa.float64()))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_empty_lists_fit_all_lists_also_after_the_folder_is_opened_again(tmp_path, order):
    kinds = [pa.list_(pa.null()), BOXES, pa.list_(pa.list_(pa.null()))]
    for place in order:
        output = opened(tmp_path)
        add(output, place, boxes=kinds[place])
        output.finish()
        output.close()
    assert json.loads((tmp_path / MANIFEST).read_text())["columns"] == {"boxes": str(BOXES)}
    output = opened(tmp_path)
    for other in (pa.float64(), pa.list_(pa.list_(pa.float32())), pa.list_(pa.string())):
        with pytest.raises(RankError, match=r"has the columns boxes: .*, and other parts have boxes: list<item: list"):
            add(output, 0, boxes=other)
    output.close()


def test_records_that_were_left_out_are_listed(tmp_path):
    output = opened(tmp_path, skip=True)
    add(output, 1, skipped=(skipped(1),))
    output.add(PARTS[0], PartResult(skipped=(skipped(0),)), tmp_path / "nothing")
    add(output, 2)
    output.finish()
    output.close()
    assert [json.loads(line)["index"] for line in (tmp_path / ERRORS).read_text().splitlines()] == [0, 1]
    output = opened(tmp_path, skip=True)
    assert (output.missing, output.skipped, len(output.files)) == ([], [skipped(0), skipped(1)], 2)
    output.close()


def test_parts_without_some_records_are_not_complete_if_none_may_be_left_out(tmp_path):
    output = opened(tmp_path, skip=True)
    for place in range(3):
        add(output, place, skipped=(skipped(1),) if place == 1 else ())
    output.finish()
    output.close()
    output = opened(tmp_path)
    assert [part.name for part in output.missing] == ["part-1.parquet"]
    add(output, 1)
    output.finish()
    output.close()
    assert not (tmp_path / ERRORS).exists()
