-- Tables of Perfetto's trace processor: its names, times in nanoseconds.

-- Slices, and instants with a duration of zero; an unfinished slice has -1.
CREATE VIEW perfetto.slice AS
SELECT id, start_ps / 1000 AS ts, CASE WHEN unfinished THEN -1 ELSE dur_ps / 1000 END AS dur, track_id, category, name,
       CAST(depth AS BIGINT) AS depth, parent_id, id AS arg_set_id, id AS slice_id, category AS cat, run
FROM slices
UNION ALL
SELECT id, at_ps / 1000 AS ts, 0 AS dur, track_id, category, name, 0 AS depth, NULL AS parent_id, id AS arg_set_id, id AS slice_id,
       category AS cat, run
FROM instants;

-- Tracks of any kind.
CREATE VIEW perfetto.track AS
SELECT track_id AS id, name, kind AS type, parent_track_id AS parent_id, run FROM tracks;

-- Tracks of threads and of queues of devices.
CREATE VIEW perfetto.thread_track AS
SELECT track_id AS id, name, 'thread_track' AS type, parent_track_id AS parent_id, track_id AS utid, run
FROM tracks WHERE kind IN ('thread', 'device', 'steps');

-- Threads and queues of devices. 'utid' is the track.
CREATE VIEW perfetto.thread AS
SELECT track_id AS utid, tid, name, CAST(file AS BIGINT) * 10000000000 + pid AS upid, pid = tid AS is_main_thread, run
FROM tracks WHERE kind IN ('thread', 'device', 'steps');

-- Processes. 'upid' is made of the file and the process.
CREATE VIEW perfetto.process AS
SELECT CAST(t.file AS BIGINT) * 10000000000 + t.pid AS upid, t.pid, min(g.name) AS name, t.run
FROM tracks t LEFT JOIN tracks g ON g.run = t.run AND g.track_id = t.parent_track_id
WHERE t.kind IN ('thread', 'device', 'steps') AND t.pid IS NOT NULL GROUP BY t.run, t.file, t.pid;

-- Samples of counters.
CREATE VIEW perfetto.counter AS
SELECT at_ps / 1000 AS ts, track_id, value, run FROM counters;

-- Counters.
CREATE VIEW perfetto.counter_track AS
SELECT track_id AS id, name, 'counter_track' AS type, unit, parent_track_id AS parent_id, run FROM tracks WHERE kind = 'counter';

-- Links between events.
CREATE VIEW perfetto.flow AS
SELECT from_id AS slice_out, to_id AS slice_in, run FROM flows;

-- Arguments. Keys begin with 'args.', as those that Perfetto reads from JSON do.
CREATE VIEW perfetto.args AS
SELECT id AS arg_set_id, 'args.' || key AS flat_key, 'args.' || key AS key, int_value,
       CASE WHEN type IN ('text', 'json', 'bytes') THEN text_value END AS string_value,
       CASE WHEN type = 'double' THEN double_value END AS real_value,
       CASE type WHEN 'text' THEN 'string' WHEN 'json' THEN 'json' WHEN 'double' THEN 'real' ELSE type END AS value_type,
       text_value AS display_value, run
FROM args;
