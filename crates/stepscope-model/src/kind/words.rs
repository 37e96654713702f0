//! Tables of patterns for [`SliceKind::from_name`](super::SliceKind::from_name), and their search.

use super::SliceKind;
use crate::vocabulary::collective::{communicates_in_lower_case, is_process_group_call};
use crate::vocabulary::kineto::PARAM_COMMS;

/// A pattern, in lower case, and where it matches.
pub(super) enum Match {
    /// Anywhere.
    Part(&'static str),
    /// At the beginning.
    Start(&'static str),
    /// Between characters that are neither letters nor digits.
    Word(&'static str),
    /// Anywhere except at the end of the second pattern, which names something else.
    PartNot(&'static str, &'static str),
    /// The name of a kernel or operation that communicates.
    Communication,
    /// A call of one of torch's process groups, such as `nccl:all_reduce`.
    ProcessGroupCall,
}

use Match::{Communication, Part, PartNot, ProcessGroupCall, Start, Word};

/// Patterns of annotations and operators.
pub(super) const LABELS: &[(SliceKind, &[Match])] = &[
    (
        SliceKind::UserLabel,
        &[Start("profilerstep"), Start("optimizer.")],
    ),
    (
        SliceKind::Collective,
        &[ProcessGroupCall, Start("c10d::"), Start(PARAM_COMMS)],
    ),
    (SliceKind::Input, &[Part("dataloader")]),
    // torch.compile's own annotations.
    (SliceKind::Compile, &[Part("(dynamo_timed)")]),
];

pub(super) const RUNTIME_CALLS: &[(SliceKind, &[Match])] = &[(
    SliceKind::Wait,
    &[
        Part("synchronize"),
        Part("waitevent_blocking"),
        Word("wait"),
    ],
)];

/// Patterns of device and host computation: operators, kernels and HLO instructions.
pub(super) const WORK: &[(SliceKind, &[Match])] = &[
    (
        SliceKind::Collective,
        &[
            Communication,
            Part("collective"),
            Part("crossdevicereduce"),
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
            // FBGEMM is a library that also holds operations on sparse features.
            PartNot("gemm", "fbgemm"),
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
            Part("permute"),
            Part("nchwtonhwc"),
            Part("nhwctonchw"),
            Part("dma_"),
            Part("nrt_tensor_"),
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
            Word("aten::stack"),
            Word("aten::repeat"),
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
            Part("logical_"),
            Part("bitwise_"),
            Part("_foreach_"),
            Part("upsample"),
            Word("aten::all"),
            Word("aten::any"),
            Word("aten::abs"),
            Word("aten::ne"),
            Word("aten::eq"),
            Word("aten::gt"),
            Word("aten::lt"),
            Word("aten::ge"),
            Word("aten::le"),
            Word("aten::sin"),
            Word("aten::cos"),
            Word("aten::sign"),
            Word("aten::erf"),
            Word("aten::floor"),
            Word("aten::ceil"),
            Word("aten::round"),
            Word("aten::reciprocal"),
            Word("aten::lerp"),
            Word("aten::addcmul"),
            Word("aten::addcdiv"),
            Word("aten::rsub"),
            Word("aten::elu"),
            Word("aten::masked_fill"),
            Word("aten::nonzero"),
            Word("aten::bucketize"),
            Word("aten::diff"),
            Word("aten::mse_loss"),
            Word("aten::l1_loss"),
            Word("aten::threshold"),
            Word("aten::rand"),
            Word("aten::randn"),
            Word("aten::randint"),
            Word("aten::randperm"),
            Word("aten::arange"),
            Word("aten::ones"),
            Word("aten::zeros"),
            Word("aten::full"),
            Word("aten::new_zeros"),
            Word("aten::bernoulli"),
        ],
    ),
];

/// Patterns of events on host threads: JAX, XLA, TensorFlow and the program itself.
pub(super) const HOST: &[(SliceKind, &[Match])] = &[
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
            Part("neuronx-cc"),
            Part("neuronx_cc"),
            Part("neuroncc"),
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
            Part("nrt_tensor_"),
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
    (SliceKind::Collective, &[Communication]),
];

/// HLO instructions that XLA's CPU threads run under their own names.
pub(super) const HLO_WORDS: &[&str] = &[
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
    // Collectives that XLA names after JAX's own functions.
    "psum",
    "psum_scatter",
    "ppermute",
    "all_gather",
    "all_to_all",
    "reduce_scatter",
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

/// Maximum number of bytes of a name to search.
pub(super) const MAX_BYTES: usize = 512;

/// Returns the first kind in the table with a pattern that matches `name`, which has at most
/// [`MAX_BYTES`].
pub(super) fn find(table: &[(SliceKind, &[Match])], name: &str) -> Option<SliceKind> {
    let mut buffer = [0; MAX_BYTES];
    let name = lowercase(name, &mut buffer);
    table
        .iter()
        .find(|(_, patterns)| patterns.iter().any(|pattern| pattern.is_in(name)))
        .map(|(kind, _)| *kind)
}

/// Returns whether `name`, of at most [`MAX_BYTES`], contains `part`, which is in lower case.
pub(super) fn contains(name: &str, part: &str) -> bool {
    lowercase(name, &mut [0; MAX_BYTES]).contains(part)
}

fn lowercase<'b>(name: &str, buffer: &'b mut [u8; MAX_BYTES]) -> &'b str {
    let Some(lower) = buffer.get_mut(..name.len()) else {
        return "";
    };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).unwrap_or_default()
}

impl Match {
    /// Returns whether the pattern matches `name`, which is in lower case.
    fn is_in(&self, name: &str) -> bool {
        match self {
            Part(part) => name.contains(part),
            Start(start) => name.starts_with(start),
            Word(word) => name.match_indices(word).any(|(at, _)| {
                let before = at.checked_sub(1).and_then(|at| name.as_bytes().get(at));
                let after = name.as_bytes().get(at + word.len());
                !before.is_some_and(u8::is_ascii_alphanumeric)
                    && !after.is_some_and(u8::is_ascii_alphanumeric)
            }),
            PartNot(part, other) => name
                .match_indices(part)
                .any(|(at, _)| !name[..at + part.len()].ends_with(other)),
            Communication => communicates_in_lower_case(name),
            ProcessGroupCall => is_process_group_call(name),
        }
    }
}
