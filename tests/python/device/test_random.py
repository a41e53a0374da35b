"""Random numbers: seeds, generators and saved states reach every random operator, in all its spellings."""

from __future__ import annotations

import pytest
import torch
from parity import assert_equal, difference, tensors_in

pytestmark = pytest.mark.contract("random")

#: Every way to draw; each takes a place and keyword arguments that may hold `generator`.
DRAWS = {
    "rand": lambda d, **k: torch.rand(50, device=d, **k),
    "rand out": lambda d, **k: torch.rand(50, out=torch.empty(50, device=d), **k),
    "randn": lambda d, **k: torch.randn(50, device=d, **k),
    "randn float64": lambda d, **k: torch.randn(7, 9, device=d, dtype=torch.float64, **k),
    "randn bfloat16": lambda d, **k: torch.randn(50, device=d, dtype=torch.bfloat16, **k),
    "randn complex": lambda d, **k: torch.randn(20, device=d, dtype=torch.complex64, **k),
    "randn out": lambda d, **k: torch.randn(50, out=torch.empty(50, device=d), **k),
    "randint": lambda d, **k: torch.randint(100, (50,), device=d, **k),
    "randint low": lambda d, **k: torch.randint(-50, 50, (50,), device=d, dtype=torch.int32, **k),
    "randint out": lambda d, **k: torch.randint(100, (50,), out=torch.empty(50, dtype=torch.int64, device=d), **k),
    "randperm": lambda d, **k: torch.randperm(40, device=d, **k),
    "randperm out": lambda d, **k: torch.randperm(40, out=torch.empty(40, dtype=torch.int64, device=d), **k),
    "normal": lambda d, **k: torch.normal(2.0, 0.5, (50,), device=d, **k),
    "normal tensor mean": lambda d, **k: torch.normal(torch.zeros(50, device=d), 1.5, **k),
    "normal tensor std": lambda d, **k: torch.normal(0.0, torch.ones(50, device=d), **k),
    "normal tensors": lambda d, **k: torch.normal(torch.zeros(50, device=d), torch.ones(50, device=d), **k),
    "normal_": lambda d, **k: torch.empty(50, device=d).normal_(1, 2, **k),
    "uniform_": lambda d, **k: torch.empty(50, device=d).uniform_(-1, 1, **k),
    "exponential_": lambda d, **k: torch.empty(50, device=d).exponential_(2.0, **k),
    "geometric_": lambda d, **k: torch.empty(50, device=d).geometric_(0.3, **k),
    "cauchy_": lambda d, **k: torch.empty(50, device=d).cauchy_(**k),
    "log_normal_": lambda d, **k: torch.empty(50, device=d).log_normal_(**k),
    "random_": lambda d, **k: torch.empty(50, dtype=torch.int64, device=d).random_(**k),
    "random_ to": lambda d, **k: torch.empty(50, device=d).random_(1000, **k),
    "random_ from to": lambda d, **k: torch.empty(50, dtype=torch.int32, device=d).random_(-5, 500, **k),
    "bernoulli": lambda d, **k: torch.bernoulli(torch.full((200,), 0.5, device=d), **k),
    "bernoulli out": lambda d, **k: torch.bernoulli(
        torch.full((200,), 0.5, device=d), out=torch.empty(200, device=d), **k
    ),
    "bernoulli_ number": lambda d, **k: torch.empty(200, device=d).bernoulli_(0.5, **k),
    "bernoulli_ tensor": lambda d, **k: torch.empty(200, device=d).bernoulli_(torch.full((200,), 0.5, device=d), **k),
    "multinomial": lambda d, **k: torch.multinomial(torch.ones(80, device=d), 30, **k),
    "multinomial with replacement": lambda d, **k: torch.multinomial(torch.ones(9, device=d), 60, True, **k),
    "poisson": lambda d, **k: torch.poisson(torch.full((100,), 4.0, device=d), **k),
    "binomial": lambda d, **k: torch.binomial(
        torch.full((100,), 9.0, device=d), torch.full((100,), 0.5, device=d), **k
    ),
}

