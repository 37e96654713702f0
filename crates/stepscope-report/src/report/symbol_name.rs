//! Short names of C++ functions for display.
//!
//! A kernel of a template library has a name of hundreds of characters: return type, namespaces,
//! parameters. The function's own name and its template arguments identify it. Only displayed names
//! are shortened; data keeps the full name:
//!
//! `void at::native::(anonymous namespace)::softmax_warp_forward<c10::Half, 9>(c10::Half*, int)`
//! becomes `softmax_warp_forward<Half, 9>`.
//!
//! For a lambda, the enclosing function and the lambda's parameters stay: torch's kernels of `exp`,
//! `log` and `tanh` differ in nothing else.

use std::borrow::Cow;

use crate::demangle::demangled;

/// How compilers print a namespace without a name.
const NAMELESS: &str = "(anonymous namespace)";
/// Qualifiers that can follow a function's parameters, before a nested scope.
const QUALIFIERS: [&str; 5] = [" const", " volatile", " noexcept", " &&", " &"];
/// Name of a lambda's call operator.
const CALL: &str = "operator()";

/// Returns the name of a C++ function, mangled or not, without return type, namespaces and
/// parameters. Returns any other name unchanged.
pub fn short_symbol_name(name: &str) -> Cow<'_, str> {
    // Most names are operations and Python functions; their last characters identify them.
    if !name.starts_with("void ") && !name.starts_with("_Z") && !has_end(name) {
        return Cow::Borrowed(name);
    }
    let said = match demangled(name) {
        Some(plain) => spoken(plain.strip_prefix("void ").unwrap_or(&plain)),
        None => match name.strip_prefix("void ") {
            Some(body) if !is_other(name) => spoken(body),
            None if !is_other(name) && (is_template(name) || is_function(name)) => spoken(name),
            _ => return Cow::Borrowed(name),
        },
    };
    if said.is_empty() || said == name {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(said)
    }
}

/// Returns the [`short_symbol_name`] if it differs from the name.
pub fn shorter(name: &str) -> Option<String> {
    match short_symbol_name(name) {
        Cow::Owned(short) => Some(short),
        Cow::Borrowed(_) => None,
    }
}

/// Returns whether the name ends like a function with its parameters, complete or truncated by its
/// file.
fn has_end(name: &str) -> bool {
    name.ends_with([')', ']']) || name.ends_with("...")
}

/// Returns whether the name is Python's own name for an object, or torch's name for a step of the
/// backward pass.
fn is_other(name: &str) -> bool {
    name.starts_with('<') || name.contains(": ") || name.contains(" at 0x")
}

/// Returns whether the name is that of a template function, or of a function with a template
/// parameter type.
fn is_template(name: &str) -> bool {
    let made = |(at, _): (usize, &str)| name[..at].ends_with(in_identifier);
    has_end(name) && name.contains('>') && name.match_indices('<').any(made)
}

/// Returns whether the name is that of a function with parameters, in a namespace or with pointers.
fn is_function(name: &str) -> bool {
    let parts = name.strip_suffix(')').and_then(|name| name.split_once('('));
    let Some((path, taken)) = parts else {
        return false;
    };
    let named = path.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
        && path
            .chars()
            .all(|letter| in_identifier(letter) || letter == ':');
    let mut taken = taken.split(',').map(str::trim);
    named
        && if path.contains("::") {
            taken.all(|one| one.is_empty() || one.starts_with(|first: char| first.is_alphabetic()))
        } else {
            taken.any(|one| one.len() > 1 && one.ends_with(['*', '&']))
        }
}

