-- Tables of Nsight Systems' SQLite export: its names, times in nanoseconds.

-- Texts by number.
CREATE VIEW nsys.stringids AS
SELECT row_number() OVER (ORDER BY value) AS id, value
FROM (SELECT name AS value FROM slices UNION SELECT short_name FROM kernels UNION SELECT name FROM kernels);

-- Kernels.
CREATE VIEW nsys.cupti_activity_kind_kernel AS
SELECT k.start_ps / 1000 AS start, (k.start_ps + k.dur_ps) / 1000 AS end, k.device AS deviceid, k.stream AS streamid,
       k.correlation AS correlationid, t.pid * 16777216 AS globalpid, d.id AS demangledname, h.id AS shortname,
       TRY_CAST(split_part(k.grid, ',', 1) AS INT) AS gridx, TRY_CAST(split_part(k.grid, ',', 2) AS INT) AS gridy, TRY_CAST(split_part(k.grid, ',', 3) AS INT) AS gridz,
       TRY_CAST(split_part(k.block, ',', 1) AS INT) AS blockx, TRY_CAST(split_part(k.block, ',', 2) AS INT) AS blocky, TRY_CAST(split_part(k.block, ',', 3) AS INT) AS blockz,
       k.registers AS registersperthread, k.shared_bytes AS sharedmemoryexecuted,
       k.id, k.run
FROM kernels k
JOIN tracks t ON t.run = k.run AND t.track_id = k.track_id
JOIN nsys.stringids d ON d.value = k.name
JOIN nsys.stringids h ON h.value = k.short_name
WHERE k.work IN ('compute', 'communication');

-- Copies.
CREATE VIEW nsys.cupti_activity_kind_memcpy AS
SELECT k.start_ps / 1000 AS start, (k.start_ps + k.dur_ps) / 1000 AS end, k.device AS deviceid, k.stream AS streamid,
       k.correlation AS correlationid, k.bytes,
       CASE WHEN k.name ILIKE '%htod%' THEN 1 WHEN k.name ILIKE '%dtoh%' THEN 2 WHEN k.name ILIKE '%dtod%' THEN 8 WHEN k.name ILIKE '%htoh%' THEN 9 ELSE 0 END AS copykind,
       k.id, k.run
FROM kernels k WHERE k.work = 'memcpy';

-- Calls of the CUDA runtime and driver; of files without categories, by their names.
CREATE VIEW nsys.cupti_activity_kind_runtime AS
SELECT s.start_ps / 1000 AS start, s.end_ps / 1000 AS end, t.pid * 16777216 + t.tid AS globaltid, c.correlation AS correlationid,
       n.id AS nameid, s.id, s.run
FROM slices s
JOIN tracks t ON t.run = s.run AND t.track_id = s.track_id
JOIN nsys.stringids n ON n.value = s.name
LEFT JOIN (SELECT run, launch_id, min(correlation) AS correlation FROM kernels GROUP BY run, launch_id) c
  ON c.run = s.run AND c.launch_id = s.id
WHERE s.category IN ('cuda_runtime', 'cuda_driver') OR (s.category = '' AND s.device IS NULL AND regexp_like(s.name, '^cu(da)?[A-Z][A-Za-z0-9_]*$'));

-- Ranges that the program labels. 'eventtype' 59 is a range of a thread.
CREATE VIEW nsys.nvtx_events AS
SELECT s.start_ps / 1000 AS start, CASE WHEN s.unfinished THEN NULL ELSE s.end_ps / 1000 END AS end, 59 AS eventtype, s.name AS text,
       n.id AS textid, t.pid * 16777216 + t.tid AS globaltid, s.id, s.run
FROM slices s
JOIN tracks t ON t.run = s.run AND t.track_id = s.track_id
JOIN nsys.stringids n ON n.value = s.name
WHERE s.category IN ('nvtx', 'user_annotation') OR s.kind = 'user label' AND t.kind = 'thread';
