"""Routes at run time: overrides, the log, counters, `none`, and refusing the CPU."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, sample

pytestmark = pytest.mark.needs_flagos


def rows_of(extension, overload: str) -> list[dict]:
    return [row for row in extension.route_stats() if row["overload"] == overload]


def test_accelerator_and_backends(extension) -> None:
    assert extension.accelerator_name() == "host"
    by_name = {row["name"]: row for row in extension.backends()}
    assert by_name["host"]["available"]
    assert by_name["host"]["overloads"] > 1000
    assert by_name["none"]["available"]
    for row in by_name.values():
        assert row["available"] or row["why"], row


def test_every_routable_overload_has_a_route(extension) -> None:
    routes = {row["overload"]: row for row in extension.routes()}
    assert len(routes) > 1500
    assert routes["add.Tensor"]["route"] == "host > none"
    boxed_only_build = not any(row["unboxed"] for row in routes.values())
    assert routes["add.Tensor"]["unboxed"] or boxed_only_build
    assert ":" in routes["add.Tensor"]["origin"] or routes["add.Tensor"]["origin"] == "default"
    assert len(routes) == len(extension.routes())


def test_device_overloads_are_not_routable(extension) -> None:
    served = {row["overload"]: row["kind"] for row in extension.device_overloads()}
    assert {
        "empty.memory_format",
        "empty_strided",
        "as_strided",
        "view",
        "resize_",
        "_copy_from",
        "_local_scalar_dense",
    } <= served.keys()
    assert all(served.values())
    assert not served.keys() & {row["overload"] for row in extension.routes()}


def test_override_and_its_origin(extension, device: str) -> None:
    extension.set_route("nonzero", "none")
    assert {row["overload"]: row["route"] for row in extension.routes()}["nonzero"] == "none"
    x = sample(8).to(device)
    extension.reset_route_stats()
    x.nonzero()
    (row,) = rows_of(extension, "nonzero")
    assert row["backend"] == "none"
    assert row["calls"] == 1
    extension.clear_route_overrides()
    x.nonzero()
    assert {row["backend"] for row in rows_of(extension, "nonzero")} == {"none", "host"}


@pytest.mark.parametrize(("overload", "chain", "text"), [
    ("no_such_operator", "none", "no_such_operator"),
    ("add.Tensr", "none", "add.Tensor"),
    ("abs", "no_such_backend", "no_such_backend"),
    ("abs", "hots", "host"),
    ("abs", "", "abs"),
    ("abs", "cuda", "cuda"),
    ("empty.memory_format", "none", "served by the device"),
])  # fmt: skip
def test_bad_overrides_are_refused(overload: str, chain: str, text: str, extension) -> None:
    before = extension.routes()
    with pytest.raises((RuntimeError, ValueError), match=text):
        extension.set_route(overload, chain)
    assert extension.routes() == before


def test_round_trip_counts_calls_and_bytes(extension, device: str) -> None:
    """nonzero has no composite in PyTorch, so `none` must go to the CPU and back."""
    extension.set_route("nonzero", "none")
    x = torch.tensor([0.0, 1.0, 2.0, 0.0]).to(device)
    extension.reset_route_stats()
    for _ in range(3):
        result = x.nonzero()
    assert result.device.type == device
    assert result.flatten().tolist() == [1, 2]
    rows = [row for row in rows_of(extension, "nonzero") if row["backend"] == "none"]
    assert sum(row["calls"] for row in rows) == 3
    assert {row["reason"] for row in rows} == {"round trip"}
    assert sum(row["bytes_to_host"] for row in rows) == 3 * 4 * 4
    assert sum(row["bytes_from_host"] for row in rows) == 3 * 2 * 8
    assert {row["dtypes"] for row in rows} == {"f32"}


#: Operators of every kind; each must give the CPU's bits when its route is `none`.
NONE_CASES = {
    "nonzero": lambda x: x.nonzero(),
    "abs": lambda x: x.abs(),
    "abs_": lambda x: x.abs_(),
    "abs.out": lambda x: torch.abs(x, out=torch.empty(0, device=x.device)),
    "add.Tensor": lambda x: x + x,
    "add_.Tensor": lambda x: x.add_(x),
    "add.out": lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)),
    "mm": lambda x: x @ x.t(),
    "addmm.out": lambda x: torch.addmm(x[:, :4], x[:, :4], x[:, :4]),
    "sort": lambda x: x.sort(),
    "sort.stable": lambda x: x.sort(stable=True),
    "topk": lambda x: x.topk(2),
    "index.Tensor": lambda x: x[torch.tensor([1, 0])],
    "index_put_": lambda x: x.index_put_((torch.tensor([1]),), torch.tensor(5.0)),
    "_index_put_impl_": lambda x: x.index_put_((torch.tensor([1]),), torch.tensor(5.0)),
    "cat": lambda x: torch.cat([x, x]),
    "_foreach_add_.Scalar": lambda x: torch._foreach_add_([x, x.clone()], 1.0),
    "masked_select": lambda x: x.masked_select(x > 0),
    "bernoulli_.float": lambda x: torch.empty_like(x).bernoulli_(0.5),
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "randperm": lambda x: torch.randperm(9, device=x.device),
    "arange.start_out": lambda x: torch.arange(9, device=x.device),
    "convolution": lambda x: torch.nn.functional.conv1d(x[None], torch.ones(2, 4, 2, device=x.device)),
    "_softmax": lambda x: x.softmax(1),
    "_linalg_svd": lambda x: torch.linalg.svdvals(x),
    "fill_.Scalar": lambda x: x.fill_(3),
    "bincount": lambda x: torch.bincount((x > 0).long().flatten()),
}


@pytest.mark.parametrize("overload", NONE_CASES)
def test_none_gives_the_same_bits(overload: str, extension, device: str) -> None:
    if overload not in {row["overload"] for row in extension.routes()}:
        pytest.skip(f"{overload} is served by the device or has no route")
    extension.set_route(overload, "none")
    assert_same(NONE_CASES[overload], sample(4, 6), device=device)


def test_none_decomposes_within_rounding(extension, device: str) -> None:
    """torch composes layer_norm of other operators than the CPU's kernel, so the last bits may differ."""
    extension.set_route("native_layer_norm", "none")
    x = sample(4, 6)
    found = torch.nn.functional.layer_norm(x.to(device), (6,)).cpu()
    torch.testing.assert_close(found, torch.nn.functional.layer_norm(x, (6,)))
    rows = rows_of(extension, "native_layer_norm")
    assert {row["reason"] for row in rows if row["backend"] == "none"} == {"decomposition"}


