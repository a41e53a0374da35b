"""Sets up the tests of real programs: libraries that must be there, and small models made here."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

# Read when the libraries are imported.
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

# Small enough that a test takes a moment; the dropout is 0 where CPU and device must draw the same nothing.
GPT2 = {
    "n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 64, "bos_token_id": 0, "eos_token_id": 0,
    "pad_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
LLAMA = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
    "intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0,
    "pad_token_id": 0, "tie_word_embeddings": True,
}  # fmt: skip


def required(name: str) -> ModuleType:
    """Import a library of the extra `test`; without it the test fails, since a skipped one would go unseen."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.fail(f"the extra `test` of pyproject.toml is not installed whole ({error}): pip install -e '.[test]'")


@pytest.fixture(scope="session")
def transformers() -> ModuleType:
    library = required("transformers")
    library.utils.logging.disable_progress_bar()
    return library


@pytest.fixture(scope="session")
def safetensors() -> ModuleType:
    return required("safetensors.torch")


@pytest.fixture
def accelerate(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The library, with no device chosen yet, and none left behind, on a machine without a CUDA device."""
    library = required("accelerate")
    # As with CUDA_VISIBLE_DEVICES= in the environment; both libraries would take CUDA before any other device.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name in ("ACCELERATE_TORCH_DEVICE", "ACCELERATE_MIXED_PRECISION"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    library.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield library
    library.state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="session")
def checkpoints(transformers: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Path]]:
    """By family: the model class, and a folder in which it saved a model with random weights."""
    folder = tmp_path_factory.mktemp("checkpoints")
    families = {
        "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT2)),
        "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**LLAMA)),
    }
    for name, (model_class, config) in families.items():
        torch.manual_seed(0)
        model_class(config).save_pretrained(folder / name)
    return {name: (model_class, folder / name) for name, (model_class, _) in families.items()}


class Sentences(torch.utils.data.Dataset):
    """Twenty rows of random tokens, which follow from their number alone."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(1, 64, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


@pytest.fixture
def sentences() -> Sentences:
    return Sentences()
