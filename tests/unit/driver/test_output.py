"""Tests for the output of many ranks: labels, and the folding of equal lines."""

import random

import pytest
from farandole.driver.displays import PART_CHARACTERS, UPDATE_SECONDS
from farandole.driver.output import HOLD_SECONDS, MOST_LIVE, Block, Folder, label, parse_ranks
from farandole.exceptions import UsageError
from farandole.protocol import AREA_TYPE
from farandole.runs.terminal import SETTLE_SECONDS


def say(folder, rank, text, now=0.0, name="stdout"):
    folder.feed(rank, "stream", {"name": name, "text": text}, now)


def shown(blocks):
    return [(block.ranks, block.text) for block in blocks]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "rank 3"), ([0, 1, 2, 3], "ranks 0-3"), ([3, 0, 2], "ranks 0, 2-3"), ([0, 2, 4], "ranks 0, 2, 4")],
)
def test_label(ranks, text):
    assert label(ranks) == text


@pytest.mark.parametrize(
    ("text", "ranks"), [("0", (0,)), ("0,2-3", (0, 2, 3)), (" 3 , 1 ", (1, 3)), ("1,0-2", (0, 1, 2)), ("2-2", (2,))]
)
def test_parse_ranks(text, ranks):
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["x", "", ",", "1,", "-1", "1-", "1.5", "0 1"])
def test_text_that_names_no_ranks_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match=r"is not a list of ranks; write numbers and ranges, such as `0,2-3`"):
        parse_ranks(text)


def test_a_reversed_span_is_refused_with_the_correct_one():
    with pytest.raises(UsageError, match=r"'3-1'.*is reversed; write `1-3`"):
        parse_ranks("0,3-1")


def test_output_of_all_ranks_is_shown_once_and_immediately():
    folder = Folder([0, 1, 2])
    say(folder, 0, "a\nb\n")
    say(folder, 2, "a\nb\n")
    assert folder.take(0.0) == []
    say(folder, 1, "a\nb\n")
    assert shown(folder.take(0.0)) == [((0, 1, 2), "a\nb\n")]


def test_output_of_few_ranks_waits_for_the_others_and_is_shown_without_them():
    folder = Folder([0, 1, 2])
    say(folder, 0, "only here\n")
    assert folder.take(HOLD_SECONDS / 2) == []
    assert shown(folder.take(HOLD_SECONDS)) == [((0,), "only here\n")]


def test_different_output_is_grouped_by_rank():
    folder = Folder([0, 1])
    for step in range(3):
        say(folder, 0, f"zero {step}\n")
        say(folder, 1, f"one {step}\n")
    assert shown(folder.take(0.0, flush=True)) == [
        ((0,), "zero 0\nzero 1\nzero 2\n"),
        ((1,), "one 0\none 1\none 2\n"),
    ]


def test_common_lines_are_folded_around_a_line_of_one_rank():
    folder = Folder([0, 1])
    say(folder, 0, "start\nsaved by 0\nend\n")
    say(folder, 1, "start\nend\n")
    assert shown(folder.take(0.0, flush=True)) == [
        ((0, 1), "start\n"),
        ((0,), "saved by 0\n"),
        ((0, 1), "end\n"),
    ]


def test_a_partial_line_waits_for_its_end():
    folder = Folder([0])
    say(folder, 0, "half")
    assert folder.take(1.0) == []
    say(folder, 0, " and half\n", 1.0)
    assert shown(folder.take(1.0)) == [((0,), "half and half\n")]


def test_a_partial_line_is_shown_at_the_end():
    folder = Folder([0, 1])
    say(folder, 0, "no newline")
    say(folder, 1, "no newline")
    assert shown(folder.take(0.0, flush=True)) == [((0, 1), "no newline\n")]


def test_a_carriage_return_keeps_the_last_text():
    folder = Folder([0])
    say(folder, 0, "10 %\r50 %\r")
    say(folder, 0, "100 %\n")
    assert shown(folder.take(SETTLE_SECONDS)) == [((0,), "100 %\n")]


def test_windows_line_ends_lose_no_text():
    folder = Folder([0])
    say(folder, 0, "one\r\ntwo\r\n")
    assert shown(folder.take(0.0)) == [((0,), "one\ntwo\n")]


def test_the_streams_are_separate():
    folder = Folder([0])
    say(folder, 0, "out\n")
    say(folder, 0, "err\n", name="stderr")
    assert folder.take(0.0) == [
        Block(ranks=(0,), stream="stdout", text="out\n"),
        Block(ranks=(0,), stream="stderr", text="err\n"),
    ]


