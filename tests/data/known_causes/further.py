"""Further traces with known causes, on other networks, devices and sizes than those of generate.py.

  python further.py [OUT]      writes each scenario into OUT/ID (default: next to this file)
"""

import sys

from generate import HERE, Suite, without
from neuron_programs import neuron
from torch_programs import decode, experts, pipeline
from torch_rank import Config
from xspace_programs import V5P, jax_cpu, jax_gpu, tpu


def further_suite():
    s, c = Suite(), Config
    a = c(seed=103, gpu="b200", input_us=9000, input_name="", stack=True)
    s.torch("b200_input_without_label", "The batch is waited for in Python frames of torch.utils.data; no label says so.", "input_bound",
            a, a.but(input_us=60), never=without("input_bound", "host_bound"), where=["dataloader"])
    a = c(seed=105, net="resnet", layers=4, batch=128, gpu="a100", h2d=200_000_000, pinned=False)
    s.torch("a100_pageable_copy", "ResNet: 200 MB of each batch are copied from pageable memory.", "exposed_copy", a, a.but(pinned=True),
            never=without("exposed_copy"), where=["pageable", "HtoD"])
    a = c(seed=108, net="resnet", layers=8, batch=2, gpu="h100", host_us=6)
    s.torch("h100_resnet_of_two_images", "ResNet with a batch of two: kernels are shorter than their launches.", "launch_bound", a, a.but(graph=True),
            also=("small_kernels",), never=without("launch_bound", "host_bound"))
    a = c(seed=110, gpu="a100", stack=True, python_us=9000, python_name="augment.py(12): mixup")
    s.torch("a100_mixup_between_layers", "A Python function of 9 ms runs between the launches of the layers.", "host_bound", a, a.but(python_us=0),
            never=without("host_bound", "launch_bound"), where=["mixup", "augment.py"])
    a = c(seed=115, item_end=True, tail_us=5000, host_us=6, stack=True, gpu="a100", tokens=2048)
    s.torch("a100_item_with_stacks", "loss.item() drains the queue before 5 ms of Python.", "synchronization", a, a.but(item_end=False), also=("host_bound",),
            never=without("synchronization", "host_bound"), where=["aten::item", "log_loss", "_local_scalar_dense"])
    a = c(seed=119, compile_in={i: 30_000 for i in range(9)}, stack=True)
    s.torch("torch_compiles_every_step", "Every step compiles for 30 ms.", "compilation", a, a.but(compile_in={}), never=without("compilation"))
    d = c(seed=122, ranks=4, layers=2, steps=6, comm="overlap", grad_mb=40, gpu="mi300", shift={1: 3000.0, 2: -2500.0, 3: 12000.0})
    s.torch("mi300_straggler_with_skewed_clocks", "Rank 3 computes 1.5 times as long, and the clocks of the hosts differ by up to 14 ms.", "straggler",
            d.but(slow_compute={3: 1.5}), d, also=("load_imbalance",), never=without("straggler"), where=["rank 3"])
    d = c(seed=123, ranks=4, net="mlp", layers=6, tokens=8192, hidden=4096, steps=6, comm="end", buckets=1, grad_mb=800, bus=200.0, gpu="a100")
    s.torch("a100_all_reduce_at_the_end", "One all-reduce of 800 MB after the backward pass.", "exposed_communication", d, d.but(comm="overlap", buckets=12),
            never=without("exposed_communication") + ("load_imbalance",), where=["allreduce", "all-reduce", "all_reduce"])
    h = c(seed=125, ranks=8, steps=6, layers=2, tokens=4096, hidden=2048, gpu="mi300")
    s.torch("mi300_hot_experts", "Eight ranks with experts; a hot expert moves from rank to rank.", "load_imbalance", h,
            program=lambda r: experts(r, lambda i, layer, n: 2.6 if (3 * i + 5 * layer) % 8 == n else 0.77, us=1500), fixed_program=lambda r: experts(r, us=1500),
            never=without("straggler"), where=["expert", "moe", "all_to_all", "all-to-all", "alltoall"])
    f = c(seed=127, net="mlp", layers=6, tokens=2048, hidden=3072, dtype="fp32", gpu="a100")
    s.torch("a100_fp32_mlp", "Products in 32-bit precision on a device with TF32 units.", "low_precision_opportunity", f, f.but(dtype="tf32"),
            never=without("low_precision_opportunity"), where=["aten::mm", "aten::addmm"])
    f = c(seed=130, attention="math", tokens=8192, seq=2048, hidden=1024, heads=16, layers=3)
    s.torch("h100_attention_by_softmax", "Attention as products, mask, softmax and dropout; without: one fused kernel.", "memory_bound_kernels",
            f, f.but(attention="flash"), never=without(), where=["softmax", "bmm", "attention"])
    f = c(seed=132, net="mlp", tokens=32768, hidden=1024, layers=4, chain=True, gpu="mi300")
    s.torch("mi300_elementwise_chain", "GELU as eight element-wise operators.", "memory_bound_kernels", f, f.but(chain=False), never=without(),
            where=["aten::mul", "aten::tanh", "aten::pow", "aten::add"])
    f = c(seed=133, optimizer="single", tensors=60, net="resnet", layers=3, batch=4, gpu="a100", steps=5)
    s.torch("a100_optimizer_loops", "The optimizer updates one tensor after the other.", "small_kernels", f, f.but(optimizer="fused"), also=("launch_bound",),
            never=without("launch_bound", "host_bound"), where=["Optimizer.step", "AdamW"], tolerance=0.35)
    f = c(seed=135, cpu_op=("aten::nonzero", 1_000_000, 2500), stack=True, gpu="h100", tokens=2048)
    s.torch("h100_nonzero_on_host", "aten::nonzero runs on the CPU, with copies there and back.", "misplaced_op", f, f.but(cpu_op=None),
            never=without("synchronization", "host_bound"), where=["aten::nonzero"])
    s.torch("mi300_healthy", "Nothing to fix.", "device_bound", c(seed=140, gpu="mi300"), also=("none",), never=without() + ("small_kernels", "memory_bound_kernels"))
    s.torch("h100_graph_replay", "A captured graph, and a busy device.", "device_bound", c(seed=141, graph=True, gpu="h100"), also=("none",),
            never=without() + ("small_kernels", "memory_bound_kernels"))
    s.torch("a100_pipeline_of_four", "Four devices of one process take turns.", "pipeline_bubble", c(seed=150, steps=7, gpu="a100"),
            program=lambda r: pipeline(r, devices=4, us=1500, parts=3), fixed_program=lambda r: pipeline(r, devices=4, micro=16, us=1500, parts=3), never=without())
    s.torch("h100_decode_of_four", "Decoding four rows in a graph.", "memory_bound_kernels", c(seed=151, tokens=4, seq=4, hidden=2048, layers=8, steps=8), program=decode,
            also=("device_bound", "small_kernels"), never=("input_bound", "host_bound", "exposed_copy", "idle_unknown", "synchronization"))
    a = c(seed=155, steps=9, input_in={6: 120_000})
    s.torch("torch_one_slow_batch", "One batch of nine takes 120 ms.", "outlier_steps", a, a.but(input_in={}), also=("input_bound",), never=without("input_bound"), where=["dataloader"])
    b = c(seed=154, steps=10, gpu="h100", extra_in={5: {"before:validate": 120_000}})
    s.torch("h100_validation_in_one_step", "One step validates for 120 ms.", "outlier_steps", b, c(seed=154, steps=10), never=without("host_bound"), where=["validate"])
    h = c(seed=158, tokens=1024, overhead=150, gpu="a100")
    s.torch("a100_profiler_overhead", "The profiler takes 150 us of each launch.", "profiler_overhead", h, h.but(overhead=0), never=without("host_bound", "launch_bound"),
            where=["Instrumentation", "profiler"])
    s.torch("a100_outputs_are_kept", "Each step keeps 64 MiB.", "memory_growth", c(seed=159, memory=True, leak=64 * 2**20, gpu="a100", stack=True,
            leak_names=("history.append", "keep_outputs", "aten::stack")), never=without() + ("fragmentation",), where=["aten::stack", "keep_outputs"])
    ops = [("fusion.1", "fusion", 500, 3.0e11, 2e8, "dot_general"), ("fusion.3", "fusion", 310, 1.5e8, 2.6e8, "mul"), ("convolution.4", "convolution", 700, 2.6e11, 1.2e8, "conv")]
    s.other("v5p_infeed", "jax-tpu", "Two chips wait 2.5 ms of each step for their infeed.", "input_bound", lambda p, write: tpu(p, chip=V5P, chips=2, operations=ops, infeed=2500, write=write, seed=5),
            lambda p, write: tpu(p, chip=V5P, chips=2, operations=ops, infeed=30, write=write, seed=5), never=without("input_bound"), where=["infeed"])
    s.other("v5p_load_batch", "jax-tpu", "The host loads for 2.9 ms before each program.", "input_bound", lambda p, write: tpu(p, chip=V5P, operations=ops, load=2900, write=write, seed=6),
            lambda p, write: tpu(p, chip=V5P, operations=ops, load=90, write=write, seed=6), never=without("input_bound"), where=["load_batch"])
    s.other("jax_cpu_compiles_every_step", "jax-cpu", "Every step compiles for 5 ms.", "compilation", lambda p, write: jax_cpu(p, compile_us=5000, write=write, seed=8),
            lambda p, write: jax_cpu(p, write=write, seed=8), steps=8, never=without("compilation"))
    kernels = [("nvjet_hsh_256x128", 700, "gemm_fusion_dot.1", "dot_general"), ("loop_add_fusion_3", 200, "loop_add_fusion.3", "add"), ("nvjet_b", 950, "gemm_fusion_dot.2", "dot")]
    s.other("jax_gpu_next_batch", "jax-gpu", "The host fetches the next batch for 3 ms before each program.", "input_bound",
            lambda p, write: jax_gpu(p, kernels=kernels, load=3000, write=write, seed=11, load_name="next_batch"), lambda p, write: jax_gpu(p, kernels=kernels, load=80, write=write, seed=11),
            never=without("input_bound"), where=["next_batch"])
    s.other("neuron_xspace_built_on_host", "neuron", "As neuron_built_on_host, as XSpace and on four cores.", "host_bound", lambda p, write: neuron(p, form="xspace", cores=4, execution=2200, build=3000, write=write, seed=13),
            lambda p, write: neuron(p, form="xspace", cores=4, execution=2200, build=250, write=write, seed=13), steps=14, never=("input_bound", "synchronization", "exposed_copy", "idle_unknown", "straggler"))
    return s


if __name__ == "__main__":
    further_suite().main(sys.argv[1] if len(sys.argv) > 1 else HERE)
