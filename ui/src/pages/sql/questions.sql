-- Where does the time of a step go?
SELECT median(dur_ps) AS step_ps, median(compute_ps) AS compute_ps,
       median(exposed_communication_ps) AS exposed_communication_ps, median(exposed_copy_ps) AS exposed_copy_ps,
       median(input_ps) AS input_ps, median(compile_ps) AS compile_ps, median(host_ps) AS host_ps,
       median(idle_ps) AS idle_ps, count(*) AS steps
FROM steps WHERE NOT unfinished;

-- Which steps are slow, and what is different in them?
WITH typical AS (SELECT host, rank, median(dur_ps) AS p50 FROM steps WHERE NOT unfinished GROUP BY host, rank),
     slow AS (SELECT s.* FROM steps s JOIN typical t ON s.host = t.host AND (s.rank IS NOT DISTINCT FROM t.rank)
              WHERE s.dur_ps > 1.2 * t.p50),
     per_step AS (SELECT step, host, rank, name, sum(self_ps) AS self_ps FROM slices
                  WHERE step IS NOT NULL GROUP BY step, host, rank, name),
     usual AS (SELECT host, rank, name, median(self_ps) AS p50 FROM per_step GROUP BY host, rank, name)
SELECT slow.id, p.step, p.host, p.rank, p.name, p.self_ps - u.p50 AS more_ps
FROM per_step p
JOIN slow ON slow.step = p.step AND slow.host = p.host AND (slow.rank IS NOT DISTINCT FROM p.rank)
JOIN usual u ON u.host = p.host AND (u.rank IS NOT DISTINCT FROM p.rank) AND u.name = p.name
WHERE p.self_ps > u.p50 ORDER BY more_ps DESC LIMIT 20;

-- Which kernels take the time of the devices?
SELECT short_name, count(*) AS calls, sum(dur_ps) AS total_ps,
       1.0 * sum(dur_ps) / sum(sum(dur_ps)) OVER () AS time_share,
       approx_percentile_cont(dur_ps, 0.5) AS p50_ps, approx_percentile_cont(dur_ps, 0.99) AS p99_ps
FROM kernels GROUP BY short_name ORDER BY total_ps DESC LIMIT 20;

