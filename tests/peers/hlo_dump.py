"""Makes tests/data/traces/hlo/dump (XLA's dump of two JAX programs on a CPU), device_memory.prof (the live arrays of
the program that ran them) and their figures. Pass it to Python as text, because its path would be in the files:
`python - tests/data/traces/hlo < tests/peers/hlo_dump.py`."""

import collections
import gzip
import json
import os
import pathlib
import shutil
import site
import sys
import tempfile

PROGRAM = '''
import jax, jax.numpy as jnp

@jax.jit
def step(weights, batch):
    def loss(weights):
        with jax.named_scope("layer"):
            return jnp.sum(jnp.tanh(batch @ weights) ** 2)
    return weights - 0.1 * jax.grad(loss)(weights)

@jax.jit
def loop(x):
    return jax.lax.fori_loop(0, 5, lambda i, x: jnp.sin(x) + 1, x)

def load(n):
    return jax.device_put(jnp.ones((n, 4)), jax.devices()[1])

def train():
    weights, batch = jnp.ones((32, 16)), jnp.ones((64, 32))
    return step(weights, batch), loop(batch)

def main():
    return [load(8), load(8), *train()]

kept = main()
'''


def varint(data, at):
    value, shift = 0, 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def put_varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def without_own_paths(profile):
    """Replaces the folder of packages in the texts (field 6) of a profile."""
    own = site.getsitepackages()[0].encode()
    out, at = bytearray(), 0
    while at < len(profile):
        tag, at = varint(profile, at)
        if tag & 7 == 0:
            value, at = varint(profile, at)
            out += put_varint(tag) + put_varint(value)
            continue
        length, at = varint(profile, at)
        value = profile[at : at + length]
        at += length
        if tag >> 3 == 6:
            value = value.replace(own, b"/usr/lib/python3/site-packages")
        out += put_varint(tag) + put_varint(len(value)) + value
    return bytes(out)


def main(out):
    scratch = pathlib.Path(tempfile.mkdtemp())
    os.environ["XLA_FLAGS"] = (
        f"--xla_dump_to={scratch} --xla_dump_hlo_as_proto --xla_dump_compress_protos"
        " --xla_force_host_platform_device_count=2"
    )
    names = {}
    exec(compile(PROGRAM, "/home/user/train.py", "exec"), names)  # noqa: S102

    import jax
    import jax.numpy as jnp

    profile = gzip.decompress(jax.profiler.device_memory_profile())
    live = collections.defaultdict(lambda: [0, 0])
    for array in jax.live_arrays():
        for shard in array.addressable_shards:
            device = f"{shard.device.platform}:{shard.device.id}"
            live[device][0] += 1
            live[device][1] += shard.data.nbytes
    dumped = [file for file in scratch.iterdir() if file.name.endswith(".hlo.pb.gz")]
    chosen = [file for file in dumped if "jit_step" in file.name or "jit_loop" in file.name]
    (out / "dump").mkdir(parents=True, exist_ok=True)
    for file in chosen:
        shutil.copy(file, out / "dump" / file.name)
    (out / "device_memory.prof").write_bytes(gzip.compress(without_own_paths(profile), mtime=0))
    weights, batch = jnp.ones((32, 16)), jnp.ones((64, 32))
    compiled = {
        "jit_step": names["step"].lower(weights, batch).compile(),
        "jit_loop": names["loop"].lower(batch).compile(),
    }
    keys = ["argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes"]
    truth = {
        "jax": jax.__version__,
        "live_arrays": {device: {"count": count, "bytes": size} for device, (count, size) in sorted(live.items())},
        "memory_analysis": {
            name: {key: getattr(program.memory_analysis(), key) for key in keys} for name, program in compiled.items()
        },
    }
    (out / "dump.truth").mkdir(exist_ok=True)
    (out / "dump.truth" / "figures.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
