//! Values of every formula, computed by hand.

mod absurd_inputs;

use super::*;

/// Inputs as `(shape, type, strides, value)`.
fn cost(name: &str, inputs: &[(&str, &str, &str, &str)]) -> Option<(u64, u64)> {
    let list = |part: fn(&(&str, &str, &str, &str)) -> String| {
        format!(
            "[{}]",
            inputs.iter().map(part).collect::<Vec<_>>().join(", ")
        )
    };
    let dims = list(|input| input.0.to_owned());
    let types = list(|input| format!("\"{}\"", input.1));
    let strides = list(|input| input.2.to_owned());
    let concrete = list(|input| format!("\"{}\"", input.3));
    let args = CallArgs {
        dims: &dims,
        types: &types,
        strides: &strides,
        concrete: &concrete,
    };
    let cost = Model::from_name(name)?.cost(name, args)?;
    Some((cost.flops, cost.bytes))
}

const fn tensor<'a>(
    dims: &'a str,
    data_type: &'a str,
) -> (&'a str, &'a str, &'static str, &'static str) {
    (dims, data_type, "", "")
}

const fn value(value: &str) -> (&'static str, &'static str, &'static str, &str) {
    ("[]", "Scalar", "[]", value)
}

const fn list(value: &str) -> (&'static str, &'static str, &'static str, &str) {
    ("[]", "ScalarList", "[]", value)
}

const NONE: (&str, &str, &str, &str) = ("[]", "", "[]", "");

fn product_count(name: &str, dims: &str, concrete: &str) -> Option<u64> {
    match product_flops(name, dims, concrete) {
        ProductFlops::Counted(flops) => Some(flops),
        ProductFlops::Empty | ProductFlops::Unknown => None,
    }
}

#[test]
fn products_count_two_for_each_multiplication() {
    let bf16 = "c10::BFloat16";
    // Elements: 6 + 12 + 8.
    assert_eq!(
        cost(
            "aten::mm",
            &[tensor("[2, 3]", bf16), tensor("[3, 4]", bf16)]
        ),
        Some((48, 2 * 26))
    );
    let addmm = |beta: &'static str| {
        cost(
            "aten::addmm",
            &[
                tensor("[4]", "float"),
                tensor("[2, 3]", "float"),
                tensor("[3, 4]", "float"),
                value(beta),
                value("1"),
            ],
        )
    };
    assert_eq!(addmm("1"), Some((48, 4 * 30)));
    assert_eq!(
        addmm("0"),
        Some((48, 4 * 26)),
        "an addend times 0 is not read"
    );
    assert_eq!(
        cost(
            "aten::bmm",
            &[tensor("[5, 2, 3]", "float"), tensor("[5, 3, 4]", "float")]
        ),
        Some((240, 4 * 5 * 26))
    );
    // A batch that shares its second factor.
    assert_eq!(
        cost(
            "aten::bmm",
            &[
                ("[5, 2, 3]", "float", "[6, 3, 1]", ""),
                ("[5, 3, 4]", "float", "[0, 4, 1]", "")
            ]
        ),
        Some((240, 4 * (30 + 12 + 40)))
    );
    assert_eq!(
        cost(
            "aten::linear",
            &[
                tensor("[7, 2, 3]", bf16),
                tensor("[4, 3]", bf16),
                tensor("[4]", bf16)
            ]
        ),
        Some((2 * 14 * 3 * 4, 2 * (42 + 12 + 4 + 56)))
    );
    assert_eq!(
        cost(
            "aten::matmul",
            &[tensor("[5, 1, 2, 3]", bf16), tensor("[6, 3, 4]", bf16)]
        ),
        Some((2 * 30 * 2 * 3 * 4, 2 * (30 + 72 + 240)))
    );
    assert_eq!(
        cost("aten::matmul", &[tensor("[3]", bf16), tensor("[3]", bf16)]),
        Some((6, 2 * 7))
    );
    // Eight bits, scales for each row and column, result in BF16.
    let fp8 = "c10::Float8_e4m3fn";
    assert_eq!(
        cost(
            "aten::_scaled_mm",
            &[
                tensor("[16, 32]", fp8),
                tensor("[32, 8]", fp8),
                tensor("[16, 1]", "float"),
                tensor("[1, 8]", "float"),
                NONE,
                NONE,
                value("15"),
                value("True")
            ]
        ),
        Some((2 * 16 * 32 * 8, 512 + 256 + 64 + 32 + 2 * 128))
    );
    assert_eq!(
        cost(
            "aten::mm",
            &[tensor("[2, 3]", bf16), tensor("[4, 4]", bf16)]
        ),
        None,
        "the shapes do not fit"
    );
    assert_eq!(
        cost(
            "aten::mm",
            &[tensor("[2, 3]", "odd"), tensor("[3, 4]", "odd")]
        ),
        None,
        "the type is unknown"
    );
}

