"""Internal: sessions, the flight recorder, captures, workers, and the frameworks' profilers as sources."""
