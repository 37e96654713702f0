// snippets.ts: lines of code of each framework that record into the watched directory.

export interface Snippet {
  readonly id: string;
  readonly label: string;
  readonly code: (logDir: string) => string;
}

export const SNIPPETS: readonly Snippet[] = [
  {
    id: 'jax',
    label: 'JAX',
    code: (dir) => `import jax

with jax.profiler.trace("${dir}"):
    for step in range(10):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            state = train_step(state).block_until_ready()`,
  },
  {
    id: 'pytorch',
    label: 'PyTorch',
    code: (dir) => `import torch
from torch.profiler import profile, schedule, tensorboard_trace_handler

with profile(
    schedule=schedule(wait=1, warmup=1, active=3),
    on_trace_ready=tensorboard_trace_handler("${dir}"),
) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()`,
  },
  {
    id: 'xla',
    label: 'PyTorch/XLA',
    code: (dir) => `import torch_xla.debug.profiler as xp

server = xp.start_server(9012)          # once, in the training program
xp.start_trace("${dir}")
for step, batch in enumerate(loader):
    with xp.StepTrace("train_step", step_num=step):
        train_step(batch)
xp.stop_trace()`,
  },
  {
    id: 'neuron',
    label: 'Neuron',
    code: (dir) => `import torch_xla.debug.profiler as xp

# Neuron runs write the same traces; device rows appear under the step rows.
xp.start_trace("${dir}")
with xp.StepTrace("train_step", step_num=0):
    with xp.Trace("model_build"):
        output = model(batch)
xp.stop_trace()`,
  },
  {
    id: 'lightning',
    label: 'Lightning',
    code: (dir) => `from lightning.pytorch import Trainer
from lightning.pytorch.profilers import PyTorchProfiler

profiler = PyTorchProfiler(dirpath="${dir}", filename="fit", export_to_chrome=True)
Trainer(profiler=profiler, max_epochs=1).fit(model)`,
  },
  {
    id: 'rust',
    label: 'Rust',
    code: (dir) => `use stepscope::{span, step};

stepscope::start_trace("${dir}")?;
for n in 0..100 {
    let _step = step(n);
    {
        let _span = span!("forward");
        model.forward(&batch)?;
    }
}
stepscope::stop_trace()?;`,
  },
];