#: Those that take no generator in Python.
DEFAULT_ONLY = {
    "rand_like": lambda d: torch.rand_like(torch.empty(30, device=d)),
    "randn_like": lambda d: torch.randn_like(torch.empty(30, 2, device=d)),
    "randint_like": lambda d: torch.randint_like(torch.empty(30, device=d), 100),
    "randint_like low": lambda d: torch.randint_like(torch.empty(30, device=d), -9, 100),
    "dropout": lambda d: torch.nn.functional.dropout(torch.ones(200, device=d), 0.5),
    "native_dropout": lambda d: torch.native_dropout(torch.ones(200, device=d), 0.5, True),
    "alpha_dropout": lambda d: torch.nn.functional.alpha_dropout(torch.ones(200, device=d), 0.5, True),
    "feature_dropout": lambda d: torch.nn.functional.dropout2d(torch.ones(1, 200, 2, 2, device=d), 0.5),
    "rrelu": lambda d: torch.nn.functional.rrelu(-torch.ones(100, device=d), training=True),
    "gumbel_softmax": lambda d: torch.nn.functional.gumbel_softmax(torch.zeros(20, device=d)),
    "kaiming": lambda d: torch.nn.init.kaiming_uniform_(torch.empty(6, 5, device=d)),
    "trunc_normal": lambda d: torch.nn.init.trunc_normal_(torch.empty(50, device=d)),
    "distribution": lambda d: torch.distributions.Gamma(torch.full((20,), 2.0, device=d), 1.0).sample(),
    "dirichlet": lambda d: torch.distributions.Dirichlet(torch.full((20,), 2.0, device=d)).sample(),
}
ALL = DEFAULT_ONLY | DRAWS


def draw(name: str, seed: int, device: str):
    torch.manual_seed(seed)
    return ALL[name](device)


@pytest.mark.parametrize("name", ALL)
def test_seed_decides_the_draw(name: str, device: str) -> None:
    first = draw(name, 5, device)
    assert not difference(tensors_in(draw(name, 5, device)), [t.cpu() for t in tensors_in(first)], device=device)
    assert difference(tensors_in(draw(name, 6, device)), [t.cpu() for t in tensors_in(first)], device=device)


@pytest.mark.parametrize("name", ALL)
def test_same_numbers_as_the_cpu(name: str, device: str) -> None:
    assert_equal(draw(name, 5, device), draw(name, 5, "cpu"), device)


@pytest.mark.parametrize("name", ALL)
def test_consecutive_draws_differ_and_replay(name: str, device: str) -> None:
    torch.manual_seed(9)
    first, second = ALL[name](device), ALL[name](device)
    assert difference(tensors_in(first), [t.cpu() for t in tensors_in(second)], device=device)
    torch.manual_seed(9)
    assert_equal((ALL[name](device), ALL[name](device)), _on_cpu((first, second)), device)


def _on_cpu(value):
    from parity import map_tensors

    return map_tensors(lambda tensor: tensor.cpu(), value)


@pytest.mark.parametrize("name", DRAWS)
def test_explicit_generator(name: str, device: str) -> None:
    torch.manual_seed(3)
    default_state = _device_state(device)
    first = DRAWS[name](device, generator=torch.Generator(device).manual_seed(77))
    assert torch.equal(_device_state(device), default_state), "the default generator moved"
    assert_equal(first, DRAWS[name]("cpu", generator=torch.Generator().manual_seed(77)), device)


def _device_state(device: str) -> torch.Tensor:
    return torch.get_rng_state() if device == "cpu" else torch.flagos.get_rng_state()


@pytest.mark.needs_flagos
@pytest.mark.parametrize("name", ALL)
def test_device_draw_leaves_the_cpu_generator_alone(name: str, device: str) -> None:
    torch.manual_seed(4)
    before = torch.default_generator.get_state()
    ALL[name](device)
    assert torch.equal(torch.default_generator.get_state(), before)
    ALL[name]("cpu")
    state = torch.flagos.get_rng_state()
    ALL[name]("cpu")
    assert torch.equal(torch.flagos.get_rng_state(), state)


@pytest.mark.needs_flagos
@pytest.mark.parametrize(
    "name", ["rand", "randn", "randint", "randperm", "normal_", "bernoulli_ number", "multinomial"]
)
def test_generator_of_another_device_is_refused(name: str, device: str) -> None:
    with pytest.raises(RuntimeError, match=r"(?i)generator"):
        DRAWS[name]("cpu", generator=torch.Generator(device))
    with pytest.raises(RuntimeError, match=r"(?i)generator"):
        DRAWS[name](device, generator=torch.Generator("cpu"))