def test_none_keeps_memory_and_metadata(extension, device: str) -> None:
    extension.set_route("nonzero.out", "none")
    out = torch.empty(0, dtype=torch.int64, device=device)
    assert torch.nonzero(torch.tensor([0, 1, 1]).to(device), out=out) is out
    assert out.flatten().tolist() == [1, 2]
    extension.set_route("index_put_", "none")
    extension.set_route("_index_put_impl_", "none")
    base = sample(4, 6).to(device)
    view = base[1:3].t()
    pointer, version = base.data_ptr(), base._version
    view.index_put_((torch.tensor([0]),), torch.tensor(9.0))
    assert base.data_ptr() == pointer
    assert base._version > version
    expected = sample(4, 6)
    expected[1:3, 0] = 9.0
    assert torch.equal(base.cpu(), expected)


def test_gradients_through_none(extension, device: str) -> None:
    for overload in ("mm", "tanh", "tanh_backward", "sum"):
        extension.set_route(overload, "none")
    assert_same(lambda x: torch.tanh(x @ x), sample(3, 3, requires_grad=True), device=device, backward=True)


def test_random_draw_through_none_leaves_the_cpu_generator(extension, device: str) -> None:
    extension.set_route("normal_", "none")
    torch.manual_seed(3)
    before = torch.default_generator.get_state()
    first = torch.empty(9, device=device).normal_()
    second = torch.empty(9, device=device).normal_()
    assert torch.equal(torch.default_generator.get_state(), before)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(torch.empty(9, device=device).normal_(), first)


def test_log_in_this_process(extension, device: str, capfd) -> None:
    x = sample(3).to(device)
    extension.set_route("nonzero", "none")
    extension.set_log("dispatch,fallback")
    x + x
    x.nonzero()
    extension.set_log("")
    x + x
    lines = capfd.readouterr().err.splitlines()
    assert lines.count("[flagos dispatch] add.Tensor -> host") == 1
    assert "[flagos dispatch] nonzero -> none" in lines
    assert "[flagos cpu_fallback] aten::nonzero" in lines


