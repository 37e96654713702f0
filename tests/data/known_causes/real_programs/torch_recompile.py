# torch CPU: 15 steps; forward() compiled with dynamic=False; steps 9 and 12 have other batch sizes -> recompilations. TORCH_TRACE=DIR
import json, sys, time
import torch
from torch.profiler import ProfilerActivity, profile, schedule


@torch.compile(dynamic=False, backend="aot_eager")
def forward(weight, batch):
    x = batch
    for _ in range(4):
        x = torch.tanh(x @ weight)
    return x.square().mean()


torch.set_num_threads(1)
truth = {"step_ms": []}
weight = torch.full((256, 256), 0.01)
forward(weight, torch.ones(64, 256))
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=15, repeat=1),
             on_trace_ready=lambda prof: prof.export_chrome_trace(sys.argv[1])) as prof:
    forward(weight, torch.ones(64, 256))
    prof.step()
    for step in range(15):
        start = time.perf_counter()
        forward(weight, torch.ones({9: 96, 12: 80}.get(step, 64), 256))
        time.sleep(0.005)  # the rest of the step
        truth["step_ms"].append((time.perf_counter() - start) * 1e3)
        prof.step()
json.dump(truth, open(sys.argv[2], "w"))
