//! Semantic classes of segments, which are the same for all frameworks and devices.

use stepscope_model::SliceKind;
use stepscope_model::vocabulary::kineto::Category;
use stepscope_store::Trace;

use super::CriticalPath;
use super::graph::SegmentKind;
use crate::slice_class::is_input;

/// Words of names by class; the first class with a matching word counts.
const WORDS: &[(&str, &[&str])] = &[
    (
        "optimizer",
        &[
            "multi_tensor_apply",
            "adam",
            "optimizer.step",
            "apply_updates",
        ],
    ),
    ("attention", &["attention", "flash_", "fmha", "attn"]),
    (
        "convolution",
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
        "matmul",
        &[
            "gemm",
            "gemv",
            "xmma",
            "cutlass",
            "nvjet",
            "cijk_",
            "wgmma",
            "matmul",
            "aten::mm",
            "addmm",
            "aten::bmm",
            "baddbmm",
            "aten::linear",
            "einsum",
            "dot_general",
            "cublas",
        ],
    ),
    (
        "softmax",
        &["softmax", "nll_loss", "cross_entropy", "logsumexp", "nll"],
    ),
    (
        "normalisation",
        &[
            "_norm",
            "layernorm",
            "layer_norm",
            "batchnorm",
            "bn_fw",
            "bn_bw",
        ],
    ),
    (
        "sort, random",
        &[
            "sort",
            "topk",
            "philox",
            "distribution",
            "normal_",
            "dropout",
            "rng-",
        ],
    ),
    (
        "embedding",
        &["embedding", "gather", "scatter", "index_", "indexing"],
    ),
    (
        "copy, layout",
        &[
            "memcpy",
            "memset",
            "catarray",
            "copy",
            "transpose",
            "aten::cat",
            "aten::to",
            "clone",
            "concatenate",
        ],
    ),
    (
        "reduction",
        &[
            "reduce",
            "triton_red",
            "triton_per",
            "argmax",
            "cumsum",
            "aten::sum",
            "aten::mean",
        ],
    ),
    (
        "element-wise",
        &[
            "elementwise",
            "triton_poi",
            "aten::add",
            "aten::mul",
            "relu",
            "gelu",
            "fusion",
        ],
    ),
];

/// Names of all classes, in the order of tables.
pub const CLASSES: [&str; 16] = [
    "matmul",
    "convolution",
    "attention",
    "softmax",
    "normalisation",
    "element-wise",
    "reduction",
    "embedding",
    "sort, random",
    "communication",
    "copy, layout",
    "optimizer",
    "input",
    "compile",
    "other",
    "host",
];

fn by_words(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    WORDS
        .iter()
        .find(|(_, words)| has(words))
        .map(|(class, _)| *class)
}

/// Returns the class of each segment: an index into [`CLASSES`]. One look at each name.
pub(super) fn classes(path: &CriticalPath<'_>) -> Vec<u8> {
    let graph = path.graph();
    let position = |class: &str| {
        let at = CLASSES.iter().position(|known| *known == class);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    };
    let names = by_name(path.trace, |name| by_words(name).map_or(u8::MAX, position));
    let (host, other) = (position("host"), position("other"));
    let (communication, copy) = (position("communication"), position("copy, layout"));
    let (input, compile) = (position("input"), position("compile"));
    let class = |segment: usize| {
        let Some((track, slice)) = path.segments.slice_of(segment) else {
            return host;
        };
        let slices = path.trace.slices(track);
        let name = slices.name[slice];
        let named = names.get(name.index()).copied().unwrap_or(u8::MAX);
        match graph.kind[segment] {
            SegmentKind::Communication => communication,
            SegmentKind::Copy => copy,
            SegmentKind::Compute if named == u8::MAX => other,
            SegmentKind::Compute => named,
            SegmentKind::Host => {
                let category = slices.category.get(slice);
                let kind = path.trace.kind(track, name, category);
                if is_input(kind, path.trace.name(name)) {
                    return input;
                }
                if kind == SliceKind::Compile {
                    return compile;
                }
                let is_operator =
                    Category::from_name(path.trace.name(category)) == Some(Category::Operator);
                if is_operator && named != u8::MAX {
                    named
                } else {
                    host
                }
            }
        }
    };
    (0..graph.len()).map(class).collect()
}

fn by_name(trace: &Trace, class: impl Fn(&str) -> u8) -> Vec<u8> {
    let id = |name: usize| stepscope_model::NameId(u32::try_from(name).unwrap_or(u32::MAX));
    (0..trace.name_count())
        .map(|name| class(trace.name(id(name))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_the_class() {
        for (name, class) in [
            ("ampere_sgemm_32x32_sliced1x4_nn", Some("matmul")),
            ("implicit_convolve_sgemm", Some("convolution")),
            ("flash_fwd_kernel", Some("attention")),
            ("void softmax_warp_forward", Some("softmax")),
            ("vectorized_elementwise_kernel", Some("element-wise")),
            ("aten::mm", Some("matmul")),
            ("k1", None),
        ] {
            assert_eq!(by_words(name), class, "{name}");
        }
        assert!(WORDS.iter().all(|(class, _)| CLASSES.contains(class)));
    }
}