const CONVOLUTION: [(&str, &str, &str, &str); 9] = [
    ("[2, 8, 10, 10]", "c10::Half", "", ""),
    ("[16, 4, 3, 3]", "c10::Half", "", ""),
    ("[16]", "c10::Half", "", ""),
    ("[]", "ScalarList", "", "[2, 2]"),
    ("[]", "ScalarList", "", "[1, 1]"),
    ("[]", "ScalarList", "", "[1, 1]"),
    ("[]", "Scalar", "", "False"),
    ("[]", "ScalarList", "", "[0, 0]"),
    ("[]", "Scalar", "", "2"),
];

#[test]
fn convolutions_move_input_weight_and_result() {
    // (10 + 2 - 3) / 2 + 1 = 5 positions.
    let result = 2 * 16 * 5 * 5;
    assert_eq!(
        cost("aten::convolution", &CONVOLUTION),
        Some((2 * result * 4 * 9, 2 * (1_600 + 576 + 16 + result)))
    );
    // Transposed, with groups: (10 - 1) * 2 - 2 + 2 + 0 + 1 = 19 positions of the result.
    let mut transposed = CONVOLUTION;
    transposed[1].0 = "[8, 4, 3, 3]";
    transposed[2].0 = "[8]";
    transposed[6].3 = "True";
    assert_eq!(
        cost("aten::convolution", &transposed),
        Some((2 * 2 * 100 * 288, 2 * (1_600 + 288 + 8 + 2 * 8 * 19 * 19)))
    );
}

#[test]
fn gradients_of_convolutions_count_once_each() {
    let backward = |mask: &'static str| {
        cost(
            "aten::convolution_backward",
            &[
                tensor("[2, 16, 5, 5]", "float"),
                tensor("[2, 8, 10, 10]", "float"),
                tensor("[16, 4, 3, 3]", "float"),
                list("[16]"),
                list("[2, 2]"),
                list("[1, 1]"),
                list("[1, 1]"),
                value("False"),
                list("[0, 0]"),
                value("2"),
                list(mask),
            ],
        )
    };
    let one = 2 * 2 * 25 * 576;
    let (gradient, input, weight) = (800, 1_600, 576);
    assert_eq!(
        backward("[True, True, True]"),
        Some((2 * one, 4 * (gradient + 2 * weight + 2 * input + 16)))
    );
    assert_eq!(
        backward("[False, True, False]"),
        Some((one, 4 * (gradient + input + weight)))
    );
    assert_eq!(
        backward("[False, False, True]"),
        Some((0, 4 * (gradient + 16)))
    );
}

