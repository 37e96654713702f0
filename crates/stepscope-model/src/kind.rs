//! What a slice is about, for colour and for grouping.
//!
//! The kind is a reading of names and categories, not something that files hold. It decides the
//! colour of a slice in the viewer and the first split of an analysis; it never changes a number.

use crate::track::TrackKind;

macro_rules! kinds {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $value:literal, $label:literal; )+) => {
        /// What a slice is about. The numbers are part of the HTTP interface.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum SliceKind {
            $( $(#[doc = $doc])+ $variant = $value, )+
            /// None of the others.
            #[default]
            Other = 0,
        }

        impl SliceKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[Self::Other, $( Self::$variant, )+];

            /// The words on the legend.
            pub const fn label(self) -> &'static str {
                match self { Self::Other => "other", $( Self::$variant => $label, )+ }
            }
        }
    };
}

kinds! {
    /// Matrix products and convolutions.
    MatMul = 1, "matmul, conv";
    /// Attention.
    Attention = 2, "attention";
    /// Fused computations.
    Fusion = 3, "fusion";
    /// Element-wise work and reductions.
    Elementwise = 4, "element-wise, reduce";
    /// Copies and transfers, also memset.
    Copy = 5, "copy, transfer";
    /// Collective communication.
    Collective = 6, "collective";
    /// Host code, Python calls.
    Host = 7, "host, Python";
    /// Input pipeline.
    Input = 8, "input, data";
    /// Compilation.
    Compile = 9, "compile";
    /// Runtime calls and launches.
    Runtime = 10, "runtime, launch";
    /// Labels that the user put there, steps among them.
    UserLabel = 11, "user label";
    /// Waiting and synchronising.
    Wait = 12, "wait, sync";
}

impl SliceKind {
    /// Reads the kind off a slice's name, its category and its track.
    ///
    /// Rules, first match wins: what the category says for sure (`kernel`, `python_function`,
    /// `user_annotation`, runtime calls, copies), then the kind of track, then words in the name.
    /// Letters of either case are the same; of a long name the first 512 bytes are looked at.
    /// Allocates nothing. Costs about a microsecond, so callers remember the answer per name.
    pub fn of(name: &str, category: &str, track: TrackKind) -> Self {
        let name = cut(name);
        let family = CATEGORIES.iter().find(|(_, known)| {
            known
                .iter()
                .any(|known| known.eq_ignore_ascii_case(category))
        });
        match family.map(|(family, _)| *family) {
            Some(Family::Python) => Self::Host,
            Some(Family::Copy) => Self::Copy,
            Some(Family::Sync) => Self::Wait,
            Some(Family::Label) => find(LABELS, name).unwrap_or(Self::UserLabel),
            Some(Family::Runtime) => find(RUNTIME_CALLS, name).unwrap_or(Self::Runtime),
            Some(Family::Operator) => find(LABELS, name)
                .or_else(|| work(name))
                .unwrap_or(Self::Host),
            Some(Family::Device) => work(name).unwrap_or(Self::Other),
            None => match track {
                TrackKind::DeviceQueue => work(hlo_name(name)).unwrap_or(Self::Other),
                TrackKind::Steps => Self::UserLabel,
                _ => host(name),
            },
        }
    }
}

/// What a category says.
#[derive(Clone, Copy)]
enum Family {
    Python,
    Copy,
    Sync,
    Label,
    Runtime,
    Operator,
    Device,
}

/// Categories of PyTorch's profiler, 2020 until now, and of others that write the same format.
const CATEGORIES: &[(Family, &[&str])] = &[
    (Family::Python, &["python_function", "python"]),
    (
        Family::Copy,
        &["gpu_memcpy", "gpu_memset", "memcpy", "memset", "hip_memcpy"],
    ),
    (Family::Sync, &["cuda_sync", "hip_sync", "xpu_sync"]),
    (Family::Label, &["user_annotation", "gpu_user_annotation"]),
    (
        Family::Runtime,
        &[
            "cuda_runtime",
            "cuda_driver",
            "hip_runtime",
            "runtime",
            "xpu_runtime",
            "xpu_driver",
            "mtia_runtime",
            "privateuse1_runtime",
            "privateuse1_driver",
            "overhead",
            "hsa_api",
            "hip_api",
        ],
    ),
    (
        Family::Operator,
        &["cpu_op", "operator", "cpu_instant_event"],
    ),
    (
        Family::Device,
        &[
            "kernel",
            "cuda_profiler_range",
            "mtia_ccp_events",
            "mtia_insight",
            "xpu_kernel",
        ],
    ),
];