fn in_identifier(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn spoken(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    // `part`: start of the current name component in `out`; a following `::` makes it a namespace.
    // `around`: the values of `part` outside the enclosing brackets.
    let mut part = 0;
    let mut around: Vec<usize> = Vec::new();
    let mut rest = body;
    while let Some(letter) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix(NAMELESS) {
            rest = behind.strip_prefix("::").unwrap_or(behind);
            continue;
        }
        if let Some((digits, behind)) = number(&out, rest) {
            out.push_str(digits);
            rest = behind;
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '(' if &out[part..] == "operator" && rest.starts_with(')') => {
                out.push_str("()");
                rest = &rest[1..];
            }
            '(' if &out[part..] == "lambda" => match rest.strip_prefix(')') {
                Some(behind) => rest = behind,
                None => open(letter, &mut out, &mut part, &mut around),
            },
            '(' => {
                // Without a closing parenthesis, the file truncated the name.
                let Some(behind) = closed(rest) else { break };
                if let Some(inside) = scope(behind) {
                    if &out[part..] == CALL {
                        out.truncate(part);
                    } else if out.len() > part {
                        out.push_str("::");
                    }
                    part = out.len();
                    rest = inside;
                    continue;
                }
                if around.is_empty() && !out.is_empty() {
                    break;
                }
                rest = behind;
            }
            ':' if rest.starts_with(':') => {
                rest = &rest[1..];
                // Template arguments stay: two names may differ in nothing else.
                if out[part..].contains(['<', '{']) {
                    out.push_str("::");
                } else {
                    out.truncate(part);
                }
                part = out.len();
            }
            '<' | '{' => open(letter, &mut out, &mut part, &mut around),
            '>' | '}' | ')' => {
                out.push(letter);
                part = around.pop().unwrap_or(part);
            }
            ' ' if rest.starts_with('>') => {}
            ' ' if around.is_empty() => {
                // The text so far is the return type.
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

/// Starts a bracketed part.
fn open(bracket: char, out: &mut String, part: &mut usize, around: &mut Vec<usize>) {
    out.push(bracket);
    around.push(*part);
    *part = out.len();
}

/// Returns the leading digits of `rest` and the text after the number. Drops its type suffix
/// (`4096ul`).
fn number<'a>(before: &str, rest: &'a str) -> Option<(&'a str, &'a str)> {
    let behind = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let digits = &rest[..rest.len() - behind.len()];
    if digits.is_empty() || before.ends_with(in_identifier) {
        return None;
    }
    let untyped = behind.trim_start_matches(['u', 'l', 'U', 'L']);
    let whole = !untyped.starts_with(in_identifier);
    Some((digits, if whole { untyped } else { behind }))
}

/// Returns the nested scope of a function whose parameters end where `text` begins.
fn scope(mut text: &str) -> Option<&str> {
    while let Some(behind) = QUALIFIERS.iter().find_map(|word| text.strip_prefix(word)) {
        text = behind;
    }
    text.strip_prefix("::")
}

/// Returns the text after the parenthesis that is open at the start of `text`.
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
                 MulFunctor<float>>>::{lambda(int)#1}>",
            ),
            (
                "void ck_tile::kentry<ck_tile::gfx950_t, 1, ck_tile::FmhaFwd<int> >(ck_tile::Kargs) [clone .kd]",
                "kentry<gfx950_t, 1, FmhaFwd<int>>",
            ),
            (
                "std::enable_if<true, void>::type internal::gemvx::kernel<int, float, (bool)1>(int)",
                "kernel<int, float, 1>",
            ),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::TensorIteratorBase&)\
                 ::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}, \
                 std::array<char*, 2ul> >(int, std::array<char*, 2ul>)",
                "vectorized_elementwise_kernel<4, exp_kernel_cuda::{lambda#2}::{lambda#4}::{lambda(BFloat16)#1}, \
                 array<char*, 2>>",
            ),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, \
                 std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
                "vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1>>",
            ),
            (
                "void at::native::(anonymous namespace)::softmax_warp<float>(float*, int)",
                "softmax_warp<float>",
            ),
            (
                "void Functor<int>::operator()(int) const",
                "Functor<int>::operator()",
            ),
            (
                "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
                "ncclDevKernel_Generic",
            ),
            (
                "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
                "ncclKernel_AllReduce_RING_LL_Sum_float",
            ),
            ("cask::offsets(cask::Params)", "offsets"),
            ("_ZN2ck9operation6kernelILi3EEEvv", "kernel<3>"),
            ("_ZN2ck12_GLOBAL__N_13addEv", "add"),
            ("_Z9vectorAddPKfS0_Pfi.kd", "vectorAdd"),
            ("void add(float*, int)", "add"),
            (
                "void (anonymous namespace)::elementwise_kernel_with_index<int>(int)",
                "elementwise_kernel_with_index<int>",
            ),
        ] {
            assert_eq!(short_symbol_name(name), expected, "{name}");
        }
    }

    #[test]
    fn other_names_stay() {
        for name in [
            "",
            "void ",
            "void (",
            "(",
            "_Zodd",
            "_ZN2ck16tensor_operation6device12_GLOBAL__N_137kernel_batched",
            "igemm_fwd_gtcx3_nhwc_bf16",
            "Memcpy DtoD (Device -> Device)",
            "aten::copy_",
            "volta_sgemm_64x64_nt",
            "Memcpy HtoD (Pageable -> Device)",
            "<built-in method to of Tensor object at 0x7ce279c59e00>",
            "autograd::engine::evaluate_function: AddmmBackward0",
            "torch/utils/_device.py(100): __torch_function__",
            "jit_step(8)",
            "train(model)",
            "std::thread",
            "main.py:12(<lambda>)",
            "apply(*args, 3)",
            "tests/a.py::test_add(4)",
            "f(*)",
        ] {
            assert_eq!(short_symbol_name(name), name);
        }
    }

    #[test]
    fn every_cut_of_a_name_is_survived() {
        let whole = "void a::(anonymous namespace)::b<c::d<(e)1ul> >::f(g::h const&)::{lambda(int)#1}::é<::>::operator()() const";
        for (from, _) in whole.char_indices() {
            for (to, _) in whole.char_indices().filter(|(to, _)| *to >= from) {
                let _ = short_symbol_name(&whole[from..to]);
                let _ = short_symbol_name(&format!("void {}", &whole[from..to]));
            }
        }
        for odd in [
            "(",
            ")",
            "<>",
            "{lambda(",
            "_ZN99999",
            "_ZN3a",
            "operator()",
        ] {
            let _ = short_symbol_name(&odd.repeat(5_000));
            let _ = short_symbol_name(&format!("void {}", odd.repeat(5_000)));
        }
    }
}
