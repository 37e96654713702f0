//! Where the tables of the runtimes go.
//!
//! `librocprofiler-register.so` calls us in place of rocprofiler-sdk. Three kinds of processes:
//!
//! | process | rocprofiler-sdk |
//! |---|---|
//! | is recorded | is loaded, with this library as its tool, and gets the tables |
//! | is not recorded, and another tool wants rocprofiler-sdk | gets the tables, as without us |
//! | any other | is not loaded |

use std::sync::OnceLock;

use crate::api::{Sdk, SetApiTable, is_wanted_by_others, loaded_set_api_table};
use crate::collector;

/// Returns rocprofiler-sdk's function for the tables, if this process is to have one now. The first call decides whether
/// the process is recorded; another tool may want rocprofiler-sdk later, and has the tables handed on again.
pub(crate) fn target() -> Option<SetApiTable> {
    static OWN: OnceLock<Option<SetApiTable>> = OnceLock::new();
    // Once we are a tool, rocprofiler-sdk looks wanted.
    let is_wanted = is_wanted_by_others(crate::rocprofiler_configure);
    let own = *OWN.get_or_init(collector::attach);
    own.or_else(|| is_wanted.then(of_others).flatten())
}

/// Loads rocprofiler-sdk, as `librocprofiler-register.so` would.
fn of_others() -> Option<SetApiTable> {
    let loaded = loaded_set_api_table();
    loaded.or_else(|| Sdk::load(None).ok().map(|sdk| sdk.set_api_table()))
}
