//! Field numbers of the schema from Perfetto's sources, and the content types of packets.

/// `TracePacket`.
pub(crate) mod packet {
    pub(crate) const PROCESS_TREE: u32 = 2;
    pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const SEQUENCE_ID: u32 = 10;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const INTERNED_DATA: u32 = 12;
    pub(crate) const SEQUENCE_FLAGS: u32 = 13;
    pub(crate) const TRACE_STATS: u32 = 35;
    pub(crate) const STATE_CLEARED: u32 = 41;
    pub(crate) const PREVIOUS_DROPPED: u32 = 42;
    pub(crate) const PROCESS_DESCRIPTOR: u32 = 43;
    pub(crate) const THREAD_DESCRIPTOR: u32 = 44;
    pub(crate) const SYSTEM_INFO: u32 = 45;
    pub(crate) const COMPRESSED_PACKETS: u32 = 50;
    pub(crate) const CLOCK_ID: u32 = 58;
    pub(crate) const DEFAULTS: u32 = 59;
    pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
    pub(crate) const FIRST_ON_SEQUENCE: u32 = 87;
    pub(crate) const TRACE_UUID: u32 = 89;
    /// Bit of `sequence_flags`: the interned tables of this sequence are cleared.
    pub(crate) const FLAG_CLEARED: u64 = 1;
    /// Bit of `sequence_flags`: the packet refers to interned tables.
    pub(crate) const FLAG_NEEDS_STATE: u64 = 2;
}

/// `TrackEvent`.
pub(crate) mod event {
    pub(crate) const TIMESTAMP_DELTA_US: u32 = 1;
    pub(crate) const THREAD_TIME_DELTA_US: u32 = 2;
    pub(crate) const CATEGORY_IIDS: u32 = 3;
    pub(crate) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(crate) const TASK_EXECUTION: u32 = 5;
    pub(crate) const LEGACY_EVENT: u32 = 6;
    pub(crate) const TYPE: u32 = 9;
    pub(crate) const NAME_IID: u32 = 10;
    pub(crate) const TRACK_UUID: u32 = 11;
    pub(crate) const EXTRA_COUNTER_VALUES: u32 = 12;
    pub(crate) const TIMESTAMP_ABSOLUTE_US: u32 = 16;
    pub(crate) const THREAD_TIME_ABSOLUTE_US: u32 = 17;
    pub(crate) const LOG_MESSAGE: u32 = 21;
    pub(crate) const CATEGORIES: u32 = 22;
    pub(crate) const NAME: u32 = 23;
    pub(crate) const COUNTER_VALUE: u32 = 30;
    pub(crate) const EXTRA_COUNTER_TRACKS: u32 = 31;
    pub(crate) const SOURCE_LOCATION: u32 = 33;
    pub(crate) const SOURCE_LOCATION_IID: u32 = 34;
    pub(crate) const FLOW_IDS_OLD: u32 = 36;
    pub(crate) const TERMINATING_FLOW_IDS_OLD: u32 = 42;
    pub(crate) const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub(crate) const EXTRA_DOUBLE_COUNTER_TRACKS: u32 = 45;
    pub(crate) const EXTRA_DOUBLE_COUNTER_VALUES: u32 = 46;
    pub(crate) const FLOW_IDS: u32 = 47;
    pub(crate) const TERMINATING_FLOW_IDS: u32 = 48;
    pub(crate) const CORRELATION_ID: u32 = 52;
    pub(crate) const CORRELATION_ID_STR: u32 = 53;
    pub(crate) const CORRELATION_ID_STR_IID: u32 = 54;
    pub(crate) const TYPE_BEGIN: u64 = 1;
    pub(crate) const TYPE_END: u64 = 2;
    pub(crate) const TYPE_INSTANT: u64 = 3;
    pub(crate) const TYPE_COUNTER: u64 = 4;
}

/// `TrackEvent.LegacyEvent`.
pub(crate) mod legacy {
    pub(crate) const NAME_IID: u32 = 1;
    pub(crate) const PHASE: u32 = 2;
    pub(crate) const DURATION_US: u32 = 3;
    pub(crate) const THREAD_DURATION_US: u32 = 4;
    pub(crate) const UNSCOPED_ID: u32 = 6;
    pub(crate) const ID_SCOPE: u32 = 7;
    pub(crate) const BIND_ID: u32 = 8;
    pub(crate) const LOCAL_ID: u32 = 10;
    pub(crate) const GLOBAL_ID: u32 = 11;
    pub(crate) const BIND_TO_ENCLOSING: u32 = 12;
    pub(crate) const FLOW_DIRECTION: u32 = 13;
    pub(crate) const PID_OVERRIDE: u32 = 18;
    pub(crate) const TID_OVERRIDE: u32 = 19;
}

/// `TracePacketDefaults` and `TrackEventDefaults`.
pub(crate) mod defaults {
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const CLOCK_ID: u32 = 58;
    pub(crate) const TRACK_UUID: u32 = 11;
    pub(crate) const EXTRA_COUNTER_TRACKS: u32 = 31;
    pub(crate) const EXTRA_DOUBLE_COUNTER_TRACKS: u32 = 45;
}

