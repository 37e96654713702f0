//! Semantic class of an operation: names differ between frameworks and devices, classes do not.
//!
//! Comparisons, the critical path and what-if scenarios use the same classes.

use stepscope_model::vocabulary::collective::communicates_in_lower_case;
use stepscope_model::vocabulary::kineto::PARAM_COMMS;
use stepscope_model::vocabulary::xla::JAX_BACKWARD;

/// What an operation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpClass {
    /// Matrix products.
    Matmul,
    /// Convolutions.
    Convolution,
    /// Attention.
    Attention,
    /// Softmax and losses.
    Softmax,
    /// Normalisation layers.
    Normalisation,
    /// Element-wise arithmetic.
    Elementwise,
    /// Reductions.
    Reduction,
    /// Embeddings, gather and scatter.
    Gather,
    /// Sorting and random numbers.
    SortRandom,
    /// Communication between ranks.
    Communication,
    /// Copies and changes of layout.
    Copy,
    /// Updates of parameters.
    Optimizer,
    /// The input pipeline.
    Input,
    /// Compilation.
    Compile,
    /// Other activity of the host.
    Host,
    /// None of the others.
    #[default]
    Other,
}

impl OpClass {
    /// All classes.
    pub const ALL: [Self; 16] = [
        Self::Matmul,
        Self::Convolution,
        Self::Attention,
        Self::Softmax,
        Self::Normalisation,
        Self::Elementwise,
        Self::Reduction,
        Self::Gather,
        Self::SortRandom,
        Self::Communication,
        Self::Copy,
        Self::Optimizer,
        Self::Input,
        Self::Compile,
        Self::Host,
        Self::Other,
    ];

    /// Returns the word used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Matmul => "matmul",
            Self::Convolution => "convolution",
            Self::Attention => "attention",
            Self::Softmax => "softmax, loss",
            Self::Normalisation => "normalisation",
            Self::Elementwise => "element-wise",
            Self::Reduction => "reduction",
            Self::Gather => "embedding, gather, scatter",
            Self::SortRandom => "sort, random",
            Self::Communication => "communication",
            Self::Copy => "copy, layout",
            Self::Optimizer => "optimizer",
            Self::Input => "input",
            Self::Compile => "compile",
            Self::Host => "host",
            Self::Other => "other",
        }
    }

    /// Returns the name's part before its first comma, as what-if selectors have it: `softmax`.
    pub fn short_name(self) -> &'static str {
        let name = self.as_str();
        name.split_once(',').map_or(name, |(first, _)| first)
    }

    /// Returns the class of a word of [`as_str`](Self::as_str), or of its part before the first comma: `softmax`.
    pub fn from_name(word: &str) -> Option<Self> {
        let first = |class: &Self| class.short_name() == word;
        let exact = Self::ALL.into_iter().find(|class| class.as_str() == word);
        exact.or_else(|| Self::ALL.into_iter().find(first))
    }

    /// Returns the class of a framework operation and the kernel that it launched; either may be empty. The operation
    /// decides, and the kernel where the operation is unknown.
    pub fn from_names(operation: &str, kernel: &str) -> Self {
        [operation, kernel]
            .into_iter()
            .map(Self::from_name_of_work)
            .find(|class| *class != Self::Other)
            .unwrap_or_default()
    }

    /// Returns the class that a name of an operator, an HLO operation or a kernel suggests.
    ///
    /// In a path of scopes, such as `jit(f)/transpose(jvp(Encoder))/mul`, the operation at its end decides, except
    /// inside of [composite functions](Self::is_composite); scopes decide where the operation is unknown.
    fn from_name_of_work(name: &str) -> Self {
        // In JAX, `transpose(jvp(f))` is the backward pass of `f`, not a change of layout.
        let name = name.to_ascii_lowercase().replace(JAX_BACKWARD, "((");
        let operation = name.rsplit('/').next().unwrap_or(&name);
        let known = from_last_word(operation, operation.len() < name.len());
        if known == Self::Other && communicates(operation) {
            return Self::Communication;
        }
        let is_named = |class: Self, words: &[&str]| {
            if class.is_composite() {
                contains_any(&name, words)
            } else {
                known == Self::Other && contains_any(operation, words)
            }
        };
        let first = |is_named: &dyn Fn(Self, &[&str]) -> bool| {
            let mut classes = CONTAINED.iter();
            let found = classes.find(|(class, words)| is_named(*class, words));
            found.map(|(class, _)| *class)
        };
        first(&is_named)
            .or((known != Self::Other).then_some(known))
            .or_else(|| communicates(&name).then_some(Self::Communication))
            .or_else(|| first(&|_, words| contains_any(&name, words)))
            .unwrap_or_default()
    }

    /// Returns whether functions of this class consist of operations of other classes, which only a scope around
    /// them shows: `jit(f)/softmax/exp`.
    const fn is_composite(self) -> bool {
        matches!(
            self,
            Self::Attention | Self::Optimizer | Self::Softmax | Self::Normalisation
        )
    }
}

