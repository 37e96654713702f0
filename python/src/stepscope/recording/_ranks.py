"""Which process of a distributed program this is, and the name that its processes give to a session."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Ranks(NamedTuple):
    """The rank of this process in a distributed program; None where it is unknown."""

    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    source: str = ""

    @property
    def several(self) -> bool:
        """Whether this is one of several processes."""
        return self.rank is not None and (self.world_size or 0) > 1

    def override(self, rank: int, world_size: int) -> Ranks:
        """Replace what the options of a session set: a rank from 0, and a world size above 0."""
        found = self._replace(rank=rank, source="options") if rank >= 0 else self
        return found._replace(world_size=world_size) if world_size else found


# Rank, world size and local rank as launchers give them, in the order in which they are believed.
_VARIABLES: tuple[tuple[str, str, str], ...] = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_LOCAL_PROCESS_ID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)

# What all processes of one job, and only they, have in common; the first set is taken, with the number
# of its restarts.
_JOBS: tuple[tuple[str, ...], ...] = (
    ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
    ("PMIX_NAMESPACE",),
    ("OMPI_MCA_ess_base_jobid",),
    ("PMI_JOBID",),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    ("JAX_COORDINATOR_ADDRESS",),
    ("MASTER_ADDR", "MASTER_PORT"),
)

# Processes that start a session within this time of the first may join it.
JOIN_WITHIN_S = 600.0


def find(environment: Mapping[str, str] | None = None) -> Ranks:
    """
    Tell this process's place, without importing or initialising anything.

    Asked are, in this order, PyTorch's process group, JAX, PyTorch/XLA's runtime (each if the program has
    initialised it), then the variables of torchrun, MPI, JAX and Slurm.
    """
    askers: tuple[Callable[[], Ranks], ...] = (_of_torch, _of_jax, _of_torch_xla)
    for asker in askers:
        try:
            found = asker()
        except Exception:
            # What a framework's next version calls otherwise is no reason to fail.
            continue
        if found.rank is not None:
            return found
    return _of_environment(os.environ if environment is None else environment)


def _of_torch() -> Ranks:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return Ranks()
    local = _number(os.environ, "LOCAL_RANK")
    return Ranks(distributed.get_rank(), distributed.get_world_size(), local, "torch.distributed")


def _of_jax() -> Ranks:
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return Ranks()
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is not None and state.client is not None:
        return Ranks(state.process_id, state.num_processes, None, "jax.distributed")
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    # Asking would initialise the backend.
    if bridge is None or not bridge.backends_are_initialized() or jax.process_count() < 2:
        return Ranks()
    return Ranks(jax.process_index(), jax.process_count(), None, "jax")


def _of_torch_xla() -> Ranks:
    extension: Any = getattr(sys.modules.get("torch_xla"), "_XLAC", None)
    runtime: Any = sys.modules.get("torch_xla.runtime")
    if extension is None or runtime is None or not extension._xla_runtime_is_initialized():
        return Ranks()
    if runtime.world_size() < 2:
        return Ranks()
    ordinal, local = runtime.global_ordinal(), runtime.local_ordinal()
    return Ranks(ordinal, runtime.world_size(), local, "torch_xla")


def _of_environment(environment: Mapping[str, str]) -> Ranks:
    for rank, size, local in _VARIABLES:
        number = _number(environment, rank)
        if number is not None:
            return Ranks(number, _number(environment, size), _number(environment, local), rank)
    return Ranks()


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def job(environment: Mapping[str, str] | None = None) -> str:
    """Name this process's job as its launcher does; empty if it is unknown."""
    environment = os.environ if environment is None else environment
    for names in _JOBS:
        if environment.get(names[0]):
            return "/".join(f"{name}={environment.get(name, '')}" for name in names)
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    address = getattr(state, "coordinator_address", None)
    return f"jax={address}" if address else ""


def agree(log_dir: str | os.PathLike[str], ranks: Ranks, number: int, now: float | None = None) -> str:
    """
    Tell the session's name: the same for all processes of the job that record into ``log_dir``.

    Parameters
    ----------
    log_dir
        The log directory, as all of them see it.
    ranks
        This process's place.
    number
        Counts the sessions that this process has started.
    now
        Seconds since 1970. Default: the time.

    Notes
    -----
    The first process of the job makes a folder named after the time and notes its name; the others find the
    note. A process that has joined already, or comes more than ten minutes later, belongs to the next one.

    Raises
    ------
    OSError
        The directory cannot be written.
    """
    import hashlib

    now = time.time() if now is None else now
    profiles = Path(log_dir) / "plugins" / "profile"
    notes = profiles / ".stepscope-sessions"
    notes.mkdir(parents=True, exist_ok=True)
    common = f"{job()}|{ranks.world_size}|{number}"
    key = hashlib.sha256(common.encode()).hexdigest()[:16]
    for generation in range(1, 100_000):
        note = notes / f"{key}-{generation}"
        if not note.exists():
            name = _propose(profiles, note, now)
            if name is not None:
                _forget_old(notes, now)
                _claim(note, ranks)
                return name
        lines = note.read_text().split("\n")
        if len(lines) >= 2 and abs(now - float(lines[1])) <= JOIN_WITHIN_S and _claim(note, ranks):
            return lines[0]
    message = f"cannot name a session: no name is free in {notes}"
    raise OSError(message)


def _propose(profiles: Path, note: Path, now: float) -> str | None:
    """Make a folder and note its name; None when another process was faster."""
    stamp = time.strftime("%Y_%m_%d_%H_%M_%S", time.localtime(now))
    for number in range(1, 10_000):
        name = stamp if number == 1 else f"{stamp}_{number}"
        try:
            (profiles / name).mkdir()
        except FileExistsError:
            continue
        break
    draft = note.with_name(f"{note.name}.{os.getpid()}.{os.urandom(4).hex()}")
    draft.write_text(f"{name}\n{now}\n")
    try:
        # Appears whole, and only once.
        os.link(draft, note)
    except FileExistsError:
        (profiles / name).rmdir()
        return None
    except OSError:
        # A file system without links.
        try:
            with note.open("x") as file:
                file.write(f"{name}\n{now}\n")
        except FileExistsError:
            (profiles / name).rmdir()
            return None
    finally:
        draft.unlink()
    return name


def _claim(note: Path, ranks: Ranks) -> bool:
    """Join once."""
    try:
        note.with_name(f"{note.name}.rank{ranks.rank}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _forget_old(notes: Path, now: float) -> None:
    """Remove the notes of a day ago."""
    for note in notes.iterdir():
        try:
            if note.stat().st_mtime < now - 86_400:
                note.unlink()
        except OSError:
            # Another process did it.
            continue