#[test]
fn causal_attention_counts_the_pairs_that_are_left() {
    let forward = |queries: &'static str, keys: &'static str, causal: &'static str| {
        cost(
            "aten::_scaled_dot_product_flash_attention",
            &[
                tensor(queries, "c10::BFloat16"),
                tensor(keys, "c10::BFloat16"),
                tensor(keys, "c10::BFloat16"),
                value("0."),
                value(causal),
                value("False"),
                NONE,
            ],
        )
    };
    let (long, short) = ("[2, 4, 100, 8]", "[2, 4, 50, 8]");
    let bytes = |queries: u64, keys: u64| 2 * 2 * 4 * 8 * (2 * queries + 2 * keys);
    let pairs = |pairs: u64| 2 * 2 * 4 * pairs * 16;
    assert_eq!(
        forward(long, long, "False"),
        Some((pairs(10_000), bytes(100, 100)))
    );
    assert_eq!(
        forward(long, long, "True"),
        Some((pairs(5_000), bytes(100, 100)))
    );
    // The mask begins at the first query and key.
    assert_eq!(
        forward(short, long, "True"),
        Some((pairs(1_250), bytes(50, 100)))
    );
    assert_eq!(
        forward(long, short, "True"),
        Some((pairs(5_000 - 1_250), bytes(100, 50)))
    );
    // `flash_attn` lets it end at the last of both.
    let from_end = cost(
        "flash_attn::_flash_attn_forward",
        &[
            tensor("[2, 50, 4, 8]", "c10::Half"),
            tensor("[2, 100, 2, 8]", "c10::Half"),
            tensor("[2, 100, 2, 8]", "c10::Half"),
            value("0."),
            value("0.35"),
            value("True"),
        ],
    );
    let moved = 2 * 2 * 8 * (50 * 4 * 2 + 100 * 2 * 2);
    assert_eq!(from_end, Some((pairs(5_000 - 1_250), moved)));
    // MFU counts all pairs.
    let dims = "[[2, 4, 100, 8], [2, 4, 100, 8], [2, 4, 100, 8]]";
    let concrete = r#"["", "", "", "0.", "True"]"#;
    assert_eq!(
        product_count("aten::_scaled_dot_product_flash_attention", dims, concrete),
        Some(pairs(10_000))
    );
}

#[test]
fn attention_backwards_counts_five_products() {
    let head = tensor("[2, 4, 16, 8]", "float");
    let bias = tensor("[2, 4, 16, 16]", "float");
    let inputs = [head, head, head, head, bias, head];
    let elements = 2 * 4 * 16 * 8;
    // Reads query, key, value, bias, the result and its gradient; writes three gradients.
    assert_eq!(
        cost(
            "aten::_scaled_dot_product_efficient_attention_backward",
            &inputs
        ),
        Some((
            5 * 2 * 2 * 4 * 16 * 16 * 8,
            4 * (8 * elements + 2 * 4 * 16 * 16)
        ))
    );
}

#[test]
fn normalizations_count_statistics_scaling_and_parameters() {
    let input = tensor("[6, 10]", "c10::BFloat16");
    let weight = tensor("[10]", "c10::BFloat16");
    let layer = |weight, bias| {
        let inputs = [input, list("[10]"), weight, bias, value("1e-05")];
        cost("aten::native_layer_norm", &inputs)
    };
    // Input, result, weight, bias; mean and deviation of 6 rows in FP32.
    assert_eq!(
        layer(weight, weight),
        Some((8 * 60, 2 * (60 + 60 + 10 + 10) + 4 * 12))
    );
    assert_eq!(layer(NONE, NONE), Some((6 * 60, 2 * 120 + 4 * 12)));
    let rows = tensor("[6, 1]", "float");
    let backward = |mask| {
        let inputs = [
            input,
            input,
            list("[10]"),
            rows,
            rows,
            weight,
            weight,
            list(mask),
        ];
        cost("aten::native_layer_norm_backward", &inputs)
    };
    let read = 2 * (60 + 60 + 10) + 4 * 12;
    assert_eq!(
        backward("[True, True, True]"),
        Some(((10 + 2 + 1) * 60, read + 2 * (60 + 20)))
    );
    assert_eq!(
        backward("[False, True, False]"),
        Some((4 * 60, read + 2 * 10))
    );
    let rms = [input, list("[10]"), weight, NONE];
    assert_eq!(
        cost("aten::_fused_rms_norm", &rms),
        Some((4 * 60, 2 * (120 + 10) + 4 * 6))
    );
    let rms = [
        input,
        input,
        list("[10]"),
        rows,
        weight,
        list("[True, True]"),
    ];
    assert_eq!(
        cost("aten::_fused_rms_norm_backward", &rms),
        Some(((7 + 2) * 60, 2 * (180 + 20) + 4 * 6))
    );
}

