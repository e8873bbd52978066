-- Version 11: a function of a stack is a name in a file, as in reports, and no longer a name alone.
-- Never change this migration.
DROP VIEW function_report;
DROP VIEW stack_function;
CREATE VIEW stack_function AS
  WITH RECURSIVE up (stack, id, is_leaf) AS (
    SELECT stack, stack, 1 FROM (SELECT stack FROM heap_sample UNION SELECT stack FROM other_sample) sampled
    UNION ALL
    SELECT up.stack, s.parent, 0 FROM up JOIN stack s ON s.id = up.id WHERE s.parent <> 0 AND s.parent < s.id
  )
  SELECT stack, min(function) AS function, max(is_leaf) AS is_leaf
  FROM (
    SELECT up.stack AS stack, f.id AS function, f.name AS name, f.filename AS filename,
           CASE WHEN up.is_leaf = 1 AND n.position = 0 THEN 1 ELSE 0 END AS is_leaf
    FROM up
    JOIN stack s ON s.id = up.id
    JOIN line n ON n.location = s.location
    JOIN function f ON f.id = n.function
    WHERE f.name <> ''
    UNION ALL
    SELECT up.stack, f.id, f.name, f.filename,
           CASE WHEN up.is_leaf = 1 AND NOT EXISTS (
             SELECT 1 FROM line n JOIN function g ON g.id = n.function
             WHERE n.location = l.id AND n.position = 0 AND g.name <> ''
           ) THEN 1 ELSE 0 END
    FROM up
    JOIN stack s ON s.id = up.id
    JOIN location l ON l.id = s.location
    JOIN function f ON f.id = l.function
    UNION ALL
    SELECT 0, f.id, f.name, f.filename, 1 FROM function f WHERE f.name = '(empty stack)'
  ) frame
  GROUP BY stack, name, filename;
CREATE VIEW function_report AS
  SELECT p.name AS profile, s.type AS sample_type, s.unit AS unit,
         f.name AS function, t.flat AS flat, t.cum AS cum,
         t.samples AS samples, t.cum_samples AS cum_samples,
         f.module AS module, f.is_library AS is_library, f.filename AS file
  FROM function_total t
  JOIN profile p ON p.id = t.profile
  JOIN sample_type s ON s.id = t.type
  JOIN function f ON f.id = t.function;