/// `TrackDescriptor`.
pub(crate) mod track {
    pub(crate) const UUID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const PROCESS: u32 = 3;
    pub(crate) const THREAD: u32 = 4;
    pub(crate) const PARENT_UUID: u32 = 5;
    pub(crate) const COUNTER: u32 = 8;
    pub(crate) const STATIC_NAME: u32 = 10;
    pub(crate) const CHILD_ORDERING: u32 = 11;
    pub(crate) const SIBLING_ORDER_RANK: u32 = 12;
    pub(crate) const ATRACE_NAME: u32 = 13;
    pub(crate) const ORDERING_EXPLICIT: u64 = 3;
}

/// `ProcessDescriptor` and `ThreadDescriptor`.
pub(crate) mod process {
    pub(crate) const PID: u32 = 1;
    pub(crate) const CMDLINE: u32 = 2;
    pub(crate) const LEGACY_SORT_INDEX: u32 = 3;
    pub(crate) const NAME: u32 = 6;
    pub(crate) const THREAD_TID: u32 = 2;
    pub(crate) const THREAD_NAME: u32 = 5;
    pub(crate) const THREAD_REFERENCE_TIMESTAMP_US: u32 = 6;
    pub(crate) const THREAD_REFERENCE_THREAD_TIME_US: u32 = 7;
}

/// `ProcessTree` with its `Process` and `Thread`.
pub(crate) mod tree {
    pub(crate) const PROCESSES: u32 = 1;
    pub(crate) const THREADS: u32 = 2;
    pub(crate) const PROCESS_PID: u32 = 1;
    pub(crate) const PROCESS_CMDLINE: u32 = 3;
    pub(crate) const THREAD_TID: u32 = 1;
    pub(crate) const THREAD_NAME: u32 = 2;
    pub(crate) const THREAD_TGID: u32 = 3;
}

/// `CounterDescriptor`.
pub(crate) mod counter {
    pub(crate) const TYPE: u32 = 1;
    pub(crate) const UNIT: u32 = 3;
    pub(crate) const UNIT_MULTIPLIER: u32 = 4;
    pub(crate) const IS_INCREMENTAL: u32 = 5;
    pub(crate) const UNIT_NAME: u32 = 6;
}

/// `ClockSnapshot` and its `Clock`.
pub(crate) mod clock {
    pub(crate) const CLOCKS: u32 = 1;
    pub(crate) const PRIMARY: u32 = 2;
    pub(crate) const ID: u32 = 1;
    pub(crate) const TIMESTAMP: u32 = 2;
    pub(crate) const IS_INCREMENTAL: u32 = 3;
    pub(crate) const UNIT_MULTIPLIER_NS: u32 = 4;
    /// Unix time.
    pub(crate) const REALTIME: u64 = 1;
    /// The clock of the legacy time fields.
    pub(crate) const MONOTONIC: u64 = 3;
    /// The default clock of packets.
    pub(crate) const BOOTTIME: u64 = 6;
}

/// `InternedData`, and the entries in it.
pub(crate) mod interned {
    pub(crate) const EVENT_CATEGORIES: u32 = 1;
    pub(crate) const EVENT_NAMES: u32 = 2;
    pub(crate) const ANNOTATION_NAMES: u32 = 3;
    pub(crate) const SOURCE_LOCATIONS: u32 = 4;
    pub(crate) const LOG_BODIES: u32 = 20;
    pub(crate) const ANNOTATION_TYPES: u32 = 27;
    pub(crate) const ANNOTATION_STRINGS: u32 = 29;
    pub(crate) const CORRELATION_IDS: u32 = 43;
    pub(crate) const IID: u32 = 1;
    pub(crate) const TEXT: u32 = 2;
}

/// `SourceLocation`.
pub(crate) mod location {
    pub(crate) const FILE: u32 = 2;
    pub(crate) const FUNCTION: u32 = 3;
    pub(crate) const LINE: u32 = 4;
}

/// `DebugAnnotation`.
pub(crate) mod annotation {
    pub(crate) const NAME_IID: u32 = 1;
    pub(crate) const BOOL: u32 = 2;
    pub(crate) const UINT: u32 = 3;
    pub(crate) const INT: u32 = 4;
    pub(crate) const DOUBLE: u32 = 5;
    pub(crate) const STRING: u32 = 6;
    pub(crate) const POINTER: u32 = 7;
    pub(crate) const NESTED: u32 = 8;
    pub(crate) const LEGACY_JSON: u32 = 9;
    pub(crate) const NAME: u32 = 10;
    pub(crate) const DICT_ENTRIES: u32 = 11;
    pub(crate) const ARRAY_VALUES: u32 = 12;
    pub(crate) const PROTO_VALUE: u32 = 14;
    pub(crate) const STRING_IID: u32 = 17;
}

