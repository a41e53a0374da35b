"""Writes the C++ sources that follow from the operators of one torch: the overload table and the unboxed kernels.

Reads two things of the torch it is given, importing neither: the `ATen/ops/*_ops.h` headers (exact C++ signatures) and
torchgen's packaged `native_functions.yaml` (which backends have a kernel, which arguments must share a device).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

# Called once a layer in common models: the signature of each gets an unboxed kernel although
# no other overload may share it. Every other signature that stands alone is served by the boxed kernel.
HOT_OVERLOADS = frozenset(
    {
        "_fused_adam_",
        "_fused_adamw_",
        "_fused_sgd_",
        "_log_softmax",
        "_log_softmax_backward_data",
        "_native_batch_norm_legit",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_softmax",
        "_softmax_backward_data",
        "_thnn_fused_lstm_cell",
        "addmm",
        "argmax",
        "avg_pool2d",
        "avg_pool2d_backward",
        "baddbmm",
        "bernoulli.out",
        "bernoulli_.float",
        "cat",
        "clamp",
        "clone",
        "convolution",
        "convolution_backward",
        "cumsum",
        "embedding",
        "embedding_dense_backward",
        "fill_.Scalar",
        "gather",
        "gelu",
        "gelu_backward",
        "index.Tensor",
        "index_put_",
        "index_select",
        "linalg_vector_norm",
        "masked_fill_.Scalar",
        "max_pool2d_with_indices",
        "max_pool2d_with_indices_backward",
        "mean.dim",
        "native_batch_norm",
        "native_batch_norm_backward",
        "native_dropout",
        "native_group_norm",
        "native_group_norm_backward",
        "native_layer_norm",
        "native_layer_norm_backward",
        "nll_loss_backward",
        "nll_loss_forward",
        "normal_",
        "scatter.src",
        "scatter_add",
        "sort.stable",
        "sum.dim_IntList",
        "threshold_backward",
        "topk",
        "uniform_",
        "upsample_nearest2d",
        "var.correction",
        "where.self",
    }
)

# Composites that choose their path by device type. On a backing tensor they choose as the backing device would, so they
# are routed like kernels although torch gives them none for CPU or CUDA.
ROUTED_COMPOSITES = frozenset(
    {
        "addr_",  # asks whether its input and its output are one object
        "conj_physical_",
        "convolution",
        "convolution_backward",
        "ldexp.Tensor",  # a kernel of its own for float16 on the CPU, since torch 2.13
        "ldexp.out",
        "ldexp_",
        "mode.values",
    }
)

STRUCT = re.compile(r"struct TORCH_API \w+ \{(.*?)\n\};", re.DOTALL)
SCHEMA_STRING = re.compile(r'schema_str[^"]*"([^(]+)\(')
SIGNATURE = re.compile(r"using schema = (.*);")


@dataclass(frozen=True)
class Overload:
    """One ATen overload: `name` as in `add.Tensor`, `signature` as in `at::Tensor (const at::Tensor &, …)`."""

    name: str
    signature: str
    routed: bool  # has a CPU or CUDA kernel, or is a routed composite
    same_device: bool  # every tensor argument must be on one device; else 0-dimensional CPU tensors may mix in


def read_signatures(headers: Path) -> dict[str, str]:
    """Overload name → C++ signature, from the `_ops.h` headers below `headers`."""
    signatures: dict[str, str] = {}
    for path in sorted(headers.glob("*_ops.h")):
        for body in STRUCT.findall(path.read_text()):
            schema, signature = SCHEMA_STRING.search(body), SIGNATURE.search(body)
            if schema is None or signature is None:
                raise SystemExit(
                    f"{path}: an operator struct without schema_str or schema: this torch is laid out anew"
                )
            signatures[schema.group(1).removeprefix("aten::")] = signature.group(1)
    if not signatures:
        raise SystemExit(f"{headers}: no *_ops.h here; --torch must name the folder that holds the torch package")
    return signatures


def read_overloads(root: Path) -> list[Overload]:
    """The overloads that a route can name, sorted by name."""
    sys.path.insert(0, str(root))
    from torchgen.gen import parse_native_yaml
    from torchgen.model import DeviceCheckType, DispatchKey

    native = root / "torchgen/packaged/ATen/native"
    parsed = parse_native_yaml(str(native / "native_functions.yaml"), str(native / "tags.yaml"))
    functions = {str(function.func.name): function for function in parsed.native_functions}
    indices = [parsed.backend_indices[key] for key in (DispatchKey.CPU, DispatchKey.CUDA)]
    overloads = []
    for name, signature in sorted(read_signatures(root / "torch/include/ATen/ops").items()):
        function = functions.get(name)
        if function is None:
            continue
        delegate = functions[str(function.structured_delegate)] if function.structured_delegate else function
        routed = name in ROUTED_COMPOSITES or any(
            index.has_kernel(function) or index.has_kernel(delegate) for index in indices
        )
        if routed or not function.has_composite_implicit_autograd_kernel:
            same_device = function.device_check is not DeviceCheckType.NoCheck
            overloads.append(Overload(name, signature, routed, same_device))
    return overloads


def choose_signatures(overloads: list[Overload], boxed_only: bool) -> list[str]:
    """The signatures that get an unboxed kernel: shared by two overloads or more, or that of a hot one."""
    if boxed_only:
        return []
    uses = Counter(overload.signature for overload in overloads if overload.routed)
    hot = {overload.signature for overload in overloads if overload.name in HOT_OVERLOADS}
    chosen = {signature for signature, count in uses.items() if count > 1} | hot
    # Storage and Stream arguments belong to operators that the device serves itself.
    return sorted(s for s in chosen if "Storage" not in s and "Stream" not in s and not s.startswith("const "))


def write_if_changed(path: Path, text: str) -> None:
    """Writes `text` unless the file holds it already, so that an unchanged torch recompiles nothing."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def write_sources(overloads: list[Overload], signatures: list[str], shards: int, out: Path) -> None:
    """Writes `overload_table.cpp` and `signatures_<k>.cpp` into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    number = {signature: index for index, signature in enumerate(signatures)}
    banner = "// Written by cmake/enumerate_operators.py from the installed torch; not kept in the repository.\n"
    lines = [banner, '#include "backing/overload_table.h"\n', "namespace flagos {\n"]
    lines += [f"c10::KernelFunction signature_{index}(OperatorEntry&);\n" for index in number.values()]
    lines.append("namespace {\nconstexpr CompiledOverload kOverloads[] = {\n")
    for overload in overloads:
        unboxed = overload.routed and overload.signature in number
        factory = f"&signature_{number[overload.signature]}" if unboxed else "nullptr"
        lines.append(f'    {{"{overload.name}", {str(overload.same_device).lower()}, {factory}}},\n')
    composites = "".join(f'    "{name}",\n' for name in sorted(ROUTED_COMPOSITES))
    lines.append(f"}};\nconstexpr const char* kRoutedComposites[] = {{\n{composites}}};\n}}  // namespace\n")
    lines.append("std::span<const CompiledOverload> compiled_overloads() { return kOverloads; }\n")
    lines.append("std::span<const char* const> routed_composites() { return kRoutedComposites; }\n")
    lines.append("}  // namespace flagos\n")
    write_if_changed(out / "overload_table.cpp", "".join(lines))
    for shard in range(shards):
        part = signatures[shard::shards]
        lines = [banner, '#include "backing/unboxed_kernel.h"\n', "namespace flagos {\n"]
        for signature in part:
            index = number[signature]
            lines.append(
                f"c10::KernelFunction signature_{index}(OperatorEntry& entry) {{\n"
                f"  return make_unboxed_kernel<{signature}>(entry);\n}}\n"
            )
        lines.append("}  // namespace flagos\n")
        write_if_changed(out / f"signatures_{shard}.cpp", "".join(lines))


def main() -> int:
    """Command line; see `--help`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=Path, required=True, help="folder that holds the torch and torchgen packages")
    parser.add_argument("--out", type=Path, required=True, help="folder for the sources")
    parser.add_argument("--shards", type=int, default=16, help="how many files the unboxed kernels are split into")
    parser.add_argument(
        "--boxed-only", action="store_true", help="no unboxed kernels: quick to compile, slower to call"
    )
    arguments = parser.parse_args()
    overloads = read_overloads(arguments.torch)
    signatures = choose_signatures(overloads, arguments.boxed_only)
    write_sources(overloads, signatures, arguments.shards, arguments.out)
    routed = [overload for overload in overloads if overload.routed]
    covered = sum(overload.signature in set(signatures) for overload in routed)
    print(f"{len(routed)} overloads, {covered} unboxed by {len(signatures)} signatures in {arguments.shards} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
