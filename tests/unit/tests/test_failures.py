"""Tests that texts are added to the report of a failed test, and that a text that cannot be read causes no error."""

from types import SimpleNamespace

from tests.failures import attach


def test_a_text_is_attached_under_its_title():
    report = SimpleNamespace(sections=[])
    attach(report, "hub", lambda: "its log")
    assert report.sections == [("hub", "its log")]


def test_the_reason_is_attached_if_the_text_cannot_be_read():
    def dead():
        raise ConnectionError("the engine does not answer")

    report = SimpleNamespace(sections=[])
    attach(report, "containers", dead)
    [(title, text)] = report.sections
    assert title == "containers"
    assert "ConnectionError: the engine does not answer" in text
