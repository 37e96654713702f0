//! Change points in a series of runs.
