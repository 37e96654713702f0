"""What networks do on a simulated rank, and how they are trained: times follow from shapes."""

import contextlib

from torch_rank import GEMM, TYPES, Rank, elementwise


class Net:
    """Operators of a network on one rank: forward, backward, optimizer. Times follow from shapes."""

    def __init__(self, r):
        self.r, self.c = r, r.c
        self.tape = []
        _, self.fast, self.slow, self.tf32, self.bandwidth, *_ = r.gpu
        self.width = TYPES[self.c.dtype][1]
        c = self.c
        self.parameters = {"gpt": 12 * c.hidden * c.hidden * c.layers, "resnet": 2_100_000 * c.layers, "mlp": c.hidden * c.hidden * c.layers}[c.net]
        self.tensors = c.tensors or c.layers * {"gpt": 12, "resnet": 9, "mlp": 2}[c.net]

    def rate(self):
        return {"bf16": self.fast, "fp16": self.fast, "tf32": self.tf32, "fp32": self.slow}[self.c.dtype] * 1e6

    def python(self):
        self.r.spend(self.c.host_us)

    def product(self, name, m, k, n, batch=1, efficiency=1.0):
        """mm, addmm or bmm with its kernel."""
        us = max(2.0 * batch * m * k * n / (self.rate() * efficiency), (m * k + k * n + m * n) * self.width * batch / self.bandwidth, 2.4)
        tiles = (256, 128) if m >= 1024 else (64, 64)
        kernel = GEMM[self.r.vendor, "fp32" if self.c.dtype == "tf32" and self.r.vendor == "amd" else self.c.dtype].format(*tiles)
        grid = (max(1, -(-m // tiles[0]) * -(-n // tiles[1])), 1, batch)
        dims = {"aten::addmm": [[n], [m, k], [k, n], [], []], "aten::mm": [[m, k], [k, n]], "aten::bmm": [[batch, m, k], [batch, k, n]]}[name]
        kind = TYPES[self.c.dtype][0]
        with self.r.op(name, **{"Input Dims": dims, "Input type": [kind if d else "Scalar" for d in dims]}):
            self.r.kernel(kernel, us, grid=grid, block=(384, 1, 1), registers=168, shared=213000)
        self.python()

    def moves(self, name, kernel, size, factor=1.0, dims=None, nested=None, block=(128, 1, 1)):
        """An operator that moves `size` bytes through memory."""
        us = max(size / self.bandwidth * factor, 1.9)
        with self.r.op(name, **({"Input Dims": dims, "Input type": [TYPES[self.c.dtype][0]] * len(dims)} if dims else {})):
            with self.r.op(nested) if nested else contextlib.nullcontext():
                self.r.kernel(kernel, us, block=block)
        self.python()

    @contextlib.contextmanager
    def backward_of(self, name):
        with self.r.op(f"autograd::engine::evaluate_function: {name}"), self.r.op(name):
            yield

    # operators, each leaving its backward on the tape
    def linear(self, m, k, n):
        with self.r.op("aten::linear", **{"Input Dims": [[m, k], [n, k], [n]]}):
            self.product("aten::addmm", m, k, n)

        def back():
            with self.backward_of("AddmmBackward0"):
                self.product("aten::mm", m, n, k)
                self.product("aten::mm", k, m, n)
        self.tape.append(back)

    def norm(self, rows, columns):
        size = rows * columns * self.width
        t = TYPES[self.c.dtype][0]
        dims = [[rows, columns], [], [columns], [columns]]
        self.moves("aten::layer_norm", f"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<{t}, float, false>(int, float, {t} const*, {t} const*, {t} const*, float*, float*, {t}*)", 2 * size, 1.1, dims, "aten::native_layer_norm")

        def back():
            with self.backward_of("NativeLayerNormBackward0"):
                self.moves("aten::native_layer_norm_backward", f"void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<{t}, float, false>({t} const*, {t} const*, float const*, float const*, {t} const*, {t}*, int)", 4 * size, 1.1, dims[:1])
        self.tape.append(back)

    def pointwise(self, name, what, elements, reads=1, shape=None):
        size = elements * self.width
        dims = [shape or [elements]] * reads
        self.moves(f"aten::{name}", elementwise(what, self.r.vendor, self.c.dtype), (reads + 1) * size, 1.0, dims)

        def back():
            if name == "add":
                return
            with self.backward_of(f"{name.capitalize()}Backward0"):
                self.moves(f"aten::{'mul' if what in ('mul', 'pow') else name + '_backward'}", elementwise("mul" if what in ("mul", "pow") else f"{name}_backward", self.r.vendor, self.c.dtype), 3 * size, 1.0, dims[:1] * 2)
        self.tape.append(back)

    def attend(self):
        c = self.c
        batch, rows = max(1, c.tokens // c.seq), c.heads
        flops = 4.0 * c.tokens * c.seq * c.hidden
        shape = [batch, c.heads, c.seq, c.hidden // c.heads]
        if c.attention == "flash":
            names = ("attn_fwd", "attn_bwd") if self.r.vendor == "amd" else (
                "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)",
                "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, cutlass::bfloat16_t> >(pytorch_flash::Flash_bwd_params)")
            with self.r.op("aten::scaled_dot_product_attention", **{"Input Dims": [shape] * 3}), self.r.op("aten::_scaled_dot_product_flash_attention"), self.r.op("aten::_flash_attention_forward"):
                self.r.kernel(names[0], max(3.0, flops / (self.rate() * 0.6)), registers=255, shared=81920, block=(128, 1, 1))
            self.python()

            def back():
                with self.backward_of("ScaledDotProductFlashAttentionBackward0"), self.r.op("aten::_scaled_dot_product_flash_attention_backward"), self.r.op("aten::_flash_attention_backward"):
                    self.r.kernel(names[1], max(6.0, 2.5 * flops / (self.rate() * 0.5)), registers=255, shared=147456, block=(256, 1, 1))
                self.python()
            self.tape.append(back)
            return
        scores = batch * rows * c.seq * c.seq * self.width
        head = c.hidden // c.heads
        dims = [[batch, rows, c.seq, c.seq]]
        t = TYPES[c.dtype][0]
        soft = f"void (anonymous namespace)::softmax_warp_forward<{t}, {t}, float, 10, false, false>({t}*, {t} const*, int, int, int, bool const*, int, bool)"
        with self.r.op("aten::matmul"):
            self.product("aten::bmm", c.seq, head, c.seq, batch * rows, 0.6)
        self.moves("aten::div", elementwise("mul", self.r.vendor, c.dtype), 2 * scores, 1.0, dims)
        self.moves("aten::masked_fill", elementwise("masked_fill", self.r.vendor, c.dtype), 2 * scores, 1.0, dims)
        self.moves("aten::softmax", soft, 2 * scores, 1.1, dims, "aten::_softmax")
        self.moves("aten::dropout", elementwise("fused_dropout", self.r.vendor, c.dtype), 2.5 * scores, 1.0, dims, "aten::native_dropout")
        with self.r.op("aten::matmul"):
            self.product("aten::bmm", c.seq, c.seq, head, batch * rows, 0.6)

        def back():
            for _ in range(2):
                with self.backward_of("BmmBackward0"):
                    self.product("aten::bmm", c.seq, c.seq, head, batch * rows, 0.6)
                    self.product("aten::bmm", c.seq, c.seq, head, batch * rows, 0.6)
            for name, op in (("NativeDropoutBackward0", "aten::native_dropout_backward"), ("SoftmaxBackward0", "aten::_softmax_backward_data"), ("MaskedFillBackward0", "aten::masked_fill"), ("DivBackward0", "aten::div")):
                with self.backward_of(name):
                    self.moves(op, soft.replace("forward", "backward") if "oftmax" in op else elementwise("mul", self.r.vendor, c.dtype), 3 * scores, 1.0, dims)
        self.tape.append(back)

    def activation(self, elements, shape):
        if not self.c.chain:
            self.pointwise("gelu", "GeluCUDAKernelImpl", elements, 1, shape)
            return
        for name, what, reads in (("pow", "pow", 1), ("mul", "mul", 1), ("add", "add", 2), ("mul", "mul", 1), ("tanh", "tanh", 1), ("add", "add", 1), ("mul", "mul", 2), ("mul", "mul", 1)):
            self.pointwise(name, what, elements, reads, shape)

    def conv(self, n, channels, out, side, kernel=3):
        flops = 2.0 * n * side * side * channels * out * kernel * kernel
        size = n * side * side * (channels + out) * self.width
        us = max(flops / (self.rate() * 0.55), size / self.bandwidth, 3.0)
        half = {"bf16": "bf16bf16_bf16f32_f32", "fp16": "f16f16_f16f32_f32", "tf32": "tf32f32_tf32f32_f32", "fp32": "f32f32_f32f32_f32"}[self.c.dtype]
        name = "sm80_xmma_{}_implicit_gemm_" + half + "_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"
        if self.r.vendor == "amd":
            name = "igemm_{}_gtcx3_nhwc_bf16_bx0_ex1_bt256x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x4x1_1x4x1x64"
        dims = [[n, channels, side, side], [out, channels, kernel, kernel]]
        with self.r.op("aten::conv2d", **{"Input Dims": dims}), self.r.op("aten::convolution"), self.r.op("aten::_convolution"), self.r.op("aten::cudnn_convolution" if self.r.vendor == "nvidia" else "aten::miopen_convolution"):
            self.r.kernel(name.format("fprop"), us, registers=168, shared=66000)
        self.python()

        def back():
            with self.backward_of("ConvolutionBackward0"), self.r.op("aten::convolution_backward", **{"Input Dims": dims}):
                self.r.kernel(name.format("dgrad"), us * 1.1, registers=168, shared=66000)
                self.r.kernel(name.format("wgrad"), us * 1.15, registers=168, shared=66000)
            self.python()
        self.tape.append(back)
        elements = n * side * side * out
        shape = [n, out, side, side]
        self.moves("aten::batch_norm", f"void cudnn::batchnorm_fwtr_nhwc_semiPersist<{'__half' if self.width == 2 else 'float'}, float, float, 512, true, 1, 2>(int)", 3 * elements * self.width, 1.0, [shape], "aten::cudnn_batch_norm")

        def norm_back():
            with self.backward_of("CudnnBatchNormBackward0"):
                self.moves("aten::cudnn_batch_norm_backward", "void cudnn::batchnorm_bwtr_nhwc_semiPersist<__half, float, float, 512, true, 1, 2>(int)", 5 * elements * self.width, 1.0, [shape])
        self.tape.append(norm_back)
        self.moves("aten::relu_", elementwise("clamp_scalar", self.r.vendor, self.c.dtype), 2 * elements * self.width, 1.0, [shape], "aten::clamp_min_")

    def forward(self, between=None):
        c = self.c
        for layer in range(c.layers):
            with self.r.py(f"nn.Module: {'Block' if c.net == 'gpt' else 'BasicBlock' if c.net == 'resnet' else 'Linear'}_{layer}"):
                if c.net == "gpt":
                    with self.r.py("model.py(61): forward"):
                        self.norm(c.tokens, c.hidden)
                        self.linear(c.tokens, c.hidden, 3 * c.hidden)
                        self.attend()
                        self.linear(c.tokens, c.hidden, c.hidden)
                        self.pointwise("add", "add", c.tokens * c.hidden, 2, [c.tokens, c.hidden])
                        self.norm(c.tokens, c.hidden)
                        self.linear(c.tokens, c.hidden, 4 * c.hidden)
                        self.activation(c.tokens * 4 * c.hidden, [c.tokens, 4 * c.hidden])
                        self.linear(c.tokens, 4 * c.hidden, c.hidden)
                        self.pointwise("add", "add", c.tokens * c.hidden, 2, [c.tokens, c.hidden])
                elif c.net == "resnet":
                    side = (56, 28, 14, 7)[min(3, layer * 4 // max(1, c.layers))]
                    width = 64 * 56 // side
                    for _ in range(3):
                        self.conv(c.batch, width, width, side)
                else:
                    self.linear(c.tokens, c.hidden, c.hidden)
                    self.activation(c.tokens * c.hidden, [c.tokens, c.hidden])
                if between:
                    between(layer)

    def backward(self, hook=None):
        with self.r.thread(self.r.pid + 311, "pt_autograd_0"):
            tape, self.tape = self.tape, []
            left = len(tape)
            for back in reversed(tape):
                back()
                left -= 1
                if hook:
                    yield from hook(left, len(tape))

    def optimize(self):
        c, r = self.c, self.r
        size = self.parameters * 4
        apply = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<{}>, at::native::(anonymous namespace)::{}<float, {}, 1, 0>, {}>(...)"
        with r.label("Optimizer.step#AdamW.step"):
            if c.optimizer == "fused":
                with r.op("aten::_fused_adamw_"):
                    for _ in range(2):
                        r.kernel(apply.format(4, "FusedAdamMathFunctor", 4, "float const*, double, double"), max(3.0, 4.5 * size / self.bandwidth / 2))
                self.python()
            elif c.optimizer == "foreach":
                for name, moves in (("_foreach_add_", 1), ("_foreach_mul_", 2), ("_foreach_lerp_", 3), ("_foreach_mul_", 2), ("_foreach_addcmul_", 3), ("_foreach_sqrt", 2), ("_foreach_div_", 2), ("_foreach_addcdiv_", 4)):
                    with r.op(f"aten::{name}"):
                        r.kernel(apply.format(2, "BinaryOpScalarFunctor", 2, "std::multiplies<float>, float"), max(2.5, moves * size / self.bandwidth / 2.2))
                    self.python()
            else:
                each = size / self.tensors
                steps = (("mul_", "mul", 2), ("lerp_", "lerp_scalar", 3), ("mul_", "mul", 2), ("addcmul_", "addcmul_cuda_scalar", 3), ("sqrt", "sqrt", 2), ("div", "mul", 2), ("add_", "add", 2), ("addcdiv_", "addcdiv_cuda_scalar", 4))
                for _ in range(self.tensors):
                    for name, what, moves in steps if c.optimizer == "single" else steps[:3]:
                        with r.op(f"aten::{name}"):
                            r.kernel(elementwise(what, r.vendor, "fp32"), max(1.7, each * moves / self.bandwidth / 2))
                        r.spend(c.host_us * 0.5)


def train(r):
    """A training loop with the configured causes."""
    c, net = r.c, Net(r)
    base = None
    leaked = []
    if c.memory:
        r.allocated = int(c.base_gb * 2**30)
        r.reserved = int((c.base_gb + c.spare_gb) * 2**30)
    for i in range(-c.lead, c.steps):
        # The recording starts while the program runs: kernels launched before are still running.
        if i == 0:
            r.begin = r.now
        number = i + c.first_step
        r.factor = c.slow_compute.get(r.rank, 1.0) * (c.warm.get(i, 1.0))
        step = r.label(f"ProfilerStep#{number}") if c.marks else contextlib.nullcontext()
        with step, r.py(f"{c.script}(112): main"):
            yield from one_step(r, net, i, leaked)
            # In a well-written loop the host runs at most one step ahead.
            mine = max(r.ready.values())
            if c.pace == "event":
                r.call("cudaEventRecord", 1.6)
                if base is not None:
                    r.wait("cudaEventSynchronize", moment=base)
                base = mine
            elif c.pace == "sync":
                r.wait("cudaDeviceSynchronize")
            r.spend(c.tail_us + 3)
        if i >= 0:
            r.ends.append(r.now)
    r.makespan = r.now if c.lead else max(r.now, max(r.ready.values()))


def one_step(r, net, i, leaked):
    c = r.c
    for name, us in c.extra_in.get(i, {}).items():
        if name.startswith("before:"):
            with r.py(f"{c.script}(98): between"), r.label(name[7:]):
                r.spend(us)
    waits = c.input_us + c.slow_input.get(r.rank, 0.0) + c.input_in.get(i, 0.0)
    with r.label(c.input_name) if c.input_name else contextlib.nullcontext(), r.py("torch/utils/data/dataloader.py(732): __next__"):
        if "SingleProcess" in c.input_name:
            for name, part in (("aten::to", 0.25), ("aten::sub", 0.2), ("aten::div", 0.2), ("aten::stack", 0.3)):
                with r.op(name, **{"Input Dims": [[64, 3, 224, 224]]}):
                    r.spend(waits * part)
            r.spend(waits * 0.05)
        else:
            with r.py("torch/utils/data/dataloader.py(1416): _get_data"), r.py("multiprocessing/queues.py(113): get"):
                r.spend(waits)
    if c.h2d:
        with r.op("aten::to", **{"Input Dims": [[c.h2d // 4]]}), r.op("aten::_to_copy"), r.op("aten::copy_"):
            r.copy("h2d", c.h2d, c.h2d_gbs if not c.pinned else 50.0, stream=r.stream if not c.pinned else r.stream + 6, blocking=not c.pinned)
    if c.malloc:
        free, allocate, count = c.malloc
        with r.op("aten::empty", **{"Input Dims": [[]]}), r.py("torch/cuda/memory.py(207): empty_cache"):
            r.wait("cudaDeviceSynchronize")
            for _ in range(count):
                r.call("cudaFree", free)
        for _ in range(count):
            with r.op("aten::empty_strided"):
                r.call("cudaMalloc", allocate)
    if i in c.retries_in:
        with r.op("aten::empty", **{"Input Dims": [[2048, 98304]]}):
            r.call("cudaMalloc", 240)  # fails
            r.wait("cudaDeviceSynchronize")
            for _ in range(14):
                r.call("cudaFree", 420)
            r.reserved += 512 * 2**20
            r.call("cudaMalloc", 2100)
            leaked.append(r.record(384 * 2**20))
            r.spend(5)
    if i in c.compile_in:
        us = c.compile_in[i]
        with r.py("torch/_dynamo/eval_frame.py(655): _fn"), r.op("_compile.compile_inner (dynamo_timed)", "user_annotation"), r.op("_compile._inner (dynamo_timed)", "user_annotation"):
            r.spend(us * 0.22)
            with r.op("OutputGraph.call_user_compiler (dynamo_timed)", "user_annotation"):
                with r.op("compile_fx.<locals>.fw_compiler_base (dynamo_timed)", "user_annotation"):
                    r.spend(us * 0.3)
                    with r.op("async_compile.wait (dynamo_timed)", "user_annotation"):
                        r.spend(us * 0.48)
    held = []
    if c.memory:
        for _ in range(4):
            with r.op("aten::empty_like"):
                held.append((r.record(96 * 2**20), 96 * 2**20))
        if c.leak:
            with r.py(f"{c.script}(77): {c.leak_names[0]}"), r.label(c.leak_names[1]), r.op(c.leak_names[2], **{"Input Dims": [[c.leak // 8], [c.leak // 8]]}):
                leaked.append(r.record(c.leak))
                r.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, 1, 128, 1>(...)", 12)

    def between(layer):
        if c.python_us:
            with r.py(c.python_name):
                r.spend(c.python_us)
        for _ in range(c.reads):
            r.item()

    if c.graph:
        corr = r.call("cudaGraphLaunch", 22)
        r.replay = (corr, r.now - 8)
        net.forward()
        for _ in net.backward():
            pass
        net.optimize()
        r.replay = None
    else:
        with r.py("model.py(120): forward"), r.label("forward") if c.net != "mlp" else contextlib.nullcontext():
            net.forward(between)
        sends = c.comm != "none" and (i + 1) % c.accumulate == 0
        size = (c.grad_mb * 1e6 if c.grad_mb else net.parameters * net.width) / c.buckets
        sent = [0]

        def hook(left, all_of_them):
            if sends and c.comm == "overlap" and sent[0] < c.buckets - 1 and left <= all_of_them * (1 - (sent[0] + 1) / c.buckets):
                sent[0] += 1
                yield from r.collective("allreduce", size)

        with r.py("torch/_tensor.py(625): backward"):
            yield from net.backward(hook)
        if sends:
            for _ in range(c.buckets - sent[0]):
                yield from r.collective("allreduce", size)
            r.join()
        if (i + 1) % c.accumulate == 0:
            with r.py("torch/optim/adamw.py(243): step"):
                net.optimize()
    for address, bytes_ in held:
        with r.op("aten::resize_"):
            r.record(-bytes_, address)
    if c.cpu_op:
        name, size, us = c.cpu_op
        with r.op("aten::to"), r.op("aten::_to_copy"), r.op("aten::copy_"):
            r.copy("d2h", size, 20.0, blocking=True)
        with r.py(f"{c.script}(84): select"), r.op(name, **{"Input Dims": [[size // 4]], "Input type": ["float"]}):
            r.spend(us)
        with r.op("aten::to"), r.op("aten::_to_copy"), r.op("aten::copy_"):
            r.copy("h2d", size, 20.0, blocking=True)
        net.moves("aten::index_select", elementwise("index", r.vendor, c.dtype), size * 4, 1.0)
    if c.item_end:
        with r.py(f"{c.script}(91): log_loss"):
            r.item()
    if c.lock_us:
        # A thread that writes metrics holds the lock.
        other = r.pid + 87
        r.threads[other] = c.lock_names[0]
        r.clock[other] = r.now - 300
        with r.py(c.lock_names[1], other):
            with r.py(c.lock_names[2], other):
                r.clock[other] = r.now + c.lock_us
        with r.py(f"{c.script}(95): report"), r.py(c.lock_names[3]), r.py("<built-in method acquire of _thread.lock object at 0x7f61c42b9d40>"):
            r.spend(c.lock_us)
    if i in c.gc_in:
        with r.py(f"{c.script}(101): {c.gc_frame}"), r.py("<built-in function collect>"):
            r.spend(c.gc_in[i])
    for name, us in c.extra_in.get(i, {}).items():
        if not name.startswith("before:"):
            with r.py(f"{c.script}(130): every_so_often"), r.label(name):
                r.wait("cudaDeviceSynchronize")
                r.spend(us)


def simulate(c, program=train):
    """Run the ranks concurrently; a collective ends after the last rank has arrived."""
    ranks = [Rank(c, n) for n in range(c.ranks)]
    alive = [(r, program(r)) for r in ranks]
    answers = [None] * len(alive)
    while alive:
        asked = []
        for (r, running), answer in zip(alive, answers):
            try:
                asked.append((running.send(answer), r, running))
            except StopIteration:
                pass
        assert not asked or len(asked) == len(alive), "ranks part ways"
        alive = [(r, running) for _, r, running in asked]
        answers = [max(a[0][0] for a in asked) + asked[0][0][1]] * len(asked) if asked else []
    return ranks


def step_us(ranks):
    return max(r.makespan - r.begin for r in ranks) / len(ranks[0].ends)
