//! Names of C++ functions as people say them.
//!
//! A kernel of a template library has a name of hundreds of letters: what it returns, the namespaces
//! of each part, its parameters. What tells it from others is its own name and what the template was
//! made for; the rest is left out, here only, never in data:
//!
//! `void at::native::(anonymous namespace)::softmax_warp_forward<c10::Half, 9>(c10::Half*, int)` is
//! `softmax_warp_forward<Half, 9>`.

use std::borrow::Cow;

/// What compilers call a namespace without a name.
const NAMELESS: &str = "(anonymous namespace)";

/// The name without what it returns, namespaces and parameters, when it is one of a C++ template or
/// of what returns nothing, as kernels are; any other name as it is.
pub fn brief(name: &str) -> Cow<'_, str> {
    let body = name.strip_prefix("void ");
    let ended = name.ends_with([')', ']']) || name.ends_with("...");
    let template = ended && name.contains('<') && name.contains("::");
    // Python's own names for things, and what torch calls a step of the backward pass.
    let other = name.starts_with('<') || name.contains(": ") || name.contains(" at 0x");
    if other || body.is_none() && !template {
        return Cow::Borrowed(name);
    }
    match spoken(body.unwrap_or(name)) {
        made if made.is_empty() => Cow::Borrowed(name),
        made => Cow::Owned(made),
    }
}

fn spoken(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    // Where the part at hand begins in `out`: what a `::` behind it makes a namespace. Then those of
    // the templates around it.
    let mut part = 0;
    let mut around: Vec<usize> = Vec::new();
    let mut rest = body;
    while let Some(letter) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix(NAMELESS) {
            rest = behind.strip_prefix("::").unwrap_or(behind);
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '(' => {
                // Where nothing closes it, the file has cut the name.
                let Some(behind) = closed(rest) else { break };
                let inside = !around.is_empty() || behind.starts_with("::");
                if !inside && !out.is_empty() {
                    break;
                }
                rest = behind;
            }
            ':' if rest.starts_with(':') => {
                rest = &rest[1..];
                // What a template was made for stays, as it may be all that tells two apart.
                if out[part..].contains(['<', '{']) {
                    out.push_str("::");
                } else {
                    out.truncate(part);
                }
                part = out.len();
            }
            '<' | '{' => {
                out.push(letter);
                around.push(part);
                part = out.len();
            }
            '>' | '}' => {
                out.push(letter);
                part = around.pop().unwrap_or(part);
            }
            ' ' if rest.starts_with('>') => {}
            ' ' if around.is_empty() => {
                // What was so far is what it returns.
                out.clear();
                part = 0;
            }
            ',' | ' ' => {
                out.push(letter);
                part = out.len();
            }
            _ => out.push(letter),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// What stands behind the parenthesis that is open at the begin of `text`.
fn closed(text: &str) -> Option<&str> {
    let mut open = 1_u32;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(&text[at + 1..]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_keep_what_tells_them_apart() {
        for (name, expected) in [
            (
                "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, \
                 at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(c10::BFloat16*, int)",
                "cunn_SoftMaxForward<8, BFloat16, float, SoftMaxForwardEpilogue>",
            ),
            (
                "void cudnn::detail::dgrad_engine<float, 512, 6>(int, int, ...",
                "dgrad_engine<float, 512, 6>",
            ),
            (
                "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::\
                 BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >\
                 (at::TensorIteratorBase&, at::native::BinaryFunctor<float> const&)::{lambda(int)#1}>(int, \
                 at::native::gpu_kernel_impl_nocast<float>(at::TensorIteratorBase&)::{lambda(int)#1})",
                "elementwise_kernel<128, 4, gpu_kernel_impl_nocast<BinaryFunctor<float, float, float, \
                 MulFunctor<float>>>::{lambda#1}>",
            ),
            (
                "void ck_tile::kentry<ck_tile::gfx950_t, 1, ck_tile::FmhaFwd<int> >(ck_tile::Kargs) [clone .kd]",
                "kentry<gfx950_t, 1, FmhaFwd<int>>",
            ),
            (
                "std::enable_if<true, void>::type internal::gemvx::kernel<int, float, (bool)1>(int)",
                "kernel<int, float, 1>",
            ),
            ("void add(float*, int)", "add"),
            (
                "void (anonymous namespace)::elementwise_kernel_with_index<int>(int)",
                "elementwise_kernel_with_index<int>",
            ),
        ] {
            assert_eq!(brief(name), expected, "{name}");
        }
    }

    #[test]
    fn other_names_stay() {
        for name in [
            "",
            "void ",
            "void (",
            "aten::copy_",
            "volta_sgemm_64x64_nt",
            "Memcpy HtoD (Pageable -> Device)",
            "<built-in method to of Tensor object at 0x7ce279c59e00>",
            "autograd::engine::evaluate_function: AddmmBackward0",
            "torch/utils/_device.py(100): __torch_function__",
            "jit_step(8)",
            "train(model)",
            "std::thread",
        ] {
            assert_eq!(brief(name), name);
        }
    }

    #[test]
    fn every_cut_of_a_name_is_survived() {
        let whole =
            "void a::(anonymous namespace)::b<c::d<(e)1> >::f(g::h const&)::{lambda(int)#1}::é<::>";
        for (from, _) in whole.char_indices() {
            for (to, _) in whole.char_indices().filter(|(to, _)| *to >= from) {
                let _ = brief(&whole[from..to]);
                let _ = brief(&format!("void {}", &whole[from..to]));
            }
        }
    }
}