/// Returns whether a name contains one of the words. `convert` does not contain `conv`: it changes a type.
fn contains_any(name: &str, words: &[&str]) -> bool {
    words.iter().any(|word| {
        let mut found = name.match_indices(word);
        found.any(|(at, _)| *word != "conv" || !name[at..].starts_with("convert"))
    })
}

/// Returns whether an operator or a scope of this name, in lower case, communicates. The vocabulary knows kernels and
/// HLO operations; the operators of torch and JAX are added here.
fn communicates(name: &str) -> bool {
    const OPERATORS: &[&str] = &[
        "c10d::",
        "gloo:",
        "collective_permute",
        "ppermute",
        "psum",
        "broadcast_coalesced",
        PARAM_COMMS,
    ];
    communicates_in_lower_case(name) || contains_any(name, OPERATORS)
}

/// Parts of names, the first match counts; [`communicates`] comes before all. Longer words of a class come before
/// shorter ones of another.
const CONTAINED: &[(OpClass, &[&str])] = &[
    (
        OpClass::Attention,
        &[
            "scaled_dot_product",
            "flash_attn",
            "flash_attention",
            "flash_fwd",
            "flash_bwd",
            "_flash_",
            "efficient_attention",
            "fmha",
            "fused_attn",
            "paged_attention",
            "attention",
            "attn",
        ],
    ),
    (
        OpClass::Optimizer,
        &[
            "multi_tensor_apply",
            "_fused_adam",
            "fused_adam",
            "_foreach_",
            "optimizer",
            "apply_updates",
            "adam",
        ],
    ),
    (
        OpClass::Convolution,
        &[
            "conv",
            "implicit_gemm",
            "winograd",
            "wgrad",
            "dgrad",
            "igemm",
            "miopensp3",
        ],
    ),
    (
        OpClass::Matmul,
        &[
            "gemm",
            "gemv",
            "matmul",
            "cublas",
            "xmma",
            "cutlass",
            "nvjet",
            "cijk_",
            "wgmma",
            "aten::mm",
            "addmm",
            "bmm",
            "dot_general",
            "_scaled_mm",
            "aten::linear",
            "einsum",
            "splitk",
        ],
    ),
    (
        OpClass::Softmax,
        &[
            "softmax",
            "logsumexp",
            "cross_entropy",
            "nll",
            "crossentropy",
        ],
    ),
    (
        OpClass::Normalisation,
        &[
            "_norm",
            "layernorm",
            "layer_norm",
            "batchnorm",
            "rmsnorm",
            "bn_fw",
            "bn_bw",
            "norm_kernel",
        ],
    ),
    (
        OpClass::Copy,
        &[
            "memcpy",
            "memset",
            "aten::copy",
            "aten::clone",
            "aten::contiguous",
            "aten::to",
            "_to_copy",
            "aten::cat",
            "aten::stack",
            "catarray",
            "transpose",
            "reshape",
            "bitcast",
            "concatenate",
            "copy_",
            "direct_copy",
            "aten::fill_",
            "aten::zero_",
        ],
    ),
    (
        OpClass::Gather,
        &[
            "embedding",
            "gather",
            "scatter",
            "index",
            "dynamic-slice",
            "dynamic_slice",
            "dynamic-update",
            "dynamic_update",
        ],
    ),
    (
        OpClass::SortRandom,
        &[
            "sort",
            "topk",
            "philox",
            "distribution",
            "dropout",
            "threefry",
            "rng",
            "random",
            "normal_",
        ],
    ),
    (
        OpClass::Reduction,
        &[
            "reduce",
            "triton_red",
            "triton_per",
            "cumsum",
            "argmax",
            "argmin",
        ],
    ),
    (
        OpClass::Elementwise,
        &[
            "elementwise",
            "triton_poi",
            "loop_fusion",
            "convert",
            "relu",
            "gelu",
            "silu",
            "sigmoid",
            "tanh",
        ],
    ),
];

