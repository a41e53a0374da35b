"""Complaint 14, distributed code with `cuda` in it: DDP, FSDP, checkpoints and collectives take the device's name.

pytorch#104390, pytorch#139539, vllm-plugin-FL#326
"""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.needs_flagos

PROGRAM = """
import json, sys, warnings
import torch, torch.distributed as dist
from torch import nn
warnings.simplefilter("ignore")

def model_on(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)

def train(model, device):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step)).to(device)
        model(x).square().mean().backward()
        optimizer.step()
    return optimizer

def full(model):
    return [getattr(p, "full_tensor", lambda p=p: p)().detach().cpu().flatten().tolist() for p in model.parameters()]

def plain(device):
    model = model_on(device)
    train(model, device)
    return full(model)

def run():
{body}

if __name__ == "__main__":
    dist.init_process_group({backend}init_method="file://{path}", rank=0, world_size=1)
    print(json.dumps(run()))
    dist.destroy_process_group()
"""

BODIES = {
    "DDP": """
    model = nn.parallel.DistributedDataParallel(model_on("flagos"))
    train(model, "flagos")
    return full(model)
""",
    "fully_shard": """
    from torch.distributed.fsdp import fully_shard
    model = model_on("flagos")
    mesh = dist.device_mesh.init_device_mesh("flagos", (1,))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    train(model, "flagos")
    assert model[0].weight.device.type == "flagos"
    return full(model)
""",
    "FullyShardedDataParallel": """
    from torch.distributed.fsdp import FullyShardedDataParallel
    model = FullyShardedDataParallel(model_on("flagos"), device_id=torch.device("flagos", 0), use_orig_params=True)
    train(model, "flagos")
    with FullyShardedDataParallel.summon_full_params(model):
        return full(model)
""",
    "tensor parallel": """
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = dist.device_mesh.init_device_mesh("flagos", (1,))
    model = parallelize_module(model_on("flagos"), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(model, "flagos")
    return full(model)
""",
    "distributed checkpoint": """
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard
    mesh = dist.device_mesh.init_device_mesh("flagos", (1,))
    model = fully_shard(model_on("flagos"), mesh=mesh)
    optimizer = train(model, "flagos")
    state, optimizer_state = get_state_dict(model, optimizer)
    checkpoint.save({"model": state, "optimizer": optimizer_state}, checkpoint_id="saved")
    other = fully_shard(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to("flagos"), mesh=mesh)
    again = torch.optim.Adam(other.parameters(), lr=0.1)
    state, optimizer_state = get_state_dict(other, again)
    loaded = {"model": state, "optimizer": optimizer_state}
    checkpoint.load(loaded, checkpoint_id="saved")
    set_state_dict(other, again, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    return full(other)
""",
}


@pytest.mark.parametrize("name", [
    "fully_shard",
    *[pytest.param(name, marks=pytest.mark.full) for name in BODIES if name != "fully_shard"],
])  # fmt: skip
def test_training_gives_the_parameters_of_one_cpu(name: str, run_python, tmp_path) -> None:
    body = BODIES[name].replace("return full", "result = full").rstrip()
    body += '\n    return [result, plain("cpu")]\n'
    if name == "FullyShardedDataParallel":
        body = body.replace("        result = full(model)", "        result = full(model)")
    code = PROGRAM.replace("{body}", body).replace("{backend}", '"gloo", ').replace("{path}", str(tmp_path / "store"))
    done = run_python(code, OMP_NUM_THREADS="1").check()
    found, wanted = json.loads(done.stdout.splitlines()[-1])
    assert found == wanted


def test_a_process_group_without_a_backend_serves_cpu_and_device(run_python, tmp_path) -> None:
    body = """
    results = []
    for device in ("cpu", "flagos"):
        x = torch.full((3,), 2.0, device=device)
        dist.all_reduce(x)
        parts = [torch.empty(3, device=device)]
        dist.all_gather(parts, x)
        results.append([x.tolist(), parts[0].tolist(), x.device.type])
    objects = [None]
    dist.all_gather_object(objects, {"x": 1})
    return [results, objects]
"""
    code = PROGRAM.replace("{body}", body).replace("{backend}", "").replace("{path}", str(tmp_path / "store"))
    results, objects = json.loads(run_python(code, OMP_NUM_THREADS="1").check().stdout.splitlines()[-1])
    assert results == [[[2.0] * 3, [2.0] * 3, "cpu"], [[2.0] * 3, [2.0] * 3, "flagos"]]
    assert objects == [{"x": 1}]
