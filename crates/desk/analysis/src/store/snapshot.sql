-- Version 2: shows the moments of each process, as heapprof's collector writes them into comments
-- and times. Never change this migration: append a new one in schema.rs.
CREATE VIEW snapshot AS
  SELECT id, profile, program, pid, host, start_nanos, time_nanos, duration_nanos,
         row_number() OVER (PARTITION BY program, pid, host, start_nanos ORDER BY time_nanos, id) AS snapshot,
         count(*) OVER (PARTITION BY program, pid, host, start_nanos) AS snapshots
  FROM (
    SELECT p.id AS id, p.name AS profile,
           max(CASE WHEN substr(c.text, 1, 9) = 'program: ' THEN substr(c.text, 10) ELSE '' END) AS program,
           max(CASE WHEN substr(c.text, 1, 5) = 'pid: ' THEN substr(c.text, 6) ELSE '' END) AS pid,
           max(CASE WHEN substr(c.text, 1, 6) = 'host: ' THEN substr(c.text, 7) ELSE '' END) AS host,
           p.time_nanos - p.duration_nanos AS start_nanos, p.time_nanos AS time_nanos, p.duration_nanos AS duration_nanos
    FROM profile p
    JOIN comment c ON c.profile = p.id
    WHERE p.time_nanos <> 0
    GROUP BY p.id, p.name, p.time_nanos, p.duration_nanos
    HAVING sum(CASE WHEN substr(c.text, 1, 5) = 'pid: ' THEN 1 ELSE 0 END) = 1
       AND sum(CASE WHEN substr(c.text, 1, 20) = 'collector: heapprof ' THEN 1 ELSE 0 END) = 1
  ) known;
