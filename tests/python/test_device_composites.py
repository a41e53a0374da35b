"""The finder of composites that look at the device: sees what differs, knows what is accepted, finds nothing else."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.needs_flagos

#: Operators and modules of each kind that composites are made of; a second or two in all.
SLICE = """
add addmm clamp cov einsum logsumexp masked.softmax matmul nanmean nn.functional.batch_norm nn.functional.conv2d
nn.functional.cross_entropy nn.functional.dropout nn.functional.embedding nn.functional.grid_sample
nn.functional.interpolate nn.functional.layer_norm nn.functional.max_pool1d nn.functional.one_hot nn.functional.pad
nn.functional.scaled_dot_product_attention nn.Conv2d nn.BatchNorm2d nn.Embedding nn.GroupNorm nn.LazyConv1d nn.RNN
nn.RNNCell nn.TransformerEncoderLayer norm pow svd tensor_split to_sparse var_mean
"""

#: What must be seen if nothing is accepted: record, stretch on the CPU, stretch on flagos.
SEEN = {
    "nn.functional.scaled_dot_product_attention": None,
    "nn.LazyConv1d": ("parts", [], ["_has_compatible_shallow_copy_type"]),
    "nn.RNNCell": None,
    "nn.functional.conv2d": None,
    "nn.functional.dropout": None,
}


@pytest.fixture(scope="module")
def finder() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "find_device_composites.py"
    specification = importlib.util.spec_from_file_location("find_device_composites", path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their module up by name
    specification.loader.exec_module(module)
    return module


def run(finder: ModuleType, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    status = finder.main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_slice_has_only_accepted_differences(finder: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = run(finder, capsys, "--samples", "1", "--only", *SLICE.split())
    assert [row for row in found["differences"] if not row["handled"]] == []
    assert status == 0
    assert found["cases"] > len(SLICE.split())


@pytest.mark.full
def test_no_operator_or_module_has_another_difference(finder: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = run(finder, capsys)
    assert [row for row in found["differences"] if not row["handled"]] == []
    assert status == 0


@pytest.mark.parametrize("name", SEEN)
def test_sees_differences(
    finder: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(finder, "HANDLED", ())
    status, found = run(finder, capsys, "--samples", "1", "--only", name)
    stretches = [(row["record"], row["cpu"], row["flagos"]) for row in found["differences"]]
    if SEEN[name] is None:
        # Run on backing tensors as a whole, or routed: the same operators as on the CPU.
        assert [stretch for stretch in stretches if stretch[0] == "run"] == []
    else:
        assert SEEN[name] in stretches
        assert status == 1


def test_error_on_flagos_needs_a_row_that_names_it(finder: ModuleType) -> None:
    case = finder.Case("nn.GRU", "train 0", lambda device: lambda: None)
    assert finder.reason_for(case, "parts", ["addmm"], ["mm"])
    assert finder.reason_for(case, "parts", ["addmm"], ["mm", "NotImplementedError: no kernel"]) is None


def test_wrong_use_ends_with_status_2(finder: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        finder.main(["--only", "no_such_operator"])
    assert ended.value.code == 2
    assert "nothing matches no_such_operator" in capsys.readouterr().err