#[test]
fn batch_and_group_normalizations_know_their_channels() {
    let input = tensor("[2, 4, 5, 5]", "float");
    let channels = tensor("[4]", "float");
    let batch = |training| {
        let inputs = [
            input,
            channels,
            channels,
            channels,
            channels,
            value(training),
            value("0.1"),
            value("1e-05"),
        ];
        cost("aten::native_batch_norm", &inputs)
    };
    // Saved mean and deviation; running ones read and written.
    assert_eq!(batch("True"), Some((8 * 200, 4 * (400 + 8 + 8 + 16))));
    assert_eq!(batch("False"), Some((4 * 200, 4 * (400 + 8 + 8))));
    let backward = |train| {
        let inputs = [
            input,
            input,
            channels,
            channels,
            channels,
            channels,
            channels,
            value(train),
            value("1e-05"),
            list("[True, True, True]"),
        ];
        cost("aten::native_batch_norm_backward", &inputs)
    };
    let moved = 4 * (600 + 4 + 8 + 8);
    assert_eq!(backward("True"), Some(((10 + 2 + 1) * 200, moved)));
    assert_eq!(backward("False"), Some(((2 + 4 + 1) * 200, moved)));
    let group = [
        input,
        channels,
        channels,
        value("2"),
        value("4"),
        value("25"),
        value("2"),
        value("1e-05"),
    ];
    assert_eq!(
        cost("aten::native_group_norm", &group),
        Some((8 * 200, 4 * (400 + 8 + 8)))
    );
    let groups = tensor("[2, 2]", "float");
    let group = [
        input,
        input,
        groups,
        groups,
        channels,
        value("2"),
        value("4"),
        value("25"),
        value("2"),
        list("[True, True, True]"),
    ];
    assert_eq!(
        cost("aten::native_group_norm_backward", &group),
        Some((13 * 200, 4 * (600 + 8 + 4 + 8)))
    );
}

#[test]
fn element_wise_operators_broadcast_and_promote() {
    let half = |dims| tensor(dims, "c10::Half");
    assert_eq!(cost("aten::gelu", &[half("[10]")]), Some((10, 40)));
    assert_eq!(cost("aten::relu_", &[half("[10]")]), Some((10, 40)));
    assert_eq!(
        cost("aten::add", &[half("[5, 1]"), half("[4]"), value("1")]),
        Some((20, 2 * (5 + 4 + 20)))
    );
    // FP16 and BF16 give FP32; FP32 without dimensions changes no FP16.
    assert_eq!(
        cost("aten::mul", &[half("[4]"), tensor("[4]", "c10::BFloat16")]),
        Some((4, 2 * 8 + 4 * 4))
    );
    assert_eq!(
        cost("aten::mul", &[half("[4]"), tensor("[]", "double")]),
        Some((4, 2 * 4 + 8 + 2 * 4))
    );
    assert_eq!(
        cost(
            "aten::mul",
            &[tensor("[4]", "long int"), tensor("[]", "double")]
        ),
        Some((4, 32 + 8 + 16))
    );
    assert_eq!(
        cost("aten::div", &[tensor("[4]", "int"), tensor("[4]", "int")]),
        Some((4, 48))
    );
    assert_eq!(
        cost("aten::eq", &[half("[4]"), value("0")]),
        Some((4, 8 + 4))
    );
    assert_eq!(
        cost(
            "aten::masked_fill_",
            &[half("[4]"), tensor("[4]", "bool"), value("0")]
        ),
        Some((4, 8 + 4 + 8))
    );
    assert_eq!(
        cost(
            "aten::where",
            &[tensor("[4]", "bool"), half("[4]"), half("[]")]
        ),
        Some((4, 4 + 8 + 2 + 8))
    );
    assert_eq!(
        cost(
            "aten::addcmul",
            &[half("[4]"), half("[4]"), half("[4]"), value("1")]
        ),
        Some((12, 4 * 8))
    );
    // The third tensor takes the result.
    assert_eq!(
        cost(
            "aten::add",
            &[half("[4]"), half("[4]"), value("1"), tensor("[4]", "float")]
        ),
        Some((4, 16 + 16))
    );
    assert_eq!(cost("aten::add", &[half("[4]"), half("[5]")]), None);
}