def test_equal_rich_output_is_shown_once_and_different_output_separately():
    folder = Folder([0, 1])
    same, other = {"text/plain": "1"}, {"text/plain": "2"}
    for rank, bundle in [(0, same), (1, same), (0, same), (1, other)]:
        folder.feed(rank, "execute_result", {"data": bundle, "metadata": {}}, 0.0)
    assert folder.take(0.0, flush=True) == [
        Block(ranks=(0, 1), bundle=same),
        Block(ranks=(0,), bundle=same),
        Block(ranks=(1,), bundle=other),
    ]


def test_rich_output_does_not_overtake_text():
    folder = Folder([0])
    say(folder, 0, "before\n")
    folder.feed(0, "display_data", {"data": {"text/plain": "picture"}}, 0.0)
    say(folder, 0, "after\n")
    assert [block.text or "bundle" for block in folder.take(0.0)] == ["before\n", "bundle", "after\n"]


def test_long_text_is_truncated_and_counted():
    folder = Folder([0, 1], limit=10)
    say(folder, 0, "123456\n")
    say(folder, 1, "abcdefgh\n")
    assert shown(folder.take(0.0, flush=True)) == [((0,), "123456\n"), ((1,), "abc\n")]
    assert folder.dropped == 6


def test_no_line_is_lost_when_many_ranks_differ():
    folder = Folder(range(8))
    said = [(rank, f"{rank if step % 3 else 'all'} {step}\n") for step in range(50) for rank in range(8)]
    for rank, line in said:
        say(folder, rank, line)
    blocks = folder.take(0.0, flush=True)
    for rank in range(8):
        text = "".join(block.text for block in blocks if rank in block.ranks)
        assert text == "".join(line for of, line in said if of == rank)


def test_a_huge_span_is_refused_before_it_is_expanded():
    with pytest.raises(UsageError, match="no cluster has that many ranks"):
        parse_ranks("0-99999999999")


def test_a_widget_of_a_rank_is_shown_as_its_text():
    folder = Folder([0])
    data = {"text/plain": "a bar", "application/vnd.jupyter.widget-view+json": {"model_id": "x"}}
    folder.feed(0, "display_data", {"data": data}, 0.0)
    assert [block.bundle for block in folder.take(0.0)] == [{"text/plain": "a bar"}]


def test_rich_output_counts_towards_the_limit():
    folder = Folder([0], limit=1000)
    folder.feed(0, "display_data", {"data": {"image/png": "x" * 2000}}, 0.0)
    assert folder.take(0.0, flush=True) == []
    assert folder.dropped > 2000


def test_a_rank_that_joined_later_is_shown_too():
    folder = Folder([0])
    say(folder, 1, "new\n")
    assert shown(folder.take(0.0, flush=True)) == [((1,), "new\n")]


# --- progress bars ---


def live(blocks):
    return [block.bundle["text/plain"] for block in blocks if block.display.endswith("live")]


def test_frames_of_progress_bars_do_not_use_up_the_limit():
    folder = Folder([0], limit=1000)
    for step in range(1000):
        say(folder, 0, f"\r{step:4} of 1000 |{'#' * 20}|", step / 100, name="stderr")
        folder.take(step / 100)
    say(folder, 0, "\n", 10.0, name="stderr")
    say(folder, 0, "the end\n", 10.0)
    assert shown(folder.take(10.0, flush=True))[:2] == [((0,), f" 999 of 1000 |{'#' * 20}|\n"), ((0,), "the end\n")]
    assert folder.dropped == 0


def test_a_moving_bar_is_shown_live_at_a_limited_rate():
    folder = Folder([0])
    frames = []
    for tick in range(30):
        say(folder, 0, f"\r{tick} of 30", tick / 10)
        frames += live(folder.take(tick / 10))
    assert (frames[0], frames[-1]) == ("0 of 30", "27 of 30")
    assert len(frames) <= 3 / UPDATE_SECONDS
    say(folder, 0, "\r30 of 30\n", 3.0)
    blocks = folder.take(4.0)
    assert shown(blocks) == [((0,), "30 of 30\n"), ((), "")]
    assert live(blocks) == [""]