def test_mixed_sequence_replays_from_a_saved_state(device: str) -> None:
    def sequence():
        return [
            ALL[name](device) for name in ("randn", "native_dropout", "randint", "bernoulli", "multinomial", "normal_")
        ]

    torch.manual_seed(12)
    torch.rand(3, device=device)
    state = _device_state(device)
    first = sequence()
    torch.set_rng_state(state) if device == "cpu" else torch.flagos.set_rng_state(state)
    assert_equal(sequence(), _on_cpu(first), device)


def test_generator_state_round_trip(device: str) -> None:
    generator = torch.Generator(device).manual_seed(1)
    assert generator.device.type == device
    assert generator.initial_seed() == 1
    torch.rand(5, device=device, generator=generator)
    state = generator.get_state()
    assert state.device.type == "cpu"
    assert state.dtype == torch.uint8
    first = torch.rand(5, device=device, generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.rand(5, device=device, generator=generator).cpu(), first.cpu())
    copy = generator.clone_state()
    assert torch.equal(
        torch.rand(5, device=device, generator=copy).cpu(), torch.rand(5, device=device, generator=generator).cpu()
    )
    assert isinstance(generator.seed(), int)


@pytest.mark.needs_flagos
def test_module_functions(device: str, second_device: str) -> None:
    torch.manual_seed(31)
    assert torch.flagos.initial_seed() == 31
    torch.flagos.manual_seed(32)
    assert torch.flagos.initial_seed() == 32
    assert torch.initial_seed() == 31
    torch.flagos.manual_seed_all(33)
    assert [generator.initial_seed() for generator in torch.flagos.default_generators] == [
        33
    ] * torch.flagos.device_count()
    torch.flagos.seed()
    torch.flagos.seed_all()
    states = torch.flagos.get_rng_state_all()
    assert len(states) == torch.flagos.device_count()
    values = torch.rand(3, device=device), torch.rand(3, device=second_device)
    torch.flagos.set_rng_state_all(states)
    assert torch.equal(torch.rand(3, device=device), values[0])
    assert torch.equal(torch.rand(3, device=second_device), values[1])


@pytest.mark.needs_flagos
def test_default_generators_is_a_sequence(device: str) -> None:
    generators = torch.flagos.default_generators
    count = torch.flagos.device_count()
    assert len(generators) == count == len(list(generators)) == len(generators[:])
    assert [generator.device for generator in generators] == [torch.device(device, i) for i in range(count)]
    assert generators[-1].device.index == count - 1
    with pytest.raises(IndexError):
        generators[count]


@pytest.mark.needs_flagos
def test_devices_are_independent(device: str, second_device: str) -> None:
    torch.flagos.manual_seed_all(8)
    first = torch.rand(4, device=f"{device}:0")
    torch.rand(100, device=second_device)
    torch.multinomial(torch.ones(9, device=second_device), 3)
    following = torch.rand(4, device=f"{device}:0")
    torch.flagos.manual_seed_all(8)
    assert torch.equal(torch.rand(4, device=f"{device}:0"), first)
    assert torch.equal(torch.rand(4, device=f"{device}:0"), following)
    torch.flagos.manual_seed_all(8)
    assert torch.equal(torch.rand(4, device=second_device).cpu(), first.cpu())
    with torch.flagos.device(1):
        torch.flagos.manual_seed(55)
    assert torch.flagos.default_generators[1].initial_seed() == 55
    assert torch.flagos.default_generators[0].initial_seed() == 8


@pytest.mark.needs_flagos
def test_fork_rng_restores_the_device(device: str) -> None:
    torch.manual_seed(2)
    state = torch.flagos.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type=device):
        torch.rand(10, device=device)
        assert not torch.equal(torch.flagos.get_rng_state(), state)
    assert torch.equal(torch.flagos.get_rng_state(), state)


@pytest.mark.needs_flagos
def test_no_warning_that_the_seed_has_no_effect(recwarn, device: str) -> None:
    torch.manual_seed(2)
    torch.flagos.manual_seed_all(3)
    assert not [str(warning.message) for warning in recwarn]


