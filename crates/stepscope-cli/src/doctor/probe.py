"""Prints what `stepscope doctor` asks of a Python: its version, and versions of packages. Imports none of them."""

import json
import os
import sys

PACKAGES = {
    "jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "libneuronxla", "libtpu", "lightning",
    "neuronx-cc", "nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti-cu13", "pytorch-lightning",
    "stepscope", "tb-nightly", "tbp-nightly", "tensorboard", "tensorboard-plugin-neuron",
    "tensorboard-plugin-neuronx", "tensorboard-plugin-profile", "tensorflow", "tf-nightly", "torch",
    "torch-neuronx", "torch-xla", "xprof",
}
packages = {}
cupti = []
try:
    from importlib.metadata import distributions
except ImportError:
    distributions = list
for distribution in distributions():
    name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
    # The first one on the path is the one that is imported.
    if name in PACKAGES and name not in packages:
        packages[name] = distribution.version
for folder in sys.path:
    nvidia = os.path.join(folder, "nvidia")
    for package in sorted(os.listdir(nvidia)) if os.path.isdir(nvidia) else []:
        libraries = os.path.join(nvidia, package, "lib")
        if os.path.isdir(libraries):
            cupti += [os.path.join(libraries, name) for name in sorted(os.listdir(libraries)) if "libcupti.so" in name]
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "executable": sys.executable,
    "packages": packages,
    "cupti": cupti,
}))
