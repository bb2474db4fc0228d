"""Tests for the dashboard: the view of a run, the widget in the kernel, and the front end in a real browser."""

import json
import math
import random
import re
import time

import pytest
from farandole.notebook.dashboard import STATIC, Dashboard
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.model import RunInfo
from farandole.runs.run import Run
from farandole.runs.view import view_of

EVIL = '<img src=x onerror="window.hacked=1">'


def example_run(tmp_path, *, size=4, steps=400, gpu=False, name="digits CNN"):
    """Return a run in the middle of training, whose metrics contain reproducible noise."""
    noise = random.Random(1)
    workers = tuple(f"demo-w{rank // 2}" for rank in range(size))
    info = RunInfo(
        id="20261121-123005-3f2a",
        folder=tmp_path,
        name=name,
        size=size,
        workers=workers,
        backend="horovod",
        started=time.time() - 83,
    )
    run = Run(info, "code")
    for rank in range(size):
        _train(run, rank, steps, noise)
        _report(run, rank, steps, gpu=gpu)
    return run


def _train(run, rank, steps, noise):
    for step in range(steps):
        loss = 2.2 * math.exp(-step / 90) + 0.06 + 0.05 * noise.random() * (1 + rank / 4)
        values = {"loss": math.nan if step == 200 else loss}
        if step % 40 == 39:
            values["accuracy"] = 1 - 0.8 * math.exp(-step / 100)
        run.add_records(rank, report_to_json(Report(rank=rank, time=float(step), step=step, values=values)))


def _report(run, rank, steps, *, gpu):
    usage = {"kind": "usage", "rank": rank, "time": 1.0, "cpu_percent": 91.0 + rank, "memory_bytes": 412_000_000}
    if gpu:
        usage |= {"gpu_percent": 72.0, "gpu_memory_bytes": 3.2e9, "gpu_memory_total_bytes": 24e9}
    run.add_records(rank, usage)
    progress = {"kind": "progress", "rank": rank, "time": 1.0, "name": "epochs", "done": 4, "total": 10, "samples": 4}
    run.add_records(rank, {**progress, "rate": 0.05, "samples_per_second": 0.05, "step_seconds": 20.0})
    inner = {**progress, "name": "batches", "done": steps, "total": 1000, "samples": steps * 32, "rate": 30.0}
    run.add_records(rank, {**inner, "samples_per_second": 960.0, "step_seconds": 0.04 if rank == 2 else 0.033})
    run.add_log(rank, f"epoch 3 loss 0.31\nepoch 4 loss 0.27 on rank {rank}\n")


def page_html(view, *, theme="", **traits):
    """Return an HTML page that runs the dashboard's front end with a fake of anywidget's model."""
    state = json.dumps({"view": view, "per_rank": False, "log_scale": [], "stopping": False, **traits})
    script = re.sub(r"export\{(\w+) as default\}", r"window.widget=\1", (STATIC / "dashboard.js").read_text())
    return f"""<!doctype html><meta charset="utf-8"><style>{theme}{(STATIC / "dashboard.css").read_text()}</style>
    <body style="margin:12px;background:var(--jp-layout-color0,#fff)"><div id="root"></div>
    <script>
      const state = {state.replace("<", chr(92) + "u003c")}; const handlers = {{}};
      window.sent = []; window.saved = [];
      window.model = {{
        get: (name) => state[name],
        set: (name, value) => {{ state[name] = value; window.saved.push([name, value]); }},
        save_changes: () => {{}},
        send: (message) => window.sent.push(message),
        on: (event, f) => (handlers[event] ??= []).push(f),
        off: (event, f) => (handlers[event] = handlers[event].filter((g) => g !== f)),
        push: (name, value) => {{ state[name] = value; (handlers["change:" + name] ?? []).forEach((f) => f()); }},
      }};
    </script>
    <script type="module">{script}
      window.cleanup = window.widget.render({{ model: window.model, el: document.getElementById("root") }});
    </script></body>"""


@pytest.fixture
def page(chromium):
    page = chromium.new_page(viewport={"width": 900, "height": 900})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: errors.append(f"request {request.url}"))
    yield page
    page.close()
    assert errors == []


# --- the view of a run ---


def test_view_is_strict_json_and_small(tmp_path):
    run = example_run(tmp_path, size=8, steps=5000)
    text = json.dumps(view_of(run, time.time(), per_rank=True), allow_nan=False)
    assert len(text) < 200_000