/// `DebugAnnotation.NestedValue`, the deprecated form of nesting.
pub(crate) mod nested {
    pub(crate) const TYPE: u32 = 1;
    pub(crate) const DICT_KEYS: u32 = 2;
    pub(crate) const DICT_VALUES: u32 = 3;
    pub(crate) const ARRAY_VALUES: u32 = 4;
    pub(crate) const INT: u32 = 5;
    pub(crate) const DOUBLE: u32 = 6;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STRING: u32 = 8;
    pub(crate) const TYPE_DICT: u64 = 1;
    pub(crate) const TYPE_ARRAY: u64 = 2;
}

/// Content types of packets by field number, sorted. A packet has at most one.
pub(crate) const KINDS: &[(u32, &str)] = &[
    (1, "ftrace_events"),
    (2, "process_tree"),
    (4, "inode_file_map"),
    (5, "chrome_events"),
    (6, "clock_snapshot"),
    (7, "sys_stats"),
    (9, "process_stats"),
    (11, "track_event"),
    (33, "trace_config"),
    (34, "ftrace_stats"),
    (35, "trace_stats"),
    (36, "synchronization_marker"),
    (37, "profile_packet"),
    (38, "battery"),
    (39, "android_log"),
    (40, "power_rails"),
    (43, "process_descriptor"),
    (44, "thread_descriptor"),
    (45, "system_info"),
    (46, "trigger"),
    (47, "packages_list"),
    (48, "chrome_benchmark_metadata"),
    (49, "perfetto_metatrace"),
    (50, "compressed_packets"),
    (51, "chrome_metadata"),
    (52, "gpu_counter_event"),
    (53, "gpu_render_stage_event"),
    (54, "streaming_profile_packet"),
    (57, "graphics_frame_event"),
    (60, "track_descriptor"),
    (61, "module_symbols"),
    (62, "vulkan_memory_event"),
    (63, "gpu_log"),
    (64, "deobfuscation_mapping"),
    (65, "vulkan_api_event"),
    (66, "perf_sample"),
    (67, "cpu_info"),
    (68, "smaps_packet"),
    (69, "service_event"),
    (70, "initial_display_state"),
    (71, "gpu_mem_total_event"),
    (72, "extension_descriptor"),
    (73, "memory_tracker_snapshot"),
    (74, "streaming_allocation"),
    (75, "streaming_free"),
    (77, "android_energy_estimation_breakdown"),
    (78, "ui_state"),
    (82, "translation_table"),
    (83, "android_game_intervention_list"),
    (84, "statsd_atom"),
    (86, "android_system_property"),
    (89, "trace_uuid"),
    (90, "track_event_range_of_interest"),
    (91, "entity_state_residency"),
    (95, "etw_events"),
    (99, "v8_js_code"),
    (100, "v8_internal_code"),
    (101, "v8_wasm_code"),
    (102, "v8_reg_exp_code"),
    (103, "v8_code_move"),
    (107, "remote_clock_sync"),
    (109, "chrome_trigger"),
    (110, "pixel_modem_events"),
    (111, "pixel_modem_token_database"),
    (113, "clone_snapshot_trigger"),
    (115, "kernel_wakelock_data"),
    (117, "generic_kernel_task_state_event"),
    (118, "generic_kernel_cpu_freq_event"),
    (119, "cpu_per_uid_data"),
    (120, "generic_kernel_task_rename_event"),
    (122, "generic_kernel_process_tree"),
    (123, "user_list"),
    (124, "trace_provenance"),
    (125, "protovms"),
    (126, "trace_attributes"),
    (127, "android_aflags"),
    (128, "gpu_info"),
    (129, "generic_gpu_frequency_event"),
    (130, "interrupt_info"),
    (131, "art_process_metadata"),
    (132, "journald_event"),
    (133, "zstd_compressed_packets"),
    (134, "concurrent_session_event"),
    (135, "stack_sample"),
    (138, "recovered_trace_info"),
    (900, "for_testing"),
];

/// Content types that the reader decodes: the others are reported as not decoded.
pub(crate) const DECODED: &[u32] = &[
    packet::PROCESS_TREE,
    packet::CLOCK_SNAPSHOT,
    packet::TRACK_EVENT,
    packet::TRACE_STATS,
    packet::PROCESS_DESCRIPTOR,
    packet::THREAD_DESCRIPTOR,
    packet::SYSTEM_INFO,
    packet::COMPRESSED_PACKETS,
    packet::TRACK_DESCRIPTOR,
    packet::TRACE_UUID,
];

/// Returns the name of a packet's content type, `None` if the field is not a known one.
pub(crate) fn kind_name(number: u32) -> Option<&'static str> {
    let at = KINDS.binary_search_by_key(&number, |kind| kind.0).ok()?;
    KINDS.get(at).map(|kind| kind.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_sorted_and_found() {
        assert!(KINDS.is_sorted_by_key(|kind| kind.0));
        assert_eq!(kind_name(packet::TRACK_EVENT), Some("track_event"));
        assert_eq!(kind_name(packet::TIMESTAMP), None);
        assert!(DECODED.iter().all(|kind| kind_name(*kind).is_some()));
    }
}
