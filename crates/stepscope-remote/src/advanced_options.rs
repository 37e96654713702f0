//! Keys of `ProfileOptions.advanced_configuration` and their valid values.
//!
//! The server checks requests against this table, and `cargo xtask gen` writes it into the Python
//! package. The keys are those that JAX and XProf document, and `python_sampling_hz` of this project.

use AdvancedValues::{Bool, Int, Ints, OneOf, OneOfOrNumber, Text};

/// Valid values of a key of `advanced_configuration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvancedValues {
    /// True or false; 0 and 1 count.
    Bool,
    /// An integer from the first to the second value, inclusive.
    Int(i64, i64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One of these words, or its number from 0.
    OneOfOrNumber(&'static [&'static str]),
    /// A text.
    Text,
    /// An integer from the first to the second value, or a text of several separated by commas.
    Ints(i64, i64),
}

const ANY: i64 = i64::MAX;
const U32: i64 = u32::MAX as i64;

/// Every key with its valid values, sorted by key.
pub const ADVANCED_OPTIONS: &[(&str, AdvancedValues)] = &[
    ("enable_continuous_profiling", Bool),
    ("gpu_dump_graph_node_mapping", Bool),
    ("gpu_enable_cupti_activity_graph_trace", Bool),
    ("gpu_enable_nvtx_tracking", Bool),
    ("gpu_max_activity_api_events", Int(0, ANY)),
    ("gpu_max_annotation_strings", Int(0, ANY)),
    ("gpu_max_callback_api_events", Int(0, ANY)),
    ("gpu_num_chips_to_profile_per_task", Int(0, 1_024)),
    ("gpu_pm_sample_buffer_size_per_gpu_mb", Int(1, 4_096)),
    ("gpu_pm_sample_counters", Text),
    ("gpu_pm_sample_interval_us", Int(1, 1_000_000_000)),
    ("max_trace_buffers", Int(1, U32)),
    ("profile_subprocesses", Bool),
    ("python_sampling_hz", Int(0, 10_000)),
    ("tpu_circular_buffer_tracing", Bool),
    ("tpu_cmn_perf_counter_sampling_options", Text),
    ("tpu_cpu_perf_counter_profile_events", Text),
    ("tpu_e2e_enable_fw_power_level_event", Bool),
    ("tpu_e2e_enable_fw_thermal_event", Bool),
    ("tpu_e2e_enable_fw_throttle_event", Bool),
    ("tpu_enable_periodic_counter_sampling", Bool),
    ("tpu_icr_perf_counter_sampling_options", Text),
    ("tpu_num_chips_to_profile_per_task", Int(0, 1_024)),
    ("tpu_num_sparse_core_tiles_to_trace", Int(0, 1_024)),
    ("tpu_num_sparse_cores_to_trace", Int(0, 1_024)),
    ("tpu_perf_counters", Bool),
    (
        "tpu_power_trace_level",
        OneOfOrNumber(&["POWER_TRACE_NONE", "POWER_TRACE_NORMAL", "POWER_TRACE_SPI"]),
    ),
    ("tpu_sc_dma", Bool),
    ("tpu_scs_perf_counter_sampling_options", Text),
    ("tpu_sctc_perf_counter_sampling_options", Text),
    ("tpu_sctd_perf_counter_sampling_options", Text),
    ("tpu_tc_perf_counter_sampling_options", Text),
    (
        "tpu_trace_mode",
        OneOf(&[
            "TRACE_ONLY_HOST",
            "TRACE_ONLY_XLA",
            "TRACE_COMPUTE",
            "TRACE_COMPUTE_AND_SYNC",
        ]),
    ),
    ("tpu_tracemark_lower", Int(0, U32)),
    ("tpu_tracemark_upper", Int(0, U32)),
    ("tpu_watched_sync_flag_mask", Ints(0, U32)),
    ("tpu_watched_sync_flag_number", Ints(0, U32)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_distinct() {
        assert!(
            ADVANCED_OPTIONS
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0)
        );
    }
}
