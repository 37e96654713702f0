//! Names of tracks of samples.

/// What the name of a track ends with whose slices are consecutive samples of a stack, not calls.
pub const TRACK_ENDING: &str = " (sampled)";

/// Returns whether the slices of a track of this name are samples of a stack.
pub fn is_sampled_track(name: &str) -> bool {
    name.ends_with(TRACK_ENDING)
}
