"""Tests that the driver's stubs for calls on ranks match the functions that the ranks execute."""

import ast
import inspect
import json

import pytest
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.rank_calls import RankCall
from farandole.ranks import control


def functions_of(module):
    found = inspect.getmembers(module, inspect.isfunction)
    return {name: function for name, function in found if function.__module__ == module.__name__}


STUBS, FUNCTIONS = functions_of(rank_calls), functions_of(control)


def test_each_function_has_a_stub():
    assert sorted(STUBS) == sorted(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_stub_has_its_functions_signature(name):
    stub, function = inspect.signature(STUBS[name]), inspect.signature(FUNCTIONS[name])
    assert stub.parameters == function.parameters
    assert stub.return_annotation == f"RankCall[{function.return_annotation}]"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_stub_passes_on_all_its_arguments(name):
    arguments = tuple(range(len(inspect.signature(FUNCTIONS[name]).parameters)))
    assert STUBS[name](*arguments) == RankCall(name, arguments)


def test_an_expression_gives_the_value_as_json():
    call = rank_calls.open_store('it\'s "here"\n')
    assert ast.literal_eval(call.expression.rpartition("open_store(")[2].removesuffix("))")) == call.arguments[0]
    assert json.loads(eval(rank_calls.clock().expression)) > 0