#[test]
fn copies_and_fills_compute_nothing() {
    // The source repeats one row.
    let expanded = ("[8, 10]", "float", "[0, 1]", "");
    assert_eq!(
        cost(
            "aten::copy_",
            &[tensor("[8, 10]", "c10::Half"), expanded, value("False")]
        ),
        Some((0, 160 + 40))
    );
    assert_eq!(
        cost("aten::fill_", &[tensor("[10]", "float"), value("1")]),
        Some((0, 40))
    );
    assert_eq!(
        cost(
            "aten::normal_",
            &[tensor("[10]", "float"), value("0"), value("1"), NONE]
        ),
        Some((10, 40))
    );
    assert_eq!(
        cost(
            "aten::native_dropout",
            &[tensor("[10]", "float"), value("0.1"), value("True")]
        ),
        Some((20, 40 + 40 + 10))
    );
    assert_eq!(
        cost(
            "sgl_kernel::silu_and_mul",
            &[tensor("[3, 4]", "c10::Half"), tensor("[3, 8]", "c10::Half")]
        ),
        Some((24, 24 + 48))
    );
    assert_eq!(
        cost(
            "aten::constant_pad_nd",
            &[tensor("[3, 4]", "float"), list("[1, 2]"), value("0")]
        ),
        Some((0, 4 * (12 + 21)))
    );
    assert_eq!(
        cost(
            "aten::upsample_nearest2d",
            &[tensor("[1, 2, 3, 4]", "float"), list("[6, 8]")]
        ),
        Some((0, 4 * (24 + 96)))
    );
}

#[test]
fn reductions_return_what_the_dimensions_leave() {
    let input = tensor("[4, 5]", "float");
    let all = |name: &str| cost(name, &[input, NONE]);
    assert_eq!(all("aten::sum"), Some((20, 84)));
    let over = |name: &str, dims: (&'static str, &'static str, &'static str, &'static str)| {
        cost(name, &[input, dims, value("True"), NONE])
    };
    assert_eq!(over("aten::mean", list("[-1]")), Some((20, 80 + 16)));
    assert_eq!(over("aten::amax", list("[0]")), Some((20, 80 + 20)));
    // Values and positions.
    assert_eq!(over("aten::max", value("0")), Some((20, 80 + 5 * 12)));
    assert_eq!(over("aten::argmax", value("1")), Some((20, 80 + 4 * 8)));
    assert_eq!(over("aten::std", list("[1]")), Some((80, 80 + 16)));
    assert_eq!(over("aten::cumsum", value("1")), Some((20, 160)));
    assert_eq!(
        cost(
            "aten::norm",
            &[input, value("2"), list("[1]"), value("False")]
        ),
        Some((40, 80 + 16))
    );
    assert_eq!(cost("aten::max", &[input, input]), Some((20, 240)));
    assert_eq!(
        cost("aten::sum", &[tensor("[4]", "bool"), NONE]),
        Some((4, 4 + 8))
    );
    assert_eq!(over("aten::mean", list("[2]")), None, "no such dimension");
    assert_eq!(
        cost("aten::mse_loss", &[input, input, value("1")]),
        Some((60, 164))
    );
    assert_eq!(
        cost("aten::_softmax", &[input, value("-1"), value("False")]),
        Some((100, 160))
    );
    assert_eq!(
        cost(
            "aten::_softmax_backward_data",
            &[input, input, value("-1"), value("6")]
        ),
        Some((80, 240))
    );
}

