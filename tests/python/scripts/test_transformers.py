"""transformers on flagos: checkpoints, tied weights, generation, Trainer; numbers are the CPU's bit for bit."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from torch_fl.cli.hints import hint

pytestmark = pytest.mark.needs_flagos

FAMILIES = ("gpt2", "llama")
TOKENS = torch.arange(1, 11)[None]

#: How a model gets to the device, and the device it must be on then.
PLACEMENTS = {
    "to": (lambda load: load().to("flagos"), "flagos:0"),
    "to an index": (lambda load: load().to("flagos:1"), "flagos:1"),
    "device_map": (lambda load: load(device_map="flagos"), "flagos:0"),
    "device_map of an index": (lambda load: load(device_map="flagos:1"), "flagos:1"),
    "device_map by module": (lambda load: load(device_map={"": "flagos"}), "flagos:0"),
    "device_map by number": (lambda load: load(device_map={"": 1}), "flagos:1"),
    "half precision": (lambda load: load(device_map="flagos", dtype=torch.bfloat16), "flagos:0"),
}


def loader(checkpoints: dict[str, Any], family: str):
    model_class, folder = checkpoints[family]
    return lambda **options: model_class.from_pretrained(folder, **options).eval()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_from_pretrained(family: str, placement: str, checkpoints) -> None:
    load = loader(checkpoints, family)
    place, device = PLACEMENTS[placement]
    model = place(load)
    assert {str(tensor.device) for tensor in (*model.parameters(), *model.buffers())} == {device}
    reference = load(dtype=model.dtype)
    with torch.no_grad():
        logits = model(TOKENS.to(device)).logits
        assert torch.equal(logits.cpu(), reference(TOKENS).logits)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("placement", ["to", "device_map"])
def test_tied_weights_stay_tied(family: str, placement: str, checkpoints) -> None:
    place, _ = PLACEMENTS[placement]
    model = place(loader(checkpoints, family))
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert embedding is head
    assert embedding.data_ptr() == head.data_ptr()
    model.train()(TOKENS.to("flagos"), labels=TOKENS.to("flagos")).loss.backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert torch.equal(model.get_input_embeddings().weight, model.get_output_embeddings().weight)


def test_a_parameter_is_the_same_object_after_to(checkpoints) -> None:
    model = loader(checkpoints, "llama")()
    before = dict(model.named_parameters())
    model.to("flagos")
    assert all(parameter is before[name] for name, parameter in model.named_parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_save_pretrained_from_the_device(family: str, checkpoints, tmp_path) -> None:
    load = loader(checkpoints, family)
    load(device_map="flagos").save_pretrained(tmp_path)
    saved = type(load()).from_pretrained(tmp_path).state_dict()
    expected = load().state_dict()
    assert saved.keys() == expected.keys()
    assert all(torch.equal(saved[name], expected[name]) for name in expected)


GENERATION = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "top_k": 0},
    "top k": {"do_sample": True, "top_k": 8, "temperature": 0.7},
    "top p": {"do_sample": True, "top_p": 0.9},
    "beams": {"do_sample": False, "num_beams": 3},
    "without a cache": {"do_sample": False, "use_cache": False},
    "static cache": {"do_sample": False, "cache_implementation": "static"},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("way", GENERATION)
def test_generate_gives_the_tokens_of_the_cpu(family: str, way: str, checkpoints) -> None:
    load = loader(checkpoints, family)
    options = {"max_new_tokens": 16, "min_new_tokens": 16, "use_cache": True} | GENERATION[way]
    tokens = {}
    for device in ("cpu", "flagos"):
        model = load().to(device)
        torch.manual_seed(5)
        tokens[device] = model.generate(TOKENS.to(device), **options)
    assert tokens["flagos"].device.type == "flagos"
    assert tokens["cpu"].shape == (1, TOKENS.shape[1] + 16)
    assert tokens["flagos"].tolist() == tokens["cpu"].tolist()


def test_sampling_follows_the_seed(checkpoints) -> None:
    """Else the test above could compare two draws that ignore the seed."""
    model = loader(checkpoints, "gpt2")().to("flagos")
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(model.generate(TOKENS.to("flagos"), do_sample=True, min_new_tokens=16, max_new_tokens=16).tolist())
    assert drawn[0] == drawn[1] != drawn[2]


TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "accumulated gradients": {"gradient_accumulation_steps": 2},
    "fused optimizer": {"optim": "adamw_torch_fused"},
}


def train(transformers, checkpoints, sentences, folder, **options):
    """Five steps of Trainer; returns where they ran, the losses, gradient norms, and the parameters."""
    model_class, checkpoint = checkpoints["gpt2"]
    model = model_class.from_pretrained(checkpoint)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=5,
        per_device_train_batch_size=2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=3,
        **options,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=sentences)
    trainer.train()
    # Else the next device would come too late for accelerate.
    importlib.import_module("accelerate.state").AcceleratorState._reset_state(reset_partial_state=True)
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    history = [(row["loss"], row["grad_norm"]) for row in trainer.state.log_history if "loss" in row]
    places = {parameter.device.type for parameter in model.parameters()} | {arguments.device.type}
    return places, history, {name: parameter.cpu() for name, parameter in model.state_dict().items()}


@pytest.mark.parametrize("kind", TRAININGS)
def test_trainer(kind: str, transformers, accelerate, checkpoints, sentences, tmp_path) -> None:
    expected = train(transformers, checkpoints, sentences, tmp_path, use_cpu=True, **TRAININGS[kind])
    torch.flagos.use_in_accelerate()
    places, history, parameters = train(transformers, checkpoints, sentences, tmp_path, **TRAININGS[kind])
    assert places == {"flagos"}
    assert len(history) == 5
    assert history == expected[1]
    assert all(torch.equal(parameters[name], expected[2][name]) for name in expected[2])


def test_trainer_in_bfloat16(transformers, accelerate, checkpoints, sentences, tmp_path) -> None:
    """The device autocasts the operators that CUDA does, others than the CPU: losses are near, not equal."""
    single = train(transformers, checkpoints, sentences, tmp_path, use_cpu=True)
    expected = train(transformers, checkpoints, sentences, tmp_path, use_cpu=True, bf16=True)
    torch.flagos.use_in_accelerate(mixed_precision="bf16")
    places, history, _ = train(transformers, checkpoints, sentences, tmp_path)
    assert places == {"flagos"}
    assert history != single[1], "else nothing was computed in bfloat16"
    for got, wanted in zip(history, expected[1], strict=True):
        assert got == pytest.approx(wanted, rel=torch.finfo(torch.bfloat16).eps)


def test_training_arguments_refuse_bf16(transformers, accelerate, tmp_path) -> None:
    """Why `use_in_accelerate` takes the precision. Should this pass one day, mend docs/scripts.md."""
    torch.flagos.use_in_accelerate()
    with pytest.raises(ValueError, match="doesn't support bf16/gpu") as caught:
        transformers.TrainingArguments(output_dir=str(tmp_path), bf16=True)
    assert "use_in_accelerate(mixed_precision='bf16')" in hint(caught.value, as_cuda=False)


def test_trainer_resumes_from_its_checkpoint(transformers, accelerate, checkpoints, sentences, tmp_path) -> None:
    torch.flagos.use_in_accelerate()
    whole = train(transformers, checkpoints, sentences, tmp_path / "whole")
    model_class, checkpoint = checkpoints["gpt2"]

    def trainer(**options):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "parts"), per_device_train_batch_size=2, logging_steps=1, save_steps=3,
            report_to=[], disable_tqdm=True, seed=3, max_steps=5, **options,
        )  # fmt: skip
        model = model_class.from_pretrained(checkpoint)
        return transformers.Trainer(model=model, args=arguments, train_dataset=sentences)

    trainer().train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-3"))
    parameters = resumed.model.state_dict()
    assert all(torch.equal(parameters[name].cpu(), whole[2][name]) for name in whole[2])


def test_device_map_auto_knows_no_flagos(checkpoints, accelerate) -> None:
    """accelerate chooses from a fixed list; docs/scripts.md says so. Should this fail one day, mend the docs."""
    assert loader(checkpoints, "gpt2")(device_map="auto").device.type == "cpu"