/// Returns the class of the last word of an operation, such as `aten::add_` or `mul`. `in_scopes`: the operation ends
/// a path of JAX, where `max` and `min` compare two values.
fn from_last_word(operation: &str, in_scopes: bool) -> OpClass {
    let last = operation.rsplit(':').next().unwrap_or(operation);
    let last = last
        .split(['.', '(', '<'])
        .next()
        .unwrap_or(last)
        .trim_matches('_');
    match last {
        "mm" | "dot" | "mv" | "outer" | "addmv" => OpClass::Matmul,
        "norm" | "native_layer_norm" => OpClass::Normalisation,
        "max" | "min" if in_scopes => OpClass::Elementwise,
        "sum" | "mean" | "max" | "min" | "amax" | "amin" | "any" | "all" | "prod" | "var"
        | "std" => OpClass::Reduction,
        "copy" | "clone" | "pad" | "slice" | "cat" | "to" | "contiguous" | "concat" => {
            OpClass::Copy
        }
        "sort" | "topk" | "top_k" => OpClass::SortRandom,
        "add"
        | "sub"
        | "mul"
        | "div"
        | "pow"
        | "where"
        | "exp"
        | "log"
        | "sqrt"
        | "rsqrt"
        | "neg"
        | "abs"
        | "convert"
        | "select"
        | "compare"
        | "maximum"
        | "minimum"
        | "eq"
        | "ne"
        | "lt"
        | "gt"
        | "le"
        | "ge"
        | "threshold_backward"
        | "addcmul"
        | "addcdiv"
        | "lerp"
        | "clamp"
        | "add_any"
        | "integer_pow"
        | "select_n"
        | "convert_element_type" => OpClass::Elementwise,
        _ => OpClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_each_framework_have_the_same_class() {
        for (operation, kernel, expected) in [
            ("aten::addmm", "ampere_sgemm_128x64_tn", OpClass::Matmul),
            ("jit(step)/dot_general", "fusion.7", OpClass::Matmul),
            ("", "Cijk_Ailk_Bljk_HHS_BH_MT64x64", OpClass::Matmul),
            ("aten::cudnn_convolution", "", OpClass::Convolution),
            ("aten::miopen_convolution", "", OpClass::Convolution),
            ("aten::_flash_attention_forward", "", OpClass::Attention),
            ("aten::copy_", "", OpClass::Copy),
            ("aten::clone", "", OpClass::Copy),
            ("jit(step)/mul", "loop_fusion", OpClass::Elementwise),
            (
                "aten::sum",
                "void at::native::reduce_kernel",
                OpClass::Reduction,
            ),
            ("c10d::allreduce_", "", OpClass::Communication),
            (
                "",
                "ncclDevKernel_AllReduce_Sum_bf16",
                OpClass::Communication,
            ),
            (
                "main",
                "void at::native::vectorized_elementwise_kernel",
                OpClass::Elementwise,
            ),
            ("", "implicit_convolve_sgemm", OpClass::Convolution),
            (
                "",
                "void vllm::cross_device_reduce_1stage<half>",
                OpClass::Communication,
            ),
            ("broadcast_coalesced", "", OpClass::Communication),
            ("", "void softmax_warp_forward", OpClass::Softmax),
            ("aten::topk", "", OpClass::SortRandom),
            ("aten::to", "", OpClass::Copy),
            ("aten::max", "", OpClass::Reduction),
            ("", "wrapped_convert", OpClass::Elementwise),
            ("", "convert_convolution_fusion", OpClass::Convolution),
            ("train_step", "", OpClass::Other),
            ("train_step", "k1", OpClass::Other),
        ] {
            assert_eq!(
                OpClass::from_names(operation, kernel),
                expected,
                "{operation} {kernel}"
            );
        }
    }

    #[test]
    fn operation_at_the_end_of_a_path_decides() {
        for (path, expected) in [
            ("jit(f)/jvp(g)/mul", OpClass::Elementwise),
            ("jit(f)/transpose(jvp(g))/mul", OpClass::Elementwise),
            ("jit(f)/transpose(jvp(g))/reduce_sum", OpClass::Reduction),
            ("jit(f)/transpose(jvp(g))/dot_general", OpClass::Matmul),
            ("jit(f)/transpose(jvp(g))/transpose", OpClass::Copy),
            ("jit(f)/convert_element_type", OpClass::Elementwise),
            ("jit(f)/jit(relu)/max", OpClass::Elementwise),
            ("jit(f)/top_k", OpClass::SortRandom),
            ("jit(f)/conv_block/add", OpClass::Elementwise),
            ("jit(f)/conv_block/custom_call", OpClass::Convolution),
            ("jit(f)/transpose(jvp(g))/custom_call", OpClass::Other),
            ("jit(f)/jit(softmax)/exp", OpClass::Softmax),
            (
                "jit(f)/transpose(jvp(layernorm_0))/sub",
                OpClass::Normalisation,
            ),
            ("jit(f)/attention/dot_general", OpClass::Attention),
            ("jit(f)/attention/psum", OpClass::Communication),
        ] {
            assert_eq!(OpClass::from_names(path, ""), expected, "{path}");
        }
    }

    #[test]
    fn words_of_classes_are_unique() {
        for class in OpClass::ALL {
            assert_eq!(OpClass::from_name(class.as_str()), Some(class));
            let short = class.as_str().split(',').next().unwrap();
            assert_eq!(OpClass::from_name(short), Some(class));
        }
        assert_eq!(OpClass::from_name("soft"), None);
        assert_eq!(OpClass::from_name(""), None);
    }
}