#[test]
fn gathers_read_no_more_than_the_table() {
    let table = tensor("[100, 8]", "c10::Half");
    let indices = |dims| tensor(dims, "long int");
    let embed = |dims| cost("aten::embedding", &[table, indices(dims)]);
    assert_eq!(embed("[2, 3]"), Some((0, 6 * 8 + 2 * 48 * 2)));
    assert_eq!(embed("[500]"), Some((0, 500 * 8 + 1_600 + 500 * 16)));
    assert_eq!(
        cost("aten::index_select", &[table, value("1"), indices("[3]")]),
        Some((0, 24 + 2 * 600))
    );
    assert_eq!(
        cost("aten::gather", &[table, value("0"), indices("[2, 8]")]),
        Some((0, 128 + 2 * 32))
    );
    assert_eq!(
        cost(
            "aten::embedding_dense_backward",
            &[
                tensor("[2, 3, 8]", "float"),
                indices("[2, 3]"),
                value("100"),
                value("-1"),
                value("False")
            ]
        ),
        Some((48, 4 * 48 + 48 + 4 * 800))
    );
    // (9 + 2 - 3) / 2 + 1 = 5.
    let pool = [
        tensor("[1, 2, 9, 9]", "float"),
        list("[3, 3]"),
        list("[2, 2]"),
        list("[1, 1]"),
        list("[1, 1]"),
        value("False"),
    ];
    assert_eq!(
        cost("aten::max_pool2d_with_indices", &pool),
        Some((50 * 9, 4 * 162 + 50 * 12))
    );
}

#[test]
fn mfu_counts_products_only() {
    // The profiler of torch counts these; they are no products.
    assert!(!is_product("aten::add") && !is_product("aten::linear"));
    assert!(is_product("aten::mm") && is_product("aten::convolution_backward"));
    assert_eq!(product_count("aten::mm", "[[2, 3], [3, 4]]", ""), Some(48));
    assert_eq!(product_count("aten::mm", "", ""), None);
    assert_eq!(
        product_flops("aten::mm", "[[0, 3], [3, 4]]", ""),
        ProductFlops::Empty
    );
    // Older files do not say where the kernel lands.
    let dims = "[[4, 3, 224, 224], [768, 3, 16, 16], [768], [], [], [], [], [], []]";
    assert_eq!(
        product_flops("aten::convolution", dims, ""),
        ProductFlops::Unknown
    );
    let concrete = r#"["", "", "", "[16, 16]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]"#;
    assert_eq!(
        product_count("aten::convolution", dims, concrete),
        Some(2 * 4 * 14 * 14 * 768 * 3 * 16 * 16)
    );
    let dims = "[[1, 8, 141, 64], [1, 8, 141, 64], [1, 8, 141, 64], [], [], [], []]";
    assert_eq!(
        product_count("aten::_scaled_dot_product_flash_attention", dims, ""),
        Some(40_716_288)
    );
    // Keys and values with fewer heads, and of another length.
    let dims = "[[2, 32, 16, 64], [2, 8, 128, 64], [2, 8, 128, 64]]";
    assert_eq!(
        product_count("aten::_scaled_dot_product_flash_attention", dims, ""),
        Some(4 * 2 * 32 * 16 * 128 * 64)
    );
    // Packed sequences: the shapes do not contain the start of each.
    let dims = "[[300, 8, 64], [300, 8, 64], [300, 8, 64]]";
    assert_eq!(
        product_count("aten::_flash_attention_forward", dims, ""),
        None
    );
}