def test_view_sums_throughput_and_marks_the_slowest(tmp_path):
    view = view_of(example_run(tmp_path), time.time())
    assert view["samples_per_second"] == 4 * 960
    assert [row["slowest"] for row in view["ranks"]] == [False, False, True, False]
    assert [bar["name"] for bar in view["progress"]] == ["epochs", "batches"]
    assert view["progress"][1]["seconds_left"] == pytest.approx(20.0)
    assert view["elapsed"] in (83, 84)


def test_view_marks_no_rank_if_all_are_equal(tmp_path):
    run = example_run(tmp_path, size=2)
    assert not any(row["slowest"] for row in view_of(run, 0.0)["ranks"])


def test_view_shows_gaps(tmp_path):
    series = view_of(example_run(tmp_path, steps=250), 0.0)["series"][0]
    assert series["bad"] == 4
    assert series["mean"][200] is None
    assert series["bad_x"] == [200]
    assert series["ranks"] is None


def test_view_of_an_empty_run(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=0), "")
    view = view_of(run, 0.0)
    assert (view["series"], view["ranks"], view["progress"], view["samples_per_second"]) == ([], [], [], None)


def test_the_view_of_a_long_run_is_fast(tmp_path):
    run = example_run(tmp_path, size=8, steps=5_000)
    began = time.perf_counter()
    view_of(run, time.time(), per_rank=True)
    assert time.perf_counter() - began < 0.3


# --- the widget in the kernel ---


def test_the_refresh_rate_is_limited_but_the_end_is_always_shown(tmp_path):
    run = example_run(tmp_path)
    dashboard = Dashboard(run)
    dashboard.refresh()
    run.notice("careful")
    dashboard.refresh()
    assert dashboard.view["notices"] == []
    run.finish(Status.FINISHED)
    dashboard.refresh()
    assert (dashboard.view["status"], dashboard.view["notices"]) == ("finished", ["careful"])


def test_lines_of_ranks_are_sent_on_demand(tmp_path):
    dashboard = Dashboard(example_run(tmp_path))
    dashboard.per_rank = True
    assert list(dashboard.view["series"][0]["ranks"]) == ["0", "1", "2", "3"]


def test_stop_calls_its_callback_once(tmp_path):
    calls = []
    dashboard = Dashboard(example_run(tmp_path), on_stop=lambda: calls.append(1))
    for message in ({"type": "other"}, {"type": "stop"}, {"type": "stop"}):
        dashboard._handle_custom_msg(message, [])
    assert calls == [1]
    assert dashboard.stopping


def test_front_end_is_one_module():
    script = (STATIC / "dashboard.js").read_text(encoding="utf-8")
    assert re.search(r"export\{\w+ as default\};\s*$", script)
    assert not re.search(r"\bimport\b", script)
    assert Dashboard.class_traits()["view"].metadata["sync"]


# --- the front end ---


def test_page_shows_status_charts_ranks_and_logs(page, tmp_path):
    page.set_content(page_html(view_of(example_run(tmp_path, steps=250, gpu=True), time.time())))
    assert page.get_by_role("status").inner_text() == "running"
    assert "4 ranks · horovod · 3,840 samples/s" in page.locator(".fd-facts").inner_text()
    assert page.locator(".fd-chart").count() == 2
    parts = [
        path.count("M")
        for path in page.locator(".fd-mean").evaluate_all("all => all.map((path) => path.getAttribute('d'))")
    ]
    assert parts == [2, 1], "the loss has a gap at NaN"
    assert page.get_by_role("progressbar").count() == 2
    assert "3.2 GB / 24.0 GB" in page.locator("tbody").inner_text()
    assert page.get_by_text("slowest", exact=True).count() == 1
    page.get_by_text("Last log lines").click()
    assert page.get_by_text("on rank 3").is_visible()


def test_page_grows_with_the_run(page, tmp_path):
    page.set_content(page_html(view_of(example_run(tmp_path, steps=20), time.time())))
    before = page.locator(".fd-mean").first.get_attribute("d")
    view = view_of(example_run(tmp_path, steps=60), time.time())
    page.evaluate("view => model.push('view', view)", view)
    assert len(page.locator(".fd-mean").first.get_attribute("d")) > len(before)


@pytest.mark.parametrize(
    ("done", "left", "words"),
    [(15, 0.2, "65 % · 15 of 23 · a moment left"), (23, 0.0, "100 % · 23 of 23 · done"), (8, 75.0, "1:15 left")],
)
def test_page_shows_done_only_when_everything_is_done(page, tmp_path, done, left, words):
    view = view_of(example_run(tmp_path), 0.0)
    view["progress"] = [{"name": "epoch 7", "done": done, "total": 23, "seconds_left": left}]
    page.set_content(page_html(view))
    assert words in page.locator(".fd-bar-text").inner_text()