/// How a pattern is looked for. Patterns are in small letters.
enum Match {
    /// Anywhere.
    Part(&'static str),
    /// At the beginning.
    Start(&'static str),
    /// Between characters that are neither letters nor digits.
    Word(&'static str),
}

use Match::{Part, Start, Word};

/// Names that labels and operators share.
const LABELS: &[(SliceKind, &[Match])] = &[
    (
        SliceKind::UserLabel,
        &[Start("profilerstep"), Start("optimizer.")],
    ),
    (
        SliceKind::Collective,
        &[
            Part("nccl:"),
            Part("gloo:"),
            Part("rccl:"),
            Start("c10d::"),
            Part("record_param_comms"),
        ],
    ),
    (SliceKind::Input, &[Part("dataloader")]),
];

const RUNTIME_CALLS: &[(SliceKind, &[Match])] = &[(
    SliceKind::Wait,
    &[
        Part("synchronize"),
        Part("waitevent_blocking"),
        Word("wait"),
    ],
)];

/// Work, on a device or on a host: operators, kernels and HLO instructions.
const WORK: &[(SliceKind, &[Match])] = &[
    (
        SliceKind::Collective,
        &[
            Part("nccl"),
            Part("rccl"),
            Part("all-reduce"),
            Part("all_reduce"),
            Part("allreduce"),
            Part("all-gather"),
            Part("all_gather"),
            Part("allgather"),
            Part("reduce-scatter"),
            Part("reduce_scatter"),
            Part("reducescatter"),
            Part("all-to-all"),
            Part("all_to_all"),
            Part("alltoall"),
            Part("collective"),
            Part("cross_device_reduce"),
            Part("crossdevicereduce"),
            Part("msccl"),
            Part("oneccl"),
            Part("ppermute"),
            Part("c10d::"),
            Word("psum"),
            Word("send"),
            Word("recv"),
        ],
    ),
    (
        SliceKind::Wait,
        &[
            Word("wait"),
            Word("barrier"),
            Part("barrier-"),
            Part("spin_kernel"),
        ],
    ),
    (SliceKind::Input, &[Word("infeed"), Part("dataloader")]),
    (
        SliceKind::Attention,
        &[
            Part("attention"),
            Part("flash_"),
            Part("flashattn"),
            Part("fmha"),
            Part("attn"),
            Part("sdpa"),
            Part("scaled_dot_product"),
            Word("mha"),
            Word("mla"),
        ],
    ),
    (
        SliceKind::MatMul,
        &[
            Part("gemm"),
            Part("gemv"),
            Part("matmul"),
            Part("cutlass"),
            Part("xmma"),
            Part("cijk_"),
            Part("nvjet"),
            Part("cublas"),
            Part("wgmma"),
            Part("convolution"),
            Part("convolve"),
            Part("conv1d"),
            Part("conv2d"),
            Part("conv3d"),
            Part("winograd"),
            Part("scudnn"),
            Part("hcudnn"),
            Part("wgrad"),
            Part("dgrad"),
            Part("fprop"),
            Part("im2col"),
            Part("im3d2col"),
            Part("einsum"),
            Part("addmm"),
            Part("addbmm"),
            Part("baddbmm"),
            Part("mmbackward"),
            Word("conv"),
            Word("dot"),
            Word("mm"),
            Word("bmm"),
            Word("mv"),
            Part("asmconv"),
            Part("cask_cudnn"),
            Part("fft1d_"),
            Part("fft2d_"),
            Part("flip_filter"),
            Word("linear"),
        ],
    ),
    (
        SliceKind::Fusion,
        &[Part("fusion"), Start("triton_"), Part("_fused_kernel")],
    ),
    (
        SliceKind::Copy,
        &[
            Part("memcpy"),
            Part("memset"),
            Part("copy"),
            Part("fillbuffer"),
            Part("transpose"),
            Part("nchwtonhwc"),
            Part("nhwctonchw"),
            Part("dma_"),
            Part("kvcache"),
            Part("kv_cache"),
            Part("dynamic-slice"),
            Part("dynamic-update-slice"),
            Part("dynamic_slice"),
            Part("dynamic_update_slice"),
            Word("outfeed"),
            Word("concatenate"),
            Word("cat"),
            Word("contiguous"),
            Word("clone"),
            Word("gather"),
            Word("scatter"),
            Word("dma"),
            Word("pad"),
            Word("slice"),
            Word("aten::to"),
        ],
    ),
    (
        SliceKind::Elementwise,
        &[
            Part("elementwise"),
            Part("reduce"),
            Part("reduction"),
            Part("multi_tensor_apply"),
            Part("softmax"),
            Part("norm"),
            Part("bn_fw"),
            Part("bn_bw"),
            Part("pool"),
            Part("dropout"),
            Part("activation"),
            Part("sigmoid"),
            Part("gelu"),
            Part("silu"),
            Part("relu"),
            Part("tanh"),
            Part("rsqrt"),
            Part("philox"),
            Part("random"),
            Part("uniform"),
            Part("subtensorop"),
            Part("scalepackedtensor"),
            Part("gammabeta"),
            Part("criterion"),
            Part("greater"),
            Part("searchsorted"),
            Part("devicescan"),
            Part("devicereduce"),
            Part("radixsort"),
            Part("nll_loss"),
            Part("cross_entropy"),
            Part("embedding"),
            Part("index"),
            Part("eigenmetakernel"),
            Part("splitkreduce"),
            Part("epilogue"),
            Part("addfunctor"),
            Part("mulfunctor"),
            Word("add"),
            Word("mul"),
            Part("multiply"),
            Part("subtract"),
            Part("divide"),
            Part("exponential"),
            Part("compare"),
            Part("broadcast"),
            Part("maximum"),
            Part("minimum"),
            Word("sub"),
            Word("div"),
            Word("exp"),
            Word("log"),
            Word("pow"),
            Word("sqrt"),
            Word("neg"),
            Word("sum"),
            Word("mean"),
            Word("max"),
            Word("min"),
            Word("amax"),
            Word("argmax"),
            Word("clamp"),
            Word("where"),
            Word("select"),
            Word("convert"),
            Word("cast"),
            Word("iota"),
            Word("sort"),
            Word("cumsum"),
            Word("topk"),
            Word("scan"),
            Word("fill"),
            Word("zero"),
            Word("map"),
            Word("negate"),
            Word("power"),
            Word("rng"),
        ],
    ),
];

/// Names that host threads of JAX, XLA, TensorFlow and of the program itself bear.
const HOST: &[(SliceKind, &[Match])] = &[
    (
        SliceKind::Host,
        &[
            Start("$"),
            Start("<built-in"),
            Start("<frozen"),
            Start("nn.module:"),
            Part(".py:"),
            Part(".py("),
            Part("pythonrefmanager"),
        ],
    ),
    (
        SliceKind::UserLabel,
        &[
            Start("profilerstep"),
            Start("stepmarker"),
            Start("optimizer."),
        ],
    ),
    (
        SliceKind::Wait,
        &[
            Part("synchronize"),
            Part("blockuntil"),
            Part("blockhostuntil"),
            Part("block_until_ready"),
            Part("(wait "),
            Part("await"),
            Part("collectionbarrier"),
            Part("sequencingevent"),
            Start("wait"),
            Word("wait"),
            Word("waiting"),
            Word("sync"),
            Word("barrier"),
            Word("sleep"),
            Word("idle"),
        ],
    ),
    (
        SliceKind::Compile,
        &[
            Part("compil"),
            Part("codegen"),
            Part("hlo passes"),
            Part("mlir::"),
            Part("llvm"),
            Part("jaxpr"),
            Part("thunkemitter"),
            Part("lower_"),
            Part("lowering"),
            Part("lowerto"),
            Part("passmanager"),
            Part("inliner"),
            Part("canonicaliz"),
            Part("autotun"),
        ],
    ),
    (
        SliceKind::Input,
        &[
            Part("dataloader"),
            Part("data_loader"),
            Part("iterator::"),
            Part("tf_data"),
            Part("prefetch"),
            Part("infeed"),
            Part("dataset"),
            Word("wait_for_batch"),
        ],
    ),
    (
        SliceKind::Copy,
        &[
            Part("memcpy"),
            Part("transferto"),
            Part("transferfrom"),
            Part("transfer_to"),
            Part("transfer_from"),
            Part("deviceput"),
            Part("device_put"),
            Part("batched_copy"),
            Part("batchedcopy"),
            Part("copyto"),
            Part("copyfrom"),
            Part("copyraw"),
            Part("mapdmabuffer"),
            Part("linearize"),
            Part("toliteral"),
            Part("h2d"),
            Part("d2h"),
        ],
    ),
    (
        SliceKind::Runtime,
        &[
            Part("::"),
            Part("pjitfunction"),
            Part("pjrt"),
            Part("tfrt"),
            Part("execute"),
            Part("launch"),
            Part("enqueue"),
            Part("dispatch"),
            Part("executor"),
            Part("threadpool"),
            Part("schedulework"),
            Part("allocat"),
            Part("loadprogram"),
            Part("shard_args"),
            Part("parsearguments"),
            Part("handle inputs"),
            Part("handle input event"),
            Part("synclivetensors"),
            Part("synctensorsgraph"),
            Start("cuda"),
            Start("hip"),
            Start("cu_"),
        ],
    ),
];

/// HLO instructions that XLA's CPU threads run under their own names.
const HLO_WORDS: &[&str] = &[
    "dot",
    "convolution",
    "reduce",
    "reduce-window",
    "broadcast",
    "copy",
    "copy-start",
    "copy-done",
    "transpose",
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective-permute",
    "gather",
    "scatter",
    "sort",
    "concatenate",
    "dynamic-slice",
    "dynamic-update-slice",
    "slice",
    "pad",
    "iota",
    "select",
    "compare",
    "convert",
    "add",
    "multiply",
    "subtract",
    "divide",
    "maximum",
    "minimum",
    "exponential",
    "rng-bit-generator",
];

fn cut(name: &str) -> &str {
    const MOST: usize = 512;
    if name.len() <= MOST {
        return name;
    }
    let end = (0..=MOST).rev().find(|end| name.is_char_boundary(*end));
    name.get(..end.unwrap_or(0)).unwrap_or("")
}

fn work(name: &str) -> Option<SliceKind> {
    find(WORK, name)
}

/// `%copy-start.4` of `%copy-start.4 = (f32[5,1024]{1,0}, ...) copy-start(...)`.
fn hlo_name(name: &str) -> &str {
    if name.starts_with('%') {
        name.split_once(" = ").map_or(name, |(head, _)| head)
    } else {
        name
    }
}

/// On a host thread, without a category that says more.
fn host(name: &str) -> SliceKind {
    // XLA's CPU threads show the instructions that they run, and when they end.
    let instruction = name.strip_prefix("end: ").unwrap_or(name);
    let base = instruction
        .split_once('.')
        .map_or(instruction, |(base, _)| base);
    if contains(base, "fusion") && !contains(base, "::") && !contains(base, "compil")
        || base.starts_with("wrapped_")
        || HLO_WORDS.contains(&base)
        || base.starts_with("void ")
    {
        return work(instruction).unwrap_or(SliceKind::Other);
    }
    if let Some(kind) = find(HOST, name) {
        return kind;
    }
    if contains(name, "nccl") || contains(name, "allreduce") || contains(name, "all_reduce") {
        return SliceKind::Collective;
    }
    if is_label(name) {
        SliceKind::UserLabel
    } else {
        SliceKind::Host
    }
}

/// Programs label their parts in small letters (`train_step`, `data prep`); runtimes name theirs
/// like types and functions of C++.
fn is_label(name: &str) -> bool {
    name.starts_with(|first: char| first.is_lowercase())
        && !name.contains(|letter: char| letter.is_uppercase())
}

fn find(table: &[(SliceKind, &[Match])], name: &str) -> Option<SliceKind> {
    table
        .iter()
        .find(|(_, patterns)| patterns.iter().any(|pattern| pattern.is_in(name)))
        .map(|(kind, _)| *kind)
}

impl Match {
    fn is_in(&self, name: &str) -> bool {
        match self {
            Part(part) => contains(name, part),
            Start(start) => begins(name.as_bytes(), start),
            Word(word) => positions(name, word).any(|at| {
                let before = at.checked_sub(1).and_then(|at| name.as_bytes().get(at));
                let after = name.as_bytes().get(at + word.len());
                !before.is_some_and(u8::is_ascii_alphanumeric)
                    && !after.is_some_and(u8::is_ascii_alphanumeric)
            }),
        }
    }
}

fn contains(name: &str, part: &str) -> bool {
    positions(name, part).next().is_some()
}

fn begins(name: &[u8], start: &str) -> bool {
    name.get(..start.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(start.as_bytes()))
}

/// Where `part`, which is in small letters, occurs in letters of either case.
fn positions<'n>(name: &'n str, part: &'n str) -> impl Iterator<Item = usize> + 'n {
    let name = name.as_bytes();
    let first = part.as_bytes().first().copied().unwrap_or(0);
    (0..name.len())
        .filter(move |at| name[*at].to_ascii_lowercase() == first && begins(&name[*at..], part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(category: &str, track: TrackKind, expected: &[(&str, SliceKind)]) {
        for (name, kind) in expected {
            let found = SliceKind::of(name, category, track);
            assert_eq!(found, *kind, "{category:?} {track:?} {name:?}");
        }
    }

    #[test]
    fn kernels_of_torch() {
        let expected = [
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                SliceKind::Collective,
            ),
            (
                "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >",
                SliceKind::Attention,
            ),
            (
                "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)",
                SliceKind::Attention,
            ),
            (
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
                SliceKind::MatMul,
            ),
            (
                "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x1",
                SliceKind::MatMul,
            ),
            ("ampere_sgemm_32x32_sliced1x4_tn", SliceKind::MatMul),
            (
                "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
                SliceKind::MatMul,
            ),
            (
                "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)",
                SliceKind::MatMul,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >",
                SliceKind::Elementwise,
            ),
            (
                "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float> >",
                SliceKind::Elementwise,
            ),
            (
                "void cub::DeviceScanKernel<cub::DeviceScanPolicy<int>::Policy600, int*>",
                SliceKind::Elementwise,
            ),
            (
                "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512>",
                SliceKind::Elementwise,
            ),
            (
                "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>",
                SliceKind::Copy,
            ),
            (
                "void nchwToNhwcKernel<float, float, float, true, false>",
                SliceKind::Copy,
            ),
            (
                "triton_poi_fused_add_native_layer_norm_3",
                SliceKind::Fusion,
            ),
            ("__missing__", SliceKind::Other),
        ];
        check("kernel", TrackKind::DeviceQueue, &expected);
        check("Kernel", TrackKind::DeviceQueue, &expected);
    }

    #[test]
    fn the_rest_of_torch() {
        check(
            "Memcpy",
            TrackKind::DeviceQueue,
            &[("Memcpy HtoD (Pageable -> Device)", SliceKind::Copy)],
        );
        check(
            "gpu_memset",
            TrackKind::DeviceQueue,
            &[("Memset (Device)", SliceKind::Copy)],
        );
        check(
            "cuda_runtime",
            TrackKind::Thread,
            &[
                ("cudaLaunchKernel", SliceKind::Runtime),
                ("cudaMemcpyAsync", SliceKind::Runtime),
                ("cudaDeviceSynchronize", SliceKind::Wait),
                ("hipExtModuleLaunchKernel", SliceKind::Runtime),
            ],
        );
        check(
            "Runtime",
            TrackKind::Thread,
            &[("cudaStreamSynchronize", SliceKind::Wait)],
        );
        check(
            "cuda_sync",
            TrackKind::DeviceQueue,
            &[("Stream Wait Event", SliceKind::Wait)],
        );
        check(
            "python_function",
            TrackKind::Thread,
            &[
                (
                    "torch/nn/modules/module.py(1779): _call_impl",
                    SliceKind::Host,
                ),
                ("<built-in function linear>", SliceKind::Host),
            ],
        );
        check(
            "user_annotation",
            TrackKind::Thread,
            &[
                ("ProfilerStep#6", SliceKind::UserLabel),
                ("## backward ##", SliceKind::UserLabel),
                ("DistributedDataParallel.forward", SliceKind::UserLabel),
                ("nccl:all_reduce", SliceKind::Collective),
                (
                    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                    SliceKind::Input,
                ),
            ],
        );
        check(
            "Operator",
            TrackKind::Thread,
            &[("Optimizer.step#SGD.step", SliceKind::UserLabel)],
        );
        check(
            "cpu_op",
            TrackKind::Thread,
            &[
                ("aten::addmm", SliceKind::MatMul),
                ("aten::mm", SliceKind::MatMul),
                ("aten::linear", SliceKind::MatMul),
                ("aten::cudnn_convolution", SliceKind::MatMul),
                (
                    "aten::_scaled_dot_product_flash_attention",
                    SliceKind::Attention,
                ),
                ("aten::copy_", SliceKind::Copy),
                ("aten::add_", SliceKind::Elementwise),
                ("aten::native_layer_norm", SliceKind::Elementwise),
                ("aten::empty_strided", SliceKind::Host),
                ("aten::view", SliceKind::Host),
                ("c10d::allreduce_", SliceKind::Collective),
                (
                    "autograd::engine::evaluate_function: AddmmBackward0",
                    SliceKind::MatMul,
                ),
            ],
        );
        check(
            "mtia_ccp_events",
            TrackKind::DeviceQueue,
            &[
                ("event_wait", SliceKind::Wait),
                ("dma_request", SliceKind::Copy),
            ],
        );
    }

    #[test]
    fn instructions_of_xla() {
        check(
            "",
            TrackKind::DeviceQueue,
            &[
                (
                    "%copy-start.4 = (f32[5,1024,1024,256]{3,2,1,0:T(8,128)}, f32[5])",
                    SliceKind::Copy,
                ),
                (
                    "%broadcast_add_fusion.1 = f32[5,1024,1024,256]{3,2,1,0:T(8,128)} fusion(",
                    SliceKind::Fusion,
                ),
                (
                    "%all-reduce = f32[5,1024]{1,0} all-reduce(f32[5,1024] %x)",
                    SliceKind::Collective,
                ),
                ("fusion.12", SliceKind::Fusion),
                ("convolution.3", SliceKind::MatMul),
                ("dot.123", SliceKind::MatMul),
                ("gemm_fusion_dot_general_1.kd", SliceKind::MatMul),
                ("loop_reduce_fusion_3.kd", SliceKind::Fusion),
                (
                    "void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaFwdKernel>",
                    SliceKind::Attention,
                ),
                ("__amd_rocclr_fillBufferAligned.kd", SliceKind::Copy),
                ("MemcpyD2H", SliceKind::Copy),
                ("barrier-cores", SliceKind::Wait),
                ("dependency-wait", SliceKind::Wait),
                ("while.7", SliceKind::Other),
                ("infeed.1", SliceKind::Input),
            ],
        );
        check("", TrackKind::Steps, &[("12", SliceKind::UserLabel)]);
        check(
            "",
            TrackKind::Thread,
            &[
                ("dot.1", SliceKind::MatMul),
                ("end: dot", SliceKind::MatMul),
                ("multiply_subtract_fusion.1", SliceKind::Fusion),
                ("wrapped_reduce", SliceKind::Elementwise),
                ("reduce-window.1", SliceKind::Elementwise),
            ],
        );
    }

    #[test]
    fn host_threads_of_jax_and_xla() {
        check(
            "",
            TrackKind::Thread,
            &[
                ("$pjit.py:250 cache_miss", SliceKind::Host),
                ("PjitFunction(train_step)", SliceKind::Runtime),
                (
                    "CommonPjRtLoadedExecutable::ExecutePrepare",
                    SliceKind::Runtime,
                ),
                ("TfrtCpuExecutable::Execute", SliceKind::Runtime),
                (
                    "ThunkExecutor::Execute (wait for completion)",
                    SliceKind::Wait,
                ),
                ("Wait for donation holds", SliceKind::Wait),
                ("backend_compile_and_load", SliceKind::Compile),
                ("lower_sharding_computation", SliceKind::Compile),
                ("FusionCompiler::Compile", SliceKind::Compile),
                ("mlir::detail::OpToOpPassAdaptor", SliceKind::Compile),
                ("HLO passes through layout assignment", SliceKind::Compile),
                ("DevicePut", SliceKind::Copy),
                ("tpu::System::TransferFromDevice", SliceKind::Copy),
                ("PCIe/Memcpy Dispatch", SliceKind::Copy),
                ("ScheduleWork", SliceKind::Runtime),
                ("StepMarker", SliceKind::UserLabel),
                ("train", SliceKind::UserLabel),
                ("data_prep", SliceKind::UserLabel),
                ("train_step_loss_and_backward", SliceKind::UserLabel),
                ("optimizer_step", SliceKind::UserLabel),
                ("Iterator::Prefetch", SliceKind::Input),
                ("PythonRefManager::CollectGarbage", SliceKind::Host),
                ("", SliceKind::Host),
            ],
        );
    }

    #[test]
    fn ten_megabytes_of_name_are_cut() {
        let name = "ä".repeat(5 << 20) + "gemm";
        let kind = SliceKind::of(&name, "kernel", TrackKind::DeviceQueue);
        assert_eq!(kind, SliceKind::Other);
    }
}
