//! Inputs that no program has.

use proptest::prelude::*;

use super::*;

/// Names of every table, and one without a formula.
const NAMES: &[&str] = &[
    "aten::mm",
    "aten::addmm",
    "aten::baddbmm",
    "aten::_scaled_mm",
    "aten::linear",
    "aten::matmul",
    "aten::convolution",
    "aten::convolution_backward",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_efficient_attention_forward",
    "flash_attn::_flash_attn_forward",
    "aten::native_layer_norm",
    "aten::native_layer_norm_backward",
    "aten::native_batch_norm",
    "aten::native_batch_norm_backward",
    "aten::cudnn_batch_norm_backward",
    "aten::native_group_norm",
    "aten::native_group_norm_backward",
    "aten::_fused_rms_norm",
    "aten::_fused_rms_norm_backward",
    "aiter::rmsnorm",
    "aiter::add_rmsnorm",
    "aten::sum",
    "aten::max",
    "aten::argmax",
    "aten::cumsum",
    "aten::mse_loss",
    "aten::_softmax",
    "aten::_softmax_backward_data",
    "aten::copy_",
    "aten::fill_",
    "aten::native_dropout",
    "sgl_kernel::silu_and_mul",
    "aten::constant_pad_nd",
    "aten::upsample_nearest2d",
    "aten::gelu",
    "aten::add_",
    "aten::where",
    "aten::eq",
    "aten::div",
    "aten::embedding",
    "aten::embedding_dense_backward",
    "aten::index_select",
    "aten::gather",
    "aten::max_pool2d_with_indices",
    "aten::nonzero",
];

fn size() -> impl Strategy<Value = i64> {
    prop_oneof![
        -3_i64..12,
        Just(i64::MAX),
        Just(i64::MIN),
        Just(0),
        (0_u32..63).prop_map(|bits| 1_i64 << bits),
    ]
}

fn sizes() -> impl Strategy<Value = String> {
    prop::collection::vec(size(), 0..6).prop_map(|sizes| format!("{sizes:?}"))
}

fn data_type() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "float",
        "double",
        "c10::Half",
        "c10::BFloat16",
        "long int",
        "bool",
        "Scalar",
        "ScalarList",
        "TensorList",
        "",
        "c10::complex<double>",
    ])
}

fn concrete_value() -> impl Strategy<Value = String> {
    prop_oneof![
        sizes(),
        size().prop_map(|size| size.to_string()),
        Just("True".to_owned()),
        Just("[True, False]".to_owned()),
        Just(String::new()),
        Just("]\\\"[".to_owned()),
    ]
}

proptest! {
    #[test]
    fn absurd_inputs_are_unknown(
        name in prop::sample::select(NAMES),
        inputs in prop::collection::vec((sizes(), data_type(), sizes(), concrete_value()), 0..12),
    ) {
        let inputs: Vec<(&str, &str, &str, &str)> = inputs
            .iter()
            .map(|(dims, types, strides, value)| (&**dims, *types, &**strides, &**value))
            .collect();
        let _ = cost(name, &inputs);
        let dims: Vec<&str> = inputs.iter().map(|input| input.0).collect();
        let _ = product_flops(name, &format!("[{}]", dims.join(",")), "[]");
        let _ = with_flops::flops(name, &format!("[{}]", dims.join(",")), "[]");
    }

    #[test]
    fn any_text_is_unknown(name in prop::sample::select(NAMES), text in "[\\[\\]\",0-9 -]{0,40}") {
        let args = CallArgs { dims: &text, types: &text, strides: &text, concrete: &text };
        let _ = Model::from_name(name).and_then(|model| model.cost(name, args));
    }
}