def test_the_bars_of_many_ranks_share_a_display():
    folder = Folder(range(20))
    for rank in range(20):
        say(folder, rank, f"\rrank at {min(rank, 12)}")
    [text] = live(folder.take(0.0))
    lines = text.splitlines()
    assert lines[:2] == ["rank 0  rank at 0", "rank 1  rank at 1"]
    assert len(lines) == MOST_LIVE + 1
    assert lines[-1] == "... and 12 more ranks"
    assert "ranks 0-1  same" in live_after(Folder([0, 1, 2]), ["\rsame", "\rsame", "\rother"])


def live_after(folder, texts):
    for rank, text in enumerate(texts):
        say(folder, rank, text)
    return live(folder.take(0.0))[0].splitlines()


# --- displays and cleared output ---


def bundles(blocks):
    return [(block.ranks, block.display.rpartition("-")[2], block.bundle["text/plain"]) for block in blocks]


def display(folder, rank, text, now=0.0, *, name="d", kind="display_data"):
    content = {"data": {"text/plain": text}, "transient": {"display_id": name}}
    folder.feed(rank, kind, content, now)


def test_an_updated_display_is_shown_once_and_then_changed():
    folder = Folder([0, 1])
    display(folder, 0, "epoch 1")
    display(folder, 1, "epoch 1")
    display(folder, 0, "epoch 2", kind="update_display_data")
    [first, second] = folder.take(HOLD_SECONDS)
    assert (first.ranks, first.bundle) == ((0,), {"text/plain": "epoch 2"})
    assert (second.ranks, second.bundle) == ((1,), {"text/plain": "epoch 1"})
    display(folder, 0, "epoch 3", kind="update_display_data")
    display(folder, 0, "epoch 4", kind="update_display_data")
    assert folder.take(HOLD_SECONDS) == []
    [changed] = folder.take(HOLD_SECONDS + UPDATE_SECONDS)
    assert (changed.display, changed.bundle, changed.final) == (first.display, {"text/plain": "epoch 4"}, False)
    display(folder, 0, "epoch 5", kind="update_display_data")
    [last] = folder.take(HOLD_SECONDS + UPDATE_SECONDS, flush=True)
    assert (last.bundle, last.final) == ({"text/plain": "epoch 5"}, True)


def test_updates_count_only_as_far_as_a_display_grows():
    folder = Folder([0], limit=100)
    for step in range(100):
        display(folder, 0, f"step {step:3}", kind="update_display_data")
    assert (bundles(folder.take(1.0, flush=True)), folder.dropped) == ([((0,), "d", "step  99")], 0)
    display(folder, 0, "x" * 200, kind="update_display_data")
    assert folder.dropped > 50


def test_output_that_is_cleared_before_the_next_output_is_replaced():
    folder = Folder([0, 1])
    seen = {}
    for step in range(5):
        folder.feed(0, "clear_output", {"wait": True}, step)
        folder.feed(0, "display_data", {"data": {"text/plain": f"plot {step}"}}, step)
        say(folder, 0, f"epoch {step}\n", step)
        say(folder, 1, "as usual\n", step)
        blocks = folder.take(step + 0.9, flush=step == 4)
        seen |= {block.display: block.bundle["text/plain"] for block in blocks if block.display}
    assert list(seen.values()) == ["plot 4", "epoch 4"]
    folder.feed(0, "clear_output", {"wait": False}, 6.0)
    assert {text for _, _, text in bundles(folder.take(6.0))} == {""}


def test_clearing_empty_output_at_the_beginning_changes_nothing():
    folder = Folder([0, 1])
    for rank in (0, 1):
        folder.feed(rank, "clear_output", {"wait": False}, 0.0)
        say(folder, rank, "same\n")
    assert shown(folder.take(0.0)) == [((0, 1), "same\n")]


def test_clearing_removes_output_that_is_not_shown_yet():
    folder = Folder([0, 1])
    say(folder, 0, "old\nhalf")
    display(folder, 0, "old too")
    folder.feed(0, "clear_output", {"wait": True}, 0.0)
    say(folder, 0, "new\n")
    assert [block.bundle for block in folder.take(1.0, flush=True)] == [{"text/plain": "new"}]


def test_clearing_clears_displays_until_they_are_displayed_again():
    folder, states = Folder([0]), {}

    def take(now):
        for block in folder.take(now):
            states[block.display.rpartition("-")[2]] = block.bundle["text/plain"]

    display(folder, 0, "bar", name="bar")
    take(HOLD_SECONDS)
    display(folder, 0, "not shown yet", name="late", now=2.0)
    folder.feed(0, "clear_output", {"wait": True}, 2.0)
    take(2.0)
    assert states["bar"] == "bar"
    display(folder, 0, "plot 1", name="plot", now=2.0)
    display(folder, 0, "lost", name="bar", kind="update_display_data", now=2.0)
    take(4.0)
    assert states == {"bar": "", "plot": "plot 1"}
    folder.feed(0, "clear_output", {"wait": True}, 4.0)
    display(folder, 0, "plot 2", name="plot", now=4.0)
    display(folder, 0, "again", name="late", now=4.0)
    take(6.0)
    assert states == {"bar": "", "plot": "plot 2", "late": "again"}