def test_log_of_the_device(extension, device: str, capfd) -> None:
    extension.set_log("device")
    torch.empty(3, device=device).view(3, 1)
    extension.set_log("")
    text = capfd.readouterr().err
    assert "empty.memory_format" in text
    assert "view" in text


def test_unknown_log_flag(extension) -> None:
    with pytest.raises((RuntimeError, ValueError), match=r"dispatchs.*dispatch"):
        extension.set_log("dispatchs")


def test_counters_by_dtype_and_reset(extension, device: str) -> None:
    extension.reset_route_stats()
    for dtype in (torch.float32, torch.int64, torch.int64):
        x = sample(3, dtype=dtype).to(device)
        x * x
    rows = rows_of(extension, "mul.Tensor")
    assert {(row["dtypes"], row["calls"]) for row in rows} == {("f32,f32", 1), ("i64,i64", 2)}
    assert {row["reason"] for row in rows} == {"routed"}
    assert {row["seconds"] for row in rows} == {None}
    extension.reset_route_stats()
    assert rows_of(extension, "mul.Tensor") == []


def test_counters_of_many_threads_add_up(extension, device: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    x = sample(3).to(device)
    extension.reset_route_stats()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: [x + x for _ in range(250)], range(8)))
    assert sum(row["calls"] for row in rows_of(extension, "add.Tensor")) == 2000


def test_time_is_kept_when_asked(extension, device: str) -> None:
    extension.set_timing(True)
    extension.reset_route_stats()
    x = sample(200, 200).to(device)
    x @ x
    (row,) = rows_of(extension, "mm")
    assert 0 < row["seconds"] < 5


def test_public_route_stats(extension, device: str) -> None:
    x = sample(3).to(device)
    extension.reset_route_stats()
    x + x
    assert any(row["overload"] == "add.Tensor" for row in torch.flagos.route_stats())


def test_routes_may_change_while_other_threads_run(extension, device: str) -> None:
    import threading

    x, expected, stop, wrong = sample(16).to(device), sample(16) + 1, threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            if not torch.equal((x + 1).cpu(), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        extension.set_route("add.Tensor", "none")
        extension.set_route("add.Tensor", "host > none")
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_refused_trip_names_operator_and_setting(run_python) -> None:
    code = """
        import torch
        x = torch.ones(3, device="flagos")
        print((x + x).sum().item())
        x.nonzero()
    """
    done = run_python(code, FLAGOS_FALLBACK="error", FLAGOS_OP_nonzero="none")
    assert done.stdout.strip() == "6.0"
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    assert "nonzero" in done.stderr
    assert "FLAGOS_FALLBACK" in done.stderr, last


def test_override_by_environment(run_python) -> None:
    code = """
        import torch
        from torch_fl import _C
        routes = {row["overload"]: row for row in _C.routes()}
        print(routes["sum.dim_IntList"]["route"], "|", routes["sum.dim_IntList"]["origin"])
    """
    output = run_python(code, FLAGOS_OP_sum__dim_IntList="none").check().stdout.strip()
    assert output == "none | FLAGOS_OP_sum__dim_IntList"


def test_settings_tell_where_they_come_from(run_python) -> None:
    code = """
        from torch_fl import _C
        for row in _C.settings():
            print(row["name"], row["value"], row["origin"], bool(row["help"]), sep="|")
    """
    lines = run_python(code, FLAGOS_HOST_DEVICES="3").check().stdout.splitlines()
    rows = {line.split("|")[0]: line.split("|")[1:] for line in lines}
    assert rows["FLAGOS_HOST_DEVICES"] == ["3", "environment", "True"]
    assert rows["FLAGOS_FALLBACK"][1] == "default"
    assert {
        "FLAGOS_ACCELERATOR",
        "FLAGOS_HOST_MEMORY",
        "FLAGOS_BACKEND_CONFIG",
        "FLAGOS_LOG",
        "FLAGOS_STATS",
        "FLAGOS_STRICT_ROUTES",
    } <= rows.keys()
    assert all(help_there == "True" for _, _, help_there in rows.values())