-- Where does a device wait longest, and between what?
WITH k AS (SELECT id, host, device, start_ps, name, max(start_ps + dur_ps) OVER earlier AS busy_until_ps,
                  last_value(name) OVER earlier AS before_name
           FROM kernels
           WINDOW earlier AS (PARTITION BY host, device ORDER BY start_ps
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
SELECT id, host, device, start_ps - busy_until_ps AS gap_ps, before_name, name AS after_name
FROM k WHERE start_ps > busy_until_ps ORDER BY gap_ps DESC LIMIT 20;

-- How much communication is not hidden behind computation?
SELECT host, rank, step, intervals_length(intervals_minus(communication, computation)) AS exposed_ps
FROM (SELECT host, rank, device, step,
             intervals(start_ps, dur_ps) FILTER (WHERE work = 'communication') AS communication,
             intervals(start_ps, dur_ps) FILTER (WHERE work = 'compute') AS computation
      FROM kernels GROUP BY host, rank, device, step)
ORDER BY exposed_ps DESC LIMIT 20;

-- Which rank comes late to collectives, and how much?
SELECT host, rank, count(*) AS times_last, sum(late_ps) AS late_ps
FROM (SELECT host, rank, late_ps,
             row_number() OVER (PARTITION BY run, collective ORDER BY aligned_start_ps DESC) AS place
      FROM collectives WHERE comparable)
WHERE place = 1 GROUP BY host, rank ORDER BY late_ps DESC;

-- Which operators cause the time of the devices?
SELECT op_name, count(*) AS kernels, count(DISTINCT op_id) AS ops, sum(dur_ps) AS device_ps
FROM kernels WHERE op_id IS NOT NULL GROUP BY op_name ORDER BY device_ps DESC LIMIT 20;

-- Is the program bound by launching?
SELECT count(*) AS kernels, count(*) FILTER (WHERE dur_ps < ps('10 us')) AS below_10us,
       median(start_ps - launch_start_ps) AS delay_p50_ps,
       count(*) FILTER (WHERE start_ps - launch_start_ps < ps('10 us')) AS device_was_waiting
FROM kernels WHERE launch_id IS NOT NULL;

-- What makes the host wait for a device, and who calls it?
SELECT w.name, regexp_replace(p.name, '[#.]?[0-9]+$', '') AS called_by, count(*) AS calls, sum(w.dur_ps) AS total_ps
FROM slices w LEFT JOIN slices p ON p.run = w.run AND p.id = w.parent_id
WHERE w.kind = 'wait, sync' GROUP BY 1, 2 ORDER BY total_ps DESC LIMIT 20;

-- What holds the memory at the peak?
WITH peak AS (SELECT run, host, allocator, at_ps
              FROM (SELECT *, row_number() OVER (PARTITION BY run, host, allocator ORDER BY in_use_bytes DESC, at_ps) AS n
                    FROM allocations)
              WHERE n = 1)
SELECT a.allocator, a.layer, a.op_name, a.category, sum(a.bytes) AS sum_bytes, count(*) AS blocks
FROM allocations a JOIN peak p ON p.run = a.run AND p.host = a.host AND p.allocator = a.allocator
WHERE a.at_ps <= p.at_ps AND (a.freed_at_ps IS NULL OR a.freed_at_ps > p.at_ps)
GROUP BY a.allocator, a.layer, a.op_name, a.category ORDER BY sum_bytes DESC LIMIT 20;

-- Does the program wait for its input?
SELECT host, rank, count(*) AS steps, count(*) FILTER (WHERE input_ps > 0.1 * dur_ps) AS input_bound,
       1.0 * sum(input_ps) / sum(dur_ps) AS input_share
FROM steps WHERE NOT unfinished GROUP BY host, rank ORDER BY host, rank;

-- Which layers of the model cost most?
SELECT layer, count(*) AS kernels, sum(dur_ps) AS device_ps, sum(dur_ps) / count(DISTINCT step) AS per_step_ps
FROM kernels WHERE layer IS NOT NULL AND step IS NOT NULL GROUP BY layer ORDER BY device_ps DESC LIMIT 20;

-- Do counters differ between usual and slow steps?
SELECT c.name, c.unit, s.outlier, avg(c.value) AS mean, count(*) AS samples
FROM steps s JOIN counters c ON c.run = s.run AND c.host = s.host
                            AND c.at_ps >= s.start_ps AND c.at_ps < s.start_ps + s.dur_ps
GROUP BY 1, 2, 3 ORDER BY 1, 3;

-- What became slower from the first run to the second, per step?
WITH per_run AS (SELECT r.number, regexp_replace(s.name, '#[0-9]+$', '') AS name,
                        sum(s.self_ps) / greatest(max(r.steps), 1) AS per_step_ps
                 FROM slices s JOIN runs r ON r.run = s.run GROUP BY 1, 2)
SELECT coalesce(a.name, b.name) AS name, a.per_step_ps AS before_ps, b.per_step_ps AS after_ps,
       coalesce(b.per_step_ps, 0) - coalesce(a.per_step_ps, 0) AS more_ps
FROM (SELECT * FROM per_run WHERE number = 0) a
FULL OUTER JOIN (SELECT * FROM per_run WHERE number = 1) b ON a.name = b.name
ORDER BY abs(coalesce(b.per_step_ps, 0) - coalesce(a.per_step_ps, 0)) DESC LIMIT 20;

-- Which hosts are slower than the others of their run?
WITH per_host AS (SELECT run, host, rank, median(dur_ps) AS p50_ps, count(*) AS steps
                  FROM steps WHERE NOT unfinished GROUP BY run, host, rank)
SELECT run, host, rank, steps, p50_ps, 1.0 * p50_ps / usual_ps - 1 AS slower_share
FROM (SELECT *, median(p50_ps) OVER (PARTITION BY run) AS usual_ps FROM per_host)
ORDER BY slower_share DESC LIMIT 50;