NUMBER = 40_000
#: draw of NUMBER values, mean and variance by the distribution's definition
MOMENTS = {
    "rand": (lambda d: torch.rand(NUMBER, device=d), 0.5, 1 / 12),
    "randn": (lambda d: torch.randn(NUMBER, device=d), 0.0, 1.0),
    "normal": (lambda d: torch.normal(3.0, 2.0, (NUMBER,), device=d), 3.0, 4.0),
    "uniform_": (lambda d: torch.empty(NUMBER, device=d).uniform_(-3, 1), -1.0, 16 / 12),
    "exponential_": (lambda d: torch.empty(NUMBER, device=d).exponential_(2.0), 0.5, 0.25),
    "randint": (lambda d: torch.randint(0, 11, (NUMBER,), device=d), 5.0, 10.0),
    "poisson": (lambda d: torch.poisson(torch.full((NUMBER,), 4.0, device=d)), 4.0, 4.0),
    "bernoulli": (lambda d: torch.bernoulli(torch.full((NUMBER,), 0.2, device=d)), 0.2, 0.16),
    "multinomial": (lambda d: torch.multinomial(torch.tensor([1.0, 3.0], device=d), NUMBER, True), 0.75, 0.1875),
    "geometric_": (lambda d: torch.empty(NUMBER, device=d).geometric_(0.5), 2.0, 2.0),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name: str, device: str) -> None:
    torch.manual_seed(0)
    draw, mean, variance = MOMENTS[name]
    values = draw(device).double()
    # Six standard errors of the mean; the variance within a tenth.
    assert abs(values.mean().item() - mean) < 6 * (variance / NUMBER) ** 0.5
    assert abs(values.var().item() - variance) < 0.1 * variance


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32], ids=str)
def test_randperm_is_a_permutation(dtype: torch.dtype, explicit: bool, device: str) -> None:
    options = {"generator": torch.Generator(device).manual_seed(4)} if explicit else {}
    for size in (0, 1, 500, 40_000):
        order = torch.randperm(size, device=device, dtype=dtype, **options)
        assert order.dtype == dtype
        assert torch.equal(order.cpu().sort().values.to(torch.int64), torch.arange(size))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int8], ids=str)
def test_integer_ranges(dtype: torch.dtype, device: str) -> None:
    values = torch.randint(3, 9, (4000,), device=device, dtype=dtype)
    assert (values.dtype, values.min().item(), values.max().item()) == (dtype, 3, 8)
    full = torch.empty(4000, dtype=dtype, device=device).random_()
    assert full.min().item() >= 0
    assert full.max().item() > torch.iinfo(dtype).max * 0.9
    with pytest.raises(RuntimeError, match=r"from|low|range|expects"):
        torch.randint(5, 5, (3,), device=device)


def test_like_keeps_shape_dtype_and_layout(device: str) -> None:
    source = torch.empty(2, 3, 4, 5, device=device, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    for drawn in (torch.rand_like(source), torch.randn_like(source), torch.randint_like(source, 9)):
        assert (drawn.shape, drawn.dtype, drawn.stride(), drawn.device) == (
            source.shape,
            source.dtype,
            source.stride(),
            source.device,
        )


@pytest.mark.parametrize("p", [0.0, 0.25, 0.9, 1.0])
def test_dropout_mask_and_scale(p: float, device: str) -> None:
    x = torch.full((10_000,), 3.0, device=device)
    dropped = torch.nn.functional.dropout(x, p).cpu()
    kept = dropped[dropped != 0]
    if p < 1:
        torch.testing.assert_close(kept, torch.full_like(kept, 3 / (1 - p)))
    assert abs(kept.numel() / 10_000 - (1 - p)) < 0.03


def test_dropout_forward_and_backward_share_the_mask(device: str) -> None:
    x = torch.ones(1000, device=device, requires_grad=True)
    for run in (lambda x: torch.nn.functional.dropout(x, 0.4), lambda x: torch.native_dropout(x, 0.4, True)[0]):
        x.grad = None
        output = run(x)
        output.backward(torch.ones_like(output))
        assert torch.equal(x.grad.cpu(), output.detach().cpu())


def test_bernoulli_of_certainty(device: str) -> None:
    p = torch.tensor([0.0, 1.0], device=device).repeat(50)
    assert torch.equal(torch.bernoulli(p).cpu(), p.cpu())
