"""Payloads: what a vector of parameter changes loses on its way."""

from __future__ import annotations

import pytest
import torch
from farandole.ranks.training.sync import payloads
from farandole.ranks.training.sync.modes import PAYLOADS as NAMES
from farandole.ranks.training.sync.payloads import BLOCK, PAYLOADS, PIECE

LENGTHS = [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 10 * BLOCK + 7, PIECE, 2 * PIECE + BLOCK + 1]
# The largest error, as a share of the largest element of a block: half a step between two numbers, and the rounding of
# the scale, which clips the largest element.
ERRORS = {"fp32": 0.0, "fp16": 2**-11, "int8": 0.5 / 127 + 2**-8, "int4": 0.5 / 7 + 2**-8}


def test_each_mode_has_its_payload() -> None:
    assert set(PAYLOADS) == set(NAMES) == set(ERRORS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_vector_comes_back_with_a_bounded_error(name: str, length: int) -> None:
    vector = torch.randn(length, generator=torch.Generator().manual_seed(length))
    payload = PAYLOADS[name]
    found = payload.decode(payload.encode(vector, 3), length)
    assert found.shape == vector.shape
    assert found.dtype == torch.float32
    for block, back in zip(vector.split(BLOCK), found.split(BLOCK), strict=True):
        assert (back - block).abs().max() <= ERRORS[name] * block.abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_zeros_stay_zeros_and_the_vector_is_unchanged(name: str) -> None:
    vector = torch.zeros(300)
    vector[299] = -1.0
    before = vector.clone()
    found = PAYLOADS[name].decode(PAYLOADS[name].encode(vector, 3), 300)
    assert torch.equal(vector, before)
    assert torch.equal(found[:256], torch.zeros(256))
    assert found[299] == pytest.approx(-1.0, rel=2**-8)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", LENGTHS)
def test_what_rounding_loses_stays_in_a_vector_that_is_taken(name: str, length: int) -> None:
    vector = torch.randn(length, generator=torch.Generator().manual_seed(length))
    payload, rest = PAYLOADS[name], vector.clone()
    found = payload.decode(payload.take(rest, 3), length)
    torch.testing.assert_close(found + rest, vector, rtol=0, atol=1e-6)
    assert rest.abs().max() <= ERRORS[name] * vector.abs().max()


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_the_smallest_and_the_largest_number_keep_their_signs(name: str) -> None:
    vector = torch.tensor([7.0, -7.0, 1.0, -1.0, 0.0, 6.0, -6.0])
    found = PAYLOADS[name].decode(PAYLOADS[name].encode(vector, 3), 7)
    assert torch.allclose(found, vector, atol=0.06 if name == "int8" else 0.03)


@pytest.mark.parametrize(("name", "size"), [("fp32", 4096), ("fp16", 2048), ("int8", 1032), ("int4", 520)])
def test_bytes_of_a_vector_of_1024_elements(name: str, size: int) -> None:
    assert PAYLOADS[name].encode(torch.ones(1024), 3).nbytes == size


def test_changes_far_below_half_precision_and_far_above_it_arrive() -> None:
    payload = PAYLOADS["fp16"]
    small = torch.tensor([3e-7])
    assert payload.decode(payload.encode(small, 3), 1).item() == pytest.approx(3e-7, rel=1e-3)
    clipped = payload.encode(torch.tensor([1e6]), 3)
    assert torch.isfinite(clipped + clipped + clipped).all()


@pytest.mark.parametrize("name", NAMES)
def test_an_encoded_vector_is_the_same_in_pieces_and_as_a_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A GPU encodes the whole vector, and a rank without one must understand it.
    vector = torch.randn(5 * BLOCK + 3, generator=torch.Generator().manual_seed(0))
    whole = PAYLOADS[name].encode(vector, 3)
    monkeypatch.setattr(payloads, "PIECE", 2 * BLOCK)
    assert torch.equal(PAYLOADS[name].encode(vector, 3), whole)
    in_pieces = PAYLOADS[name].decode(whole, len(vector))
    monkeypatch.undo()
    assert torch.equal(PAYLOADS[name].decode(whole, len(vector)), in_pieces)


@pytest.mark.parametrize("name", NAMES)
def test_what_arrives_does_not_depend_on_the_default_type(name: str) -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        encoded = PAYLOADS[name].encode(torch.ones(3, dtype=torch.float32), 3)
        assert PAYLOADS[name].decode(encoded, 3).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", NAMES)
def test_a_part_of_an_encoded_vector_is_added(name: str) -> None:
    payload = PAYLOADS[name]
    encoded = payload.encode(torch.randn(300, generator=torch.Generator().manual_seed(0)), 3)
    for dtype in (torch.float32, torch.float64):
        vector = torch.ones(300, dtype=dtype)
        payload.add_to(vector, encoded, factor=-0.5)
        torch.testing.assert_close(vector, 1 - payload.decode(encoded, 300).to(dtype) / 2)
