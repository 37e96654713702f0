"""Programs that are no plain training: pipelines, replicas, experts, queued work, decoding."""

from torch_network import Net
from torch_rank import GEMM


def pipeline(r, devices=2, micro=1, us=2400.0, parts=4, gap=0):
    """One process, a stage of a network on each device, forward and backward through all of them; `micro` batches are under way at once."""
    c = r.c
    for i in range(c.steps):
        with r.label(f"ProfilerStep#{i + c.first_step}"):
            with r.label(c.input_name):
                r.spend(c.input_us)
            began = r.now
            done = {}
            order = [(m, d, "forward") for m in range(micro) for d in range(devices)] + [(m, d, "backward") for m in range(micro) for d in reversed(range(devices))]
            for m, d, way in order:
                before = done.get((m, d - 1 if way == "forward" else d + 1, way), began)
                if way == "backward" and d == devices - 1:
                    before = done[m, d, "forward"]
                each = us / micro / parts * (1.0 if way == "forward" else 1.9)
                with r.label(f"stage{d}_{way}"):
                    for n in range(parts):
                        with r.op("aten::addmm" if way == "forward" else "aten::mm", **{"Input Dims": [[8192 // micro, 4096], [4096, 4096]]}):
                            _, end = r.kernel(GEMM[r.vendor, c.dtype].format(256, 128), each, device=d, after=before + 6)
                        r.spend(c.host_us)
                    with r.op("aten::copy_"):
                        _, end = r.copy("p2p", int(32e6 / micro), 250.0, device=d)
                done[m, d, way] = end
            for d in range(devices):
                with r.op("aten::_foreach_add_"):
                    r.kernel("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, float>(...)", 180, device=d)
            r.wait("cudaDeviceSynchronize")
        r.ends.append(r.now)
    r.makespan = r.now
    return
    yield


def replicas(r, copies=True, us=900.0, layers=4):
    """One process, two devices; each layer's activations go to the other device and back."""
    c = r.c
    for i in range(c.steps):
        with r.label(f"ProfilerStep#{i + c.first_step}"):
            with r.label(c.input_name):
                r.spend(c.input_us)
            ready = r.now
            for layer in range(layers):
                for d in (0, 1):
                    with r.op("aten::addmm", **{"Input Dims": [[8192, 4096], [4096, 4096]]}):
                        _, end = r.kernel(GEMM[r.vendor, c.dtype].format(256, 128), us, device=d, after=ready)
                    r.spend(c.host_us)
                ready = end
                if copies:
                    for d in (0, 1):
                        with r.op("aten::to"), r.op("aten::_to_copy"), r.op("aten::copy_", **{"Input Dims": [[8192, 4096], [8192, 4096]]}):
                            _, end = r.copy("p2p", 33_554_432, 52.0, device=d)
                    ready = end
            r.wait("cudaDeviceSynchronize")
        r.ends.append(r.now)
    r.makespan = r.now
    return
    yield


def experts(r, loads=None, us=1300.0, layers=2):
    """Experts on each rank: the busier ones let the others wait in the second exchange. `loads(step, layer, rank)` is the share of tokens."""
    c, net = r.c, Net(r)
    size = c.tokens * c.hidden * net.width
    for i in range(c.steps):
        with r.label(f"ProfilerStep#{i + c.first_step}"):
            with r.label(c.input_name):
                r.spend(c.input_us)
            for layer in range(layers):
                net.norm(c.tokens, c.hidden)
                net.linear(c.tokens, c.hidden, 3 * c.hidden)
                with r.label(c.moe_names[0]):
                    yield from r.collective("all_to_all", size, wait=True)
                part = loads(i, layer, r.rank) if loads else 1.0
                with r.label(c.moe_names[1]):
                    for n in range(4):
                        with r.op("aten::_grouped_mm", **{"Input Dims": [[int(c.tokens * part), c.hidden], [8, c.hidden, 4 * c.hidden]]}):
                            r.kernel("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape> > >(...)", us / 4 * part)
                        r.spend(c.host_us)
                with r.label(c.moe_names[2]):
                    yield from r.collective("all_to_all", size, wait=True)
                net.norm(c.tokens, c.hidden)
                net.tape.clear()
            r.wait("cudaDeviceSynchronize")
        r.ends.append(r.now)
    r.makespan = r.now


def queued(r, ahead=90_000.0, each=140.0):
    """The recording begins while the device still has much to do: steps on the host are over long before their kernels run."""
    c, net = r.c, Net(r)
    r.ready[(r.device, r.stream)] = ahead
    for i in range(c.steps):
        with r.label(f"ProfilerStep#{i + c.first_step}"):
            for n in range(10):
                with r.op("aten::linear"), r.op("aten::addmm", **{"Input Dims": [[4096], [4096, 2048], [2048, 4096]]}):
                    r.kernel(GEMM[r.vendor, c.dtype].format(256, 128), each)
                r.spend(c.host_us)
        r.ends.append(r.now)
    r.wait("cudaDeviceSynchronize")
    r.makespan = r.now
    return
    yield


def decode(r):
    """Inference of few tokens: each product reads all its weights for a handful of rows; a captured graph launches all of it."""
    c, net, before = r.c, Net(r), 0.0
    for i in range(-c.lead, c.steps):
        if i == 0:
            r.begin = r.now
        with r.label(f"ProfilerStep#{i + c.first_step}"):
            with r.label("schedule"):
                r.spend(c.input_us)
            corr = r.call("cudaGraphLaunch", 24)
            r.replay = (corr, r.now - 8)
            net.forward()
            net.tape.clear()
            r.replay = None
            r.call("cudaEventRecord", 1.6)
            if before:
                r.wait("cudaEventSynchronize", moment=before)
            before = max(r.ready.values())
        if i >= 0:
            r.ends.append(r.now)
    r.makespan = r.now
    return
    yield
