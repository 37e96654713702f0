"""Writes small exports in the form of Nsight Systems, and their figures, to tests/data/traces/nsight.

`current.sqlite` has the tables and columns of 2025 (NVTX texts by number), `early.sqlite` those of 2019 (NVTX texts in
the row, no enumerations, pages of 512 bytes). Both hold a training job of one process with two threads, two devices and
two streams on each. The figures next to them, `NAME.truth/figures.json`, are sums that SQLite computes over the same
file. The content depends on nothing but this program and the version of SQLite.

    python tests/peers/nsight_export.py              # the committed files
    python tests/peers/nsight_export.py --figures F  # the figures of another export, on standard output
    python tests/peers/nsight_export.py --large F N  # N kernels and N calls, for measurements
"""

import json
import pathlib
import sqlite3
import sys
from collections.abc import Iterator

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data/traces/nsight"
PID = 4242
HARDWARE = 1 << 56
PROCESS = HARDWARE | PID << 24
MAIN, WORKER = PROCESS | PID, PROCESS | 4300
STEPS = 6
GRAPH_KERNELS = 8
US = 1_000

KERNELS = [
    ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn", 90 * US),
    (
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::AddFunctor<float>>(int)",
        "vectorized_elementwise_kernel",
        6 * US,
    ),
    ("flash_fwd_kernel(Flash_fwd_params)", "flash_fwd_kernel", 55 * US),
    (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        40 * US,
    ),
    (
        "void cutlass::Kernel<" + ", ".join(f"cutlass::Tile<(int){i}>" for i in range(400)) + ">(Params)",
        "Kernel",
        70 * US,
    ),
]