def test_long_text_on_a_screen_continues_in_another_display():
    folder = Folder([0])
    folder.feed(0, "clear_output", {"wait": True}, 0.0)
    line = "x" * 99 + "\n"
    for _ in range(3 * PART_CHARACTERS // 100):
        say(folder, 0, line)
    texts = [block.bundle["text/plain"] for block in folder.take(1.0, flush=True)]
    assert max(map(len, texts)) <= PART_CHARACTERS + 100
    assert "\n".join(texts).split() == [line.strip()] * (3 * PART_CHARACTERS // 100)


def test_only_output_in_an_output_widget_is_replaced_when_the_widget_is_cleared():
    folder = Folder([0])
    say(folder, 0, "before\n")
    for step in range(3):
        folder.feed(0, "update_display_data", {"data": {AREA_TYPE: "w"}, "transient": {"display_id": AREA_TYPE}}, 0.0)
        folder.feed(0, "clear_output", {"wait": True}, 0.0)
        folder.feed(0, "display_data", {"data": {"text/plain": f"bar {step}"}}, 0.0)
        folder.feed(0, "update_display_data", {"data": {AREA_TYPE: ""}, "transient": {"display_id": AREA_TYPE}}, 0.0)
        say(folder, 0, f"step {step}\n")
    blocks = folder.take(1.0, flush=True)
    assert [block.text or block.bundle["text/plain"] for block in blocks] == [
        "before\n",
        "bar 2",
        "step 0\nstep 1\nstep 2\n",
    ]


class PlainFolder:
    """A direct implementation of the folding rules, for comparison. Its run time is cubic in the number of ranks."""

    def __init__(self, ranks):
        self.said = {rank: [] for rank in ranks}

    def say(self, rank, line, now):
        self.said[rank].append((line, now))

    def take(self, now, flush):
        shown = []
        while chosen := self.next(now, flush):
            lines = {self.said[rank].pop(0)[0] for rank in chosen}
            shown += [(chosen, line) for line in lines]
        return shown

    def next(self, now, flush):
        first = {rank: said[0] for rank, said in self.said.items() if said}
        if len(first) == len(self.said) and len({line for line, _ in first.values()}) == 1:
            return tuple(first)
        ripe = [rank for rank, (_, time) in first.items() if flush or now - time >= HOLD_SECONDS]
        lonely = [
            rank
            for rank in ripe
            if not any(line == first[rank][0] for other in self.said if other != rank for line, _ in self.said[other])
        ]
        oldest = sorted(ripe, key=lambda rank: first[rank][1])
        line = first[(lonely or oldest)[0]][0] if ripe else None
        return tuple(rank for rank in first if first[rank][0] == line)


def lines_of(blocks):
    return [(block.ranks, line) for block in blocks for line in block.text.splitlines()]


@pytest.mark.parametrize("seed", range(20))
def test_lines_follow_the_folding_rules(seed):
    draw = random.Random(seed)
    ranks = draw.sample(range(9), draw.randint(1, 6))
    folder, plain = Folder(ranks), PlainFolder(ranks)
    for tick in range(60):
        now = tick / 10
        for rank in draw.choices(ranks, k=draw.randint(0, 4)):
            line = draw.choice(["all", "some", "few", f"rank {rank}", f"tick {tick}"])
            say(folder, rank, line + "\n", now)
            plain.say(rank, line, now)
        assert lines_of(folder.take(now)) == plain.take(now, flush=False)
    assert lines_of(folder.take(now, flush=True)) == plain.take(now, flush=True)


def test_different_output_of_many_ranks_is_shown_soon():
    folder = Folder(range(4000))
    for rank in range(4000):
        say(folder, rank, f"I am {rank}\nand so are we\n")
    blocks = folder.take(0.0, flush=True)
    assert shown(blocks[:-1]) == [((rank,), f"I am {rank}\n") for rank in range(4000)]
    assert shown(blocks[-1:]) == [(tuple(range(4000)), "and so are we\n")]
