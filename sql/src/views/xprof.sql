-- The view of XProf's events database.

-- Events of hosts and devices. Columns that no table of a run has are not here: fingerprints, tensors, cross-slice transfers.
CREATE VIEW xprof.events AS
SELECT CASE WHEN s.device IS NULL THEN 'cpu:0' ELSE 'gpu:' || CAST(s.device AS VARCHAR) END AS device,
       CASE WHEN s.device IS NULL THEN 'host' WHEN t.stream IS NULL THEN t.name ELSE 'device' END AS category,
       CAST(s.step AS VARCHAR) AS step, s.stream AS stream_id,
       CASE WHEN s.device IS NULL THEN t.tid END AS thread_id,
       CASE WHEN s.device IS NULL THEN t.name END AS thread_name,
       k.correlation AS correlation_id, s.start_ps / 1000 AS start_ns, s.end_ps / 1000 AS end_ns, s.self_ps / 1000 AS self_time_ns,
       o.name AS hlo_op, o.program AS hlo_module, k.op_name AS tf_op_name, s.name AS kernel_name,
       CASE WHEN k.grid IS NOT NULL THEN 'grid:' || k.grid || ' block:' || k.block END AS kernel_details,
       o.source AS source_line, s.id, s.run
FROM slices s
JOIN tracks t ON t.run = s.run AND t.track_id = s.track_id
LEFT JOIN kernels k ON k.run = s.run AND k.id = s.id
LEFT JOIN (SELECT run, id, name, program, source FROM ops WHERE class = 'hlo') o ON o.run = s.run AND o.id = s.id;