ENUMS = {
    "ENUM_NSYS_EVENT_TYPE": [
        (33, "NvtxCategory"),
        (34, "NvtxMark"),
        (59, "NvtxPushPopRange"),
        (60, "NvtxStartEndRange"),
        (75, "NvtxDomainCreate"),
    ],
    "ENUM_CUDA_MEMCPY_OPER": [
        (1, "CUDA_MEMCPY_KIND_HTOD"),
        (2, "CUDA_MEMCPY_KIND_DTOH"),
        (8, "CUDA_MEMCPY_KIND_DTOD"),
    ],
    "ENUM_CUDA_MEM_KIND": [
        (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE"),
        (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED"),
        (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE"),
    ],
    "ENUM_CUPTI_SYNC_TYPE": [(3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE")],
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": [(1, "Info"), (2, "Warning"), (3, "Error")],
}

# Columns: name, and whether only the current schema has it.
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId+",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId contextId streamId correlationId globalPid demangledName shortName mangledName+ launchType+ "
        "cacheConfig+ registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory "
        "localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted+ graphNodeId+ sharedMemoryLimitConfig+"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind graphNodeId+"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start end deviceId contextId streamId correlationId globalPid value bytes graphNodeId+ memKind+"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start end deviceId contextId streamId correlationId globalPid syncType eventId"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start end deviceId contextId streamId correlationId globalPid graphId graphExecId"
    ),
    "NVTX_EVENTS": (
        "start end eventType rangeId category color text globalTid endGlobalTid textId+ domainId uint64Value "
        "int64Value doubleValue uint32Value int32Value floatValue jsonTextId+ jsonText+"
    ),
    "OSRT_API": "start end eventClass globalTid correlationId nameId returnValue nestingLevel callchainId",
    "CUBLAS_EVENTS": "start end eventClass globalTid nameId",
    "SCHED_EVENTS": "start cpu isSchedIn globalTid",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": (
        "start globalPid deviceId contextId address pc bytes memKind memoryOperationType name correlationId streamId"
    ),
    "GPU_METRICS": "timestamp typeId metricId value",
    "TARGET_INFO_GPU_METRICS": "typeId sourceId typeName metricId metricName",
    "SAMPLING_CALLCHAINS": "id symbol module kernelMode thumbCode unresolved specialEntry originalIP unwindMethod stackDepth",
    "PROCESSES": "globalPid pid name",
    "ThreadNames": "nameId priority globalTid",
    "TARGET_INFO_GPU": "vmId id name totalMemory memoryBandwidth clockRate smCount computeMajor computeMinor",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "META_DATA_EXPORT": "name value",
    "META_DATA_CAPTURE": "name value",
}
TEXTS = {
    "text",
    "name",
    "value",
    "jsonText",
    "typeName",
    "metricName",
    "devStateName",
    "utcTime",
    "localTime",
}
NOT_IN_EARLY = {
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "GPU_METRICS",
    "TARGET_INFO_GPU_METRICS",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_SESSION_START_TIME",
    "META_DATA_EXPORT",
    "META_DATA_CAPTURE",
    "PROCESSES",
}


class Numbers:
    """A generator of numbers that is the same everywhere."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, limit: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.state >> 33) % limit


class Export:
    """A database in the making: texts by number, and the rows of each table."""

    def __init__(self, is_current: bool) -> None:
        self.is_current = is_current
        self.strings: dict[str, int] = {"[Unknown]": 0}
        self.rows: dict[str, list[dict]] = {}
        self.numbers = Numbers(7)
        self.correlation = 100
        self.free: dict[int, int] = {}

    def text(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def add(self, table: str, **values: object) -> None:
        self.rows.setdefault(table, []).append(values)

    def call(
        self, name: str, start: int, end: int, thread: int = MAIN, driver: bool = False, result: int = 0
    ) -> int:
        self.correlation += 1
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=int(driver),
            globalTid=thread,
            correlationId=self.correlation,
            nameId=self.text(name),
            returnValue=result,
        )
        return self.correlation

    def kernel(
        self, which: int, start: int, end: int, device: int, stream: int, call: int, node: int | None
    ) -> None:
        name, short, _ = KERNELS[which]
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=start,
            end=end,
            deviceId=device,
            contextId=1 + device,
            streamId=stream,
            correlationId=call,
            globalPid=PROCESS,
            demangledName=self.text(name),
            shortName=self.text(short),
            mangledName=self.text("_Z" + short),
            launchType=1,
            cacheConfig=0,
            registersPerThread=32 + which,
            gridX=64 * (which + 1),
            gridY=2,
            gridZ=1,
            blockX=128,
            blockY=1,
            blockZ=1,
            staticSharedMemory=1024,
            dynamicSharedMemory=256 * which,
            localMemoryPerThread=0,
            localMemoryTotal=1 << 20,
            gridId=call,
            sharedMemoryExecuted=32768,
            graphNodeId=node,
            sharedMemoryLimitConfig=0,
        )

    def nvtx(
        self, name: str, start: int, end: int | None, kind: int = 59, by_number: bool = True, **more: object
    ) -> None:
        values = {"start": start, "end": end, "eventType": kind, "globalTid": MAIN, "domainId": 0} | more
        if self.is_current and by_number:
            values["textId"] = self.text(name)
        else:
            values["text"] = name
        self.add("NVTX_EVENTS", **values)

    def job(self) -> None:
        """Six steps: on each device a copy in, kernels on two streams, a collective, a graph, a copy out."""
        self.nvtx("NCCL", 0, None, 75, domainId=3)
        self.nvtx("stepscope", 0, None, 75, by_number=False, domainId=4)
        self.nvtx("io", 0, None, 33, category=5)
        at = 10_000 * US
        self.nvtx("epoch 0", at, at + STEPS * 16_000 * US, 60, endGlobalTid=WORKER, rangeId=1)
        for step in range(STEPS):
            begin = at
            forward_end = self.compute(begin + 200 * US, 40)
            backward_end = self.compute(forward_end + 150 * US, 50)
            self.nvtx("ncclAllReduce", backward_end, backward_end + 30 * US, domainId=3, uint64Value=4096)
            end = self.finish(backward_end + 50 * US)
            if self.is_current:
                # As stepscope's recorder mirrors a step.
                self.nvtx("train", begin, end, domainId=4, int64Value=step)
            else:
                self.nvtx(f"step {step}", begin, end)
            self.nvtx("forward", begin + 200 * US, forward_end)
            self.nvtx("backward", forward_end + 150 * US, backward_end, category=5)
            self.nvtx("checkpoint", end - 20 * US, None, 34, by_number=False)
            at = end + 40 * US
        self.nvtx("x" * 5_000, at, at + 10 * US, by_number=False)
        self.nvtx("shutdown", at + 20 * US, None)
        self.last = at

    def work(self, stream: int, call_end: int, length: int) -> dict[str, int]:
        """Takes the stream for so long, after its earlier work; returns start and end."""
        start = max(self.free.get(stream, 0), call_end + 2 * US)
        self.free[stream] = start + length + 500
        return {"start": start, "end": start + length}

    def compute(self, at: int, kernels: int) -> int:
        """Launches copies and kernels on all streams; returns when the last call ended."""
        for device in (0, 1):
            stream = 7 + 13 * device
            call = self.call("cudaMemcpyAsync_v3020", at, at + 9 * US)
            place = {"deviceId": device, "contextId": 1 + device, "streamId": stream, "globalPid": PROCESS}
            kinds = {"bytes": 1 << 20, "copyKind": 1, "srcKind": 1, "dstKind": 2}
            span = self.work(stream, at + 9 * US, 48 * US)
            self.add("CUPTI_ACTIVITY_KIND_MEMCPY", correlationId=call, **place, **kinds, **span)
            at += 15 * US
        blas = self.text("cublasSgemm_v2")
        for index in range(kernels):
            device, second = index % 2, self.numbers.below(4) == 0
            stream = 7 + 13 * device + int(second)
            which = 3 if index == kernels - 1 else self.numbers.below(5)
            start = at
            if which == 0:
                span = {"start": at, "end": at + 8 * US}
                self.add("CUBLAS_EVENTS", eventClass=29, globalTid=MAIN, nameId=blas, **span)
                start += US
            call = self.call("cudaLaunchKernel_v7000", start, start + 5 * US)
            span = self.work(stream, start + 5 * US, KERNELS[which][2] + self.numbers.below(900))
            self.kernel(which, span["start"], span["end"], device, stream, call, None)
            at += 10 * US + self.numbers.below(3_000)
        return at

    def finish(self, at: int) -> int:
        """Launches graphs, sets and copies memory and waits; returns when the wait ended."""
        call = self.call("cudaGraphLaunch_v10000", at, at + 20 * US)
        for node in range(GRAPH_KERNELS):
            span = self.work(7, at + 20 * US, 11 * US)
            number = (9 << 32 | node) if self.is_current else None
            self.kernel(node % 5, span["start"], span["end"], 0, 7, call, number)
        place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": PROCESS}
        call = self.call("cudaMemsetAsync_v3020", at + 25 * US, at + 30 * US)
        more = {"value": 0, "bytes": 65_536, "memKind": 2} | self.work(7, at + 30 * US, 4 * US)
        self.add("CUPTI_ACTIVITY_KIND_MEMSET", correlationId=call, **place, **more)
        call = self.call("cudaMemcpyAsync_v3020", at + 35 * US, at + 45 * US)
        more = {"bytes": 4_096, "copyKind": 2, "srcKind": 2, "dstKind": 0}
        span = self.work(7, at + 45 * US, 10 * US)
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", correlationId=call, **place, **more, **span)
        if self.is_current:
            call = self.call("cudaGraphLaunch_v10000", at + 46 * US, at + 48 * US)
            other = {"deviceId": 1, "contextId": 2, "streamId": 20, "globalPid": PROCESS}
            more = {"graphId": 11, "graphExecId": 12} | self.work(20, at + 48 * US, 64 * US)
            self.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", correlationId=call, **other, **more)
        end = self.free[7] + 5 * US
        call = self.call("cudaStreamSynchronize_v3020", at + 50 * US, end)
        more = {"start": at + 51 * US, "end": end - US, "syncType": 3, "eventId": 0xFFFFFFFF}
        self.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", correlationId=call, **place, **more)
        self.call("cuMemGetInfo_v2", end + US, end + 2 * US, driver=True, result=1)
        return end + 10 * US

    def rest(self) -> None:
        """Rows of the operating system, of memory, metrics, samples and of the machine."""
        names = [self.text(name) for name in ("poll", "sem_wait", "pthread_cond_timedwait")]
        at = 9_000 * US
        for index in range(900):
            length = 3 * US + self.numbers.below(20 * US)
            self.add(
                "OSRT_API",
                start=at,
                end=at + length,
                eventClass=27,
                globalTid=WORKER,
                nameId=names[index % 3],
                returnValue=0,
                nestingLevel=0,
                callchainId=0,
            )
            at += length + 30 * US
        for index in range(20):
            self.add("SCHED_EVENTS", start=at + index, cpu=index % 4, isSchedIn=index % 2, globalTid=WORKER)
        in_use = []
        for index in range(60):
            at = (10_000 + index * 100) * US
            if in_use and self.numbers.below(3) == 0:
                address, size, kind = in_use.pop(0)
                freed = 1
            else:
                address, size, kind = (
                    0x7F00_0000_0000 + index * (1 << 21),
                    (1 + self.numbers.below(9)) << 20,
                    2 - index % 7 // 6,
                )
                in_use.append((address, size, kind))
                freed = 0
            self.add(
                "CUDA_GPU_MEMORY_USAGE_EVENTS",
                start=at,
                globalPid=PROCESS,
                deviceId=0,
                contextId=1,
                address=address,
                pc=0,
                bytes=size,
                memKind=kind,
                memoryOperationType=freed,
            )
        metrics = ["GPC Clock Frequency [MHz]", "SMs Active [Throughput %]"]
        for device in (0, 1):
            for number, metric in enumerate(metrics):
                self.add(
                    "TARGET_INFO_GPU_METRICS",
                    typeId=HARDWARE + device,
                    sourceId=3,
                    typeName="GA100",
                    metricId=number,
                    metricName=metric,
                )
            for index in range(100):
                for number in range(len(metrics)):
                    value = 1_410 if number == 0 else self.numbers.below(101)
                    self.add(
                        "GPU_METRICS",
                        timestamp=9_000 * US + index * 1_000 * US,
                        typeId=HARDWARE + device,
                        metricId=number,
                        value=value,
                    )
        stacks = [["main", "train", "forward"], ["main", "train", "load", "decode"], ["main"]]
        for index in range(120):
            self.add(
                "COMPOSITE_EVENTS",
                id=index + 1,
                start=10_000 * US + index * 250 * US,
                cpu=1,
                threadState=1,
                globalTid=MAIN if index % 3 else WORKER,
                cpuCycles=1_000 + index,
            )
            for depth, function in enumerate(reversed(stacks[index // 10 % 3])):
                self.add(
                    "SAMPLING_CALLCHAINS",
                    id=index + 1,
                    symbol=self.text(function),
                    module=self.text("/usr/bin/train"),
                    kernelMode=0,
                    thumbCode=0,
                    unresolved=0,
                    originalIP=4_096 + depth,
                    stackDepth=depth,
                )
        self.add("PROCESSES", globalPid=PROCESS, pid=PID, name="train")
        self.add("ThreadNames", nameId=self.text("train"), priority=20, globalTid=MAIN)
        self.add("ThreadNames", nameId=self.text("loader"), priority=20, globalTid=WORKER)
        for device in (0, 1):
            self.add(
                "TARGET_INFO_GPU",
                vmId=HARDWARE,
                id=device,
                name="NVIDIA A100-SXM4-40GB",
                totalMemory=42_297_524_224,
                memoryBandwidth=1_555_200_000_000,
                clockRate=1_410_000_000,
                smCount=108,
                computeMajor=8,
                computeMinor=0,
            )
            self.add("TARGET_INFO_CUDA_DEVICE", gpuId=device, cudaId=device, pid=PID)
        self.add(
            "TARGET_INFO_SESSION_START_TIME",
            utcEpochNs=1_700_000_000_000_000_000,
            utcTime="2023-11-14T22:13:20",
            localTime="2023-11-14T22:13:20",
        )
        for number, (name, value) in enumerate(
            [
                ("CpuCores", "64"),
                ("CpuDescription", "EPYC"),
                ("Hostname", "node7"),
                ("NvDriverVersion", "580.1"),
            ]
        ):
            self.add(
                "TARGET_INFO_SYSTEM_ENV",
                globalVid=HARDWARE,
                devStateName="Local (CLI)",
                name=name,
                nameEnum=number,
                value=value,
            )
        for severity, text in [
            (1, "Profiling has started."),
            (2, "Not all NVTX events might have been collected."),
        ]:
            self.add(
                "DIAGNOSTIC_EVENT",
                timestamp=0,
                timestampType=1,
                source=2,
                severity=severity,
                text=text,
                globalPid=PROCESS,
            )
        for name, value in [
            ("EXPORT_PRODUCT_VERSION", "2025.6.1.190"),
            ("EXPORT_SCHEMA_VERSION", "3.24.7"),
            ("EXPORT_PARAM_TIME_NORMALIZE", "false"),
        ]:
            self.add("META_DATA_EXPORT", name=name, value=value)
        for name, value in [
            ("PROCESS_0:COMMAND", "python"),
            ("PROCESS_0:ARGUMENT_0", "train.py"),
            ("PROCESS_0:ENVIRONMENT_VARIABLE", "TOKEN=secret"),
        ]:
            self.add("META_DATA_CAPTURE", name=name, value=value)

    def columns(self, table: str) -> list[str]:
        names = COLUMNS[table].split()
        return [name.rstrip("+") for name in names if self.is_current or not name.endswith("+")]

    def statement(self, table: str) -> str:
        """Returns the `CREATE TABLE` statement as the version writes it."""
        whole_number = {("GPU_METRICS", "value"), ("CUPTI_ACTIVITY_KIND_MEMSET", "value")}
        lines = []
        for name in self.columns(table):
            is_text = name in TEXTS and (table, name) not in whole_number
            kind = "TEXT" if is_text else "INTEGER" if self.is_current else "INT"
            lines.append((f"{name} {kind}", f"  -- {name}, in the unit of the export (ns, B)."))
        if table == "SAMPLING_CALLCHAINS":
            lines.append(("PRIMARY KEY (id, stackDepth)", ""))
        ends = [","] * (len(lines) - 1) + [""]
        parts = [
            line + end + (comment if self.is_current else "")
            for (line, comment), end in zip(lines, ends, strict=True)
        ]
        return f"CREATE TABLE {table} (\n" + "\n".join(parts) + "\n)"

    def write(self, path: pathlib.Path) -> None:
        path.unlink(missing_ok=True)
        with sqlite3.connect(path, isolation_level=None) as db:
            db.execute(f"PRAGMA page_size = {4096 if self.is_current else 512}")
            db.execute("PRAGMA secure_delete = OFF")
            db.execute("PRAGMA journal_mode = OFF")
            db.execute("BEGIN")
            db.execute(
                "CREATE TABLE StringIds (\n    -- Values of texts, which repeat.\n\n    id INTEGER NOT NULL PRIMARY KEY,\n    value TEXT NOT NULL\n)"
            )
            db.executemany(
                "INSERT INTO StringIds VALUES (?, ?)",
                [(number, text) for text, number in self.strings.items()],
            )
            key = "INTEGER NOT NULL PRIMARY KEY" if self.is_current else "INT NOT NULL PRIMARY KEY"
            db.execute(
                f"CREATE TABLE COMPOSITE_EVENTS (id {key}, start INT, cpu INT, threadState INT, globalTid INT, cpuCycles INT)"
            )
            for table in COLUMNS:
                if not self.is_current and table in NOT_IN_EARLY:
                    continue
                db.execute(self.statement(table))
            for table, rows in self.rows.items():
                if not self.is_current and table in NOT_IN_EARLY:
                    continue
                names = (
                    ["id", "start", "cpu", "threadState", "globalTid", "cpuCycles"]
                    if table == "COMPOSITE_EVENTS"
                    else self.columns(table)
                )
                marks = ", ".join("?" * len(names))
                db.executemany(
                    f"INSERT INTO {table} VALUES ({marks})",
                    [[row.get(name) for name in names] for row in rows],
                )
            if self.is_current:
                for table, entries in ENUMS.items():
                    db.execute(
                        f"CREATE TABLE {table} (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT)"
                    )
                    db.executemany(
                        f"INSERT INTO {table} VALUES (?, ?, ?)",
                        [(number, name, name) for number, name in entries],
                    )
            db.execute("COMMIT")
        db.close()


BUSY = """
WITH work AS ({work}),
     marked AS (SELECT *, max(end) OVER (PARTITION BY deviceId, streamId ORDER BY start, end
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM work)
SELECT deviceId, streamId, sum(max(0, end - max(start, coalesce(before, start)))) FROM marked GROUP BY 1, 2 ORDER BY 1, 2
"""
NAME = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"
EARLY_NAME = "text"


def figures(path: pathlib.Path) -> dict:
    """Computes sums over an export with SQL."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        has_text_id = any(row[1] == "textId" for row in db.execute("PRAGMA table_info(NVTX_EVENTS)"))
        name = NAME if has_text_id else EARLY_NAME
        found: dict = {}

        def rows(key: str, query: str, *needs: str) -> None:
            if tables.issuperset(needs):
                found[key] = [list(row) for row in db.execute(query)]

        kernels, copies, sets, graphs, runtime = (
            f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "RUNTIME")
        )
        rows(
            "kernels",
            f"SELECT s.value, count(*), sum(end - start) FROM {kernels} k JOIN StringIds s ON s.id = k.demangledName GROUP BY 1 ORDER BY 1",
            kernels,
        )
        rows(
            "copies",
            f"SELECT copyKind, count(*), sum(end - start), sum(bytes) FROM {copies} GROUP BY 1 ORDER BY 1",
            copies,
        )
        rows("memsets", f"SELECT count(*), sum(end - start), sum(bytes) FROM {sets}", sets)
        rows("graphs", f"SELECT count(*), sum(end - start) FROM {graphs}", graphs)
        work = " UNION ALL ".join(
            f"SELECT start, end, deviceId, streamId FROM {table}"
            for table in (kernels, copies, sets, graphs)
            if table in tables
        )
        rows("busy", BUSY.format(work=work), kernels)
        rows(
            "calls",
            f"SELECT s.value, eventClass, count(*), sum(end - start) FROM {runtime} r JOIN StringIds s ON s.id = r.nameId GROUP BY 1, 2 ORDER BY 1, 2",
            runtime,
        )
        rows(
            "launched",
            f"SELECT count(*) FROM {kernels} k JOIN {runtime} r ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24",
            kernels,
            runtime,
        )
        rows(
            "ranges",
            f"SELECT {name}, eventType, count(*), sum(end - start) FROM NVTX_EVENTS WHERE eventType IN (59, 60) AND end IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2",
            "NVTX_EVENTS",
        )
        rows(
            "marks",
            f"SELECT {name}, count(*) FROM NVTX_EVENTS WHERE eventType = 34 GROUP BY 1",
            "NVTX_EVENTS",
        )
        rows(
            "unfinished",
            f"SELECT {name}, start FROM NVTX_EVENTS WHERE eventType IN (59, 60) AND end IS NULL",
            "NVTX_EVENTS",
        )
        rows(
            "steps",
            f"SELECT CASE domainId WHEN 4 THEN int64Value ELSE CAST(substr({name}, 6) AS INT) END, start, end "
            f"FROM NVTX_EVENTS WHERE {name} LIKE 'step %' OR domainId = 4 AND eventType = 59 ORDER BY start",
            "NVTX_EVENTS",
        )
        rows(
            "os_calls",
            "SELECT s.value, count(*), sum(end - start) FROM OSRT_API o JOIN StringIds s ON s.id = o.nameId GROUP BY 1 ORDER BY 1",
            "OSRT_API",
        )
        rows(
            "metrics",
            "SELECT m.typeId & 255, m.metricName, count(*), sum(value) FROM GPU_METRICS g JOIN TARGET_INFO_GPU_METRICS m ON m.typeId = g.typeId AND m.metricId = g.metricId GROUP BY 1, 2 ORDER BY 1, 2",
            "GPU_METRICS",
        )
        rows(
            "memory",
            "SELECT memKind, max(sum) FROM (SELECT memKind, sum(CASE memoryOperationType WHEN 1 THEN -bytes ELSE bytes END) OVER (PARTITION BY memKind ORDER BY start) AS sum FROM CUDA_GPU_MEMORY_USAGE_EVENTS) GROUP BY 1 ORDER BY 1",
            "CUDA_GPU_MEMORY_USAGE_EVENTS",
        )
        rows(
            "samples",
            "SELECT s.value, count(*), sum(cpuCycles) FROM COMPOSITE_EVENTS e JOIN SAMPLING_CALLCHAINS c ON c.id = e.id AND c.stackDepth = 0 JOIN StringIds s ON s.id = c.symbol GROUP BY 1 ORDER BY 1",
            "COMPOSITE_EVENTS",
        )
    db.close()
    return found


def large(path: pathlib.Path, count: int) -> None:
    """Writes an export with `count` kernels and as many calls."""
    export = Export(is_current=True)
    names = [export.text(name) for name, _, _ in KERNELS]
    launch = export.text("cudaLaunchKernel_v7000")
    export.nvtx("step 0", 0, count * 10 * US)
    export.rest()
    export.write(path)

    def kernels() -> Iterator[tuple]:
        for index in range(count):
            start, name = 1_000 + index * 10 * US, names[index % 5]
            yield (
                start,
                start + 7 * US,
                index % 2,
                1,
                7 + index % 4,
                index + 1,
                PROCESS,
                name,
                name,
                name,
                1,
                0,
                32,
                64,
                2,
                1,
                128,
                1,
                1,
                1024,
                0,
                0,
                1 << 20,
                index,
                32768,
                None,
                0,
            )

    calls = (
        (index * 10 * US, index * 10 * US + 5 * US, 0, MAIN, index + 1, launch, 0, None)
        for index in range(count)
    )
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 27)})", kernels())
        db.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({', '.join('?' * 8)})", calls)
    db.close()


def main(arguments: list[str]) -> None:
    match arguments:
        case ["--figures", path]:
            print(json.dumps(figures(pathlib.Path(path)), indent=1))
        case ["--large", path, count]:
            large(pathlib.Path(path), int(count))
        case []:
            for name in ("current", "early"):
                export = Export(is_current=name == "current")
                export.job()
                export.rest()
                path = FOLDER / f"{name}.sqlite"
                path.parent.mkdir(parents=True, exist_ok=True)
                export.write(path)
                truth = FOLDER / f"{name}.truth/figures.json"
                truth.parent.mkdir(exist_ok=True)
                truth.write_text(json.dumps(figures(path), indent=1) + "\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
