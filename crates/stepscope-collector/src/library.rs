//! Libraries that are found at run time.
#![allow(
    unsafe_code,
    reason = "calls the loader and a C library; SAFETY comments explain each block"
)]

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Names that are remembered at once.
const MAX_NAMES: usize = 1 << 16;

/// How a library is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadScope {
    /// Only its handle finds its functions.
    Local,
    /// Libraries that are loaded later find its functions too.
    Global,
    /// Only a library that the process has loaded already.
    Loaded,
}

/// Loads a library; it is never unloaded.
pub fn open(path: &Path, scope: LoadScope) -> Option<NonNull<c_void>> {
    use std::os::unix::ffi::OsStrExt as _;

    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let flags = match scope {
        LoadScope::Local => libc::RTLD_LAZY,
        LoadScope::Global => libc::RTLD_LAZY | libc::RTLD_GLOBAL,
        LoadScope::Loaded => libc::RTLD_LAZY | libc::RTLD_NOLOAD,
    };
    // SAFETY: a path that ends in zero; the library is a vendor's or the C++ library, which loading does not disturb.
    NonNull::new(unsafe { libc::dlopen(path.as_ptr(), flags) })
}

/// Finds a function. Without a library, it is looked for among all that the process has loaded globally.
pub fn find(library: Option<NonNull<c_void>>, name: &CStr) -> Option<NonNull<c_void>> {
    let handle = library.map_or(libc::RTLD_DEFAULT, NonNull::as_ptr);
    // SAFETY: a handle of the loader, and a name that ends in zero.
    NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })
}

/// Returns a function of a library.
///
/// # Safety
/// `F` is the type of the function with this name, a pointer.
pub unsafe fn function<F: Copy>(library: NonNull<c_void>, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    let found = find(Some(library), name)?;
    // SAFETY: the caller's promise; both are pointers of one size.
    Some(unsafe { std::mem::transmute_copy::<NonNull<c_void>, F>(&found) })
}

/// Returns the list of this process's mappings.
pub fn system_mappings() -> String {
    std::fs::read_to_string("/proc/self/maps").unwrap_or_default()
}

/// Lists the folders of Python packages from which this process has loaded libraries.
pub fn package_folders(mappings: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for line in mappings.lines() {
        // Addresses, permissions and numbers come first.
        let Some(path) = line.find('/').and_then(|at| line.get(at..)) else {
            continue;
        };
        for name in ["/site-packages/", "/dist-packages/"] {
            if let Some((before, _)) = path.split_once(name) {
                let folder = PathBuf::from(format!("{before}{name}"));
                if !found.contains(&folder) {
                    found.push(folder);
                }
            }
        }
    }
    found
}

/// `__cxa_demangle` of the C++ library.
type Demangle =
    unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// Names of kernels, as compilers and as programmers write them.
#[derive(Default)]
pub struct Demangler {
    function: OnceCell<Option<Demangle>>,
    known: HashMap<String, String>,
}

impl Demangler {
    /// Writes out a name of C++ as programmers write it, as `c++filt` does. Other names are unchanged, and all are if
    /// the program has no C++ library.
    pub fn demangled(&mut self, name: &str) -> &str {
        if self.known.len() >= MAX_NAMES {
            self.known.clear();
        }
        if !self.known.contains_key(name) {
            let function = *self.function.get_or_init(demangle_function);
            let demangled = function
                .filter(|_| name.starts_with("_Z"))
                .and_then(|demangle| demangled(demangle, name));
            let demangled = demangled.unwrap_or_else(|| name.to_owned());
            self.known.insert(name.to_owned(), demangled);
        }
        self.known.get(name).map_or("", String::as_str)
    }
}

fn demangle_function() -> Option<Demangle> {
    let name = c"__cxa_demangle";
    let found = find(None, name).or_else(|| {
        let library = open(Path::new("libstdc++.so.6"), LoadScope::Local)?;
        find(Some(library), name)
    })?;
    // SAFETY: the C++ ABI defines the type of this function.
    Some(unsafe { std::mem::transmute::<*mut c_void, Demangle>(found.as_ptr()) })
}

fn demangled(demangle: Demangle, name: &str) -> Option<String> {
    let mangled = CString::new(name).ok()?;
    let mut status = 0;
    // SAFETY: a text that ends in zero; without a buffer, the function allocates the result, which is freed here.
    unsafe {
        let text = demangle(
            mangled.as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &raw mut status,
        );
        if text.is_null() {
            return None;
        }
        let demangled = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        Some(demangled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_python_packages_are_listed_once() {
        let mappings = "7f00-7f01 r-xp 00000000 08:01 12 /venv/lib/python3.12/site-packages/cupy/a.so\n\
            7f01-7f02 r-xp 00000000 08:01 12 /venv/lib/python3.12/site-packages/cupy/b.so\n\
            7f02-7f03 rw-p 00000000 00:00 0 [heap]\n";
        assert_eq!(
            package_folders(mappings),
            [Path::new("/venv/lib/python3.12/site-packages/")]
        );
    }

    #[test]
    fn names_that_are_not_of_cpp_stay() {
        let mut names = Demangler::default();
        assert_eq!(names.demangled("Cijk_Alik_Bljk"), "Cijk_Alik_Bljk");
        assert_eq!(names.demangled("_Z"), "_Z");
    }
}