def test_page_asks_for_a_line_per_rank(page, tmp_path):
    run = example_run(tmp_path, steps=100)
    page.set_content(page_html(view_of(run, time.time())))
    page.get_by_role("button", name="one line per rank").click()
    assert page.evaluate("saved") == [["per_rank", True]]
    page.evaluate("view => model.push('view', view)", view_of(run, time.time(), per_rank=True))
    assert page.locator(".fd-chart").first.locator(".fd-mean").count() == 4
    assert "rank 3" in page.locator(".fd-legend").first.inner_text()


def test_page_switches_to_a_logarithmic_scale(page, tmp_path):
    page.set_content(page_html(view_of(example_run(tmp_path), time.time())))
    before = page.locator(".fd-mean").first.get_attribute("d")
    page.get_by_role("button", name="Logarithmic scale for loss").click()
    assert page.evaluate("saved") == [["log_scale", ["loss"]]]
    assert page.locator(".fd-mean").first.get_attribute("d") != before


def test_page_reads_out_values(page, tmp_path):
    page.set_content(page_html(view_of(example_run(tmp_path, steps=100), time.time())))
    page.locator(".fd-chart svg").first.hover(position={"x": 200, "y": 80})
    assert "step 4" in page.locator(".fd-tip").first.inner_text()
    page.locator(".fd-chart svg").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".fd-tip").first.is_visible()


def test_page_stops_the_run_once(page, tmp_path):
    run = example_run(tmp_path)
    page.set_content(page_html(view_of(run, time.time())))
    page.get_by_role("button", name="Stop").click()
    assert page.evaluate("sent") == [{"type": "stop"}]
    assert page.get_by_role("button", name="Stopping…").is_disabled()
    run.finish(Status.INTERRUPTED, "stopped by the user")
    page.evaluate("view => model.push('view', view)", view_of(run, time.time()))
    assert page.get_by_role("button", name="Stop").is_disabled()
    assert page.get_by_role("status").inner_text() == "interrupted"
    assert page.get_by_text("stopped by the user").is_visible()


def test_page_says_that_it_shows_the_dashboard_until_the_kernel_knows(page, tmp_path):
    view = view_of(example_run(tmp_path), time.time())
    page.set_content(page_html(view))
    page.evaluate("view => { for (let n = 0; n < 8; n++) model.push('view', view); }", view)
    assert len(page.evaluate("sent")) == 4
    assert page.evaluate("sent")[-1] == {"type": "shown"}
    page.evaluate("view => { model.push('shown', true); for (let n = 0; n < 9; n++) model.push('view', view); }", view)
    assert len(page.evaluate("sent")) == 4


def test_page_escapes_text(page, tmp_path):
    run = example_run(tmp_path, name=EVIL)
    run.add_records(0, report_to_json(Report(rank=0, time=0.0, values={EVIL: 1.0})))
    run.add_log(0, EVIL + "\n")
    run.notice(EVIL)
    run.set_rank_state(0, EVIL)
    page.set_content(page_html(view_of(run, time.time(), per_rank=True)))
    page.locator(".fd-chart").nth(2).wait_for()
    assert page.locator("#root img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_page_draws_single_points_nan_only_and_constants(page, tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=1, workers=("w",)), "")
    for name, value in {"one": 1.0, "nan": math.nan, "zero": 0.0, "huge": 1e300, "minus": -5.0}.items():
        run.add_records(0, report_to_json(Report(rank=0, time=0.0, step=7, values={name: value})))
    page.set_content(page_html(view_of(run, time.time()), log_scale=["zero", "minus", "huge"]))
    assert page.locator(".fd-chart").count() == 5
    assert "NaN" not in page.locator(".fd-chart svg").first.inner_html()
    page.evaluate("cleanup()")


def test_page_fits_a_narrow_column(chromium, tmp_path):
    page = chromium.new_page(viewport={"width": 400, "height": 900})
    page.set_content(page_html(view_of(example_run(tmp_path, size=8, gpu=True), time.time(), per_rank=True)))
    page.locator(".fd-chart").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.close()


def test_page_keeps_up_with_eight_ranks(page, tmp_path):
    view = view_of(example_run(tmp_path, size=8, steps=5000), time.time(), per_rank=True)
    page.set_content(page_html(view))
    page.locator(".fd-chart").first.wait_for()
    spent = page.evaluate(
        "view => { const t = performance.now(); for (let n = 0; n < 10; n++) model.push('view', view);"
        " return (performance.now() - t) / 10; }",
        view,
    )
    assert spent < 100
