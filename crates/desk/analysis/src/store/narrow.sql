-- Version 9: narrow rows. One row has the four values of a heap sample, and what is computed from
-- samples is not stored: views compute it. Never change this migration.
CREATE TABLE heap_sample (
  profile INTEGER NOT NULL REFERENCES profile (id),
  stack INTEGER NOT NULL,
  label_set INTEGER NOT NULL,
  alloc_objects INTEGER NOT NULL,
  alloc_space INTEGER NOT NULL,
  inuse_objects INTEGER NOT NULL,
  inuse_space INTEGER NOT NULL,
  PRIMARY KEY (profile, stack, label_set)
) WITHOUT ROWID;
CREATE TABLE heap_spread (
  profile INTEGER NOT NULL REFERENCES profile (id),
  stack INTEGER NOT NULL,
  label_set INTEGER NOT NULL,
  alloc_objects_sampled INTEGER,
  alloc_objects_variance REAL,
  alloc_space_sampled INTEGER,
  alloc_space_variance REAL,
  inuse_objects_sampled INTEGER,
  inuse_objects_variance REAL,
  inuse_space_sampled INTEGER,
  inuse_space_variance REAL,
  PRIMARY KEY (profile, stack, label_set)
) WITHOUT ROWID;
CREATE TABLE other_sample (
  profile INTEGER NOT NULL REFERENCES profile (id),
  type INTEGER NOT NULL REFERENCES sample_type (id),
  stack INTEGER NOT NULL,
  label_set INTEGER NOT NULL,
  value INTEGER NOT NULL,
  sampled INTEGER,
  variance REAL,
  PRIMARY KEY (profile, type, stack, label_set)
) WITHOUT ROWID;
INSERT INTO heap_sample
  SELECT s.profile, s.stack, s.label_set,
         sum(CASE t.type WHEN 'alloc_objects' THEN s.value ELSE 0 END),
         sum(CASE t.type WHEN 'alloc_space' THEN s.value ELSE 0 END),
         sum(CASE t.type WHEN 'inuse_objects' THEN s.value ELSE 0 END),
         sum(CASE t.type WHEN 'inuse_space' THEN s.value ELSE 0 END)
  FROM sample s
  JOIN sample_type t ON t.id = s.type
  WHERE (t.type IN ('alloc_objects', 'inuse_objects') AND t.unit = 'count')
     OR (t.type IN ('alloc_space', 'inuse_space') AND t.unit = 'bytes')
  GROUP BY s.profile, s.stack, s.label_set;
INSERT INTO heap_spread
  SELECT s.profile, s.stack, s.label_set,
         max(CASE t.type WHEN 'alloc_objects' THEN s.sampled END),
         max(CASE t.type WHEN 'alloc_objects' THEN s.variance END),
         max(CASE t.type WHEN 'alloc_space' THEN s.sampled END),
         max(CASE t.type WHEN 'alloc_space' THEN s.variance END),
         max(CASE t.type WHEN 'inuse_objects' THEN s.sampled END),
         max(CASE t.type WHEN 'inuse_objects' THEN s.variance END),
         max(CASE t.type WHEN 'inuse_space' THEN s.sampled END),
         max(CASE t.type WHEN 'inuse_space' THEN s.variance END)
  FROM sample s
  JOIN sample_type t ON t.id = s.type
  WHERE s.sampled IS NOT NULL
    AND ((t.type IN ('alloc_objects', 'inuse_objects') AND t.unit = 'count')
      OR (t.type IN ('alloc_space', 'inuse_space') AND t.unit = 'bytes'))
  GROUP BY s.profile, s.stack, s.label_set;
INSERT INTO other_sample
  SELECT s.profile, s.type, s.stack, s.label_set, s.value, s.sampled, s.variance
  FROM sample s
  JOIN sample_type t ON t.id = s.type
  WHERE NOT ((t.type IN ('alloc_objects', 'inuse_objects') AND t.unit = 'count')
          OR (t.type IN ('alloc_space', 'inuse_space') AND t.unit = 'bytes'));
DROP VIEW function_report;
DROP TABLE function_total;
DROP TABLE sample;
DROP TABLE profile_part;
ALTER TABLE location ADD COLUMN function INTEGER REFERENCES function (id);
CREATE VIEW sample AS
  SELECT h.profile AS profile, t.id AS type, h.stack AS stack, h.label_set AS label_set, h.alloc_objects AS value,
         k.alloc_objects_sampled AS sampled, k.alloc_objects_variance AS variance
  FROM heap_sample h
  JOIN sample_type t ON t.type = 'alloc_objects' AND t.unit = 'count'
  LEFT JOIN heap_spread k ON k.profile = h.profile AND k.stack = h.stack AND k.label_set = h.label_set
  WHERE h.alloc_objects <> 0
  UNION ALL
  SELECT h.profile, t.id, h.stack, h.label_set, h.alloc_space, k.alloc_space_sampled, k.alloc_space_variance
  FROM heap_sample h
  JOIN sample_type t ON t.type = 'alloc_space' AND t.unit = 'bytes'
  LEFT JOIN heap_spread k ON k.profile = h.profile AND k.stack = h.stack AND k.label_set = h.label_set
  WHERE h.alloc_space <> 0
  UNION ALL
  SELECT h.profile, t.id, h.stack, h.label_set, h.inuse_objects, k.inuse_objects_sampled, k.inuse_objects_variance
  FROM heap_sample h
  JOIN sample_type t ON t.type = 'inuse_objects' AND t.unit = 'count'
  LEFT JOIN heap_spread k ON k.profile = h.profile AND k.stack = h.stack AND k.label_set = h.label_set
  WHERE h.inuse_objects <> 0
  UNION ALL
  SELECT h.profile, t.id, h.stack, h.label_set, h.inuse_space, k.inuse_space_sampled, k.inuse_space_variance
  FROM heap_sample h
  JOIN sample_type t ON t.type = 'inuse_space' AND t.unit = 'bytes'
  LEFT JOIN heap_spread k ON k.profile = h.profile AND k.stack = h.stack AND k.label_set = h.label_set
  WHERE h.inuse_space <> 0
  UNION ALL
  SELECT profile, type, stack, label_set, value, sampled, variance
  FROM other_sample;
CREATE VIEW stack_function AS
  WITH RECURSIVE up (stack, id, is_leaf) AS (
    SELECT stack, stack, 1 FROM (SELECT stack FROM heap_sample UNION SELECT stack FROM other_sample) sampled
    UNION ALL
    SELECT up.stack, s.parent, 0 FROM up JOIN stack s ON s.id = up.id WHERE s.parent <> 0 AND s.parent < s.id
  )
  SELECT stack, min(function) AS function, max(is_leaf) AS is_leaf
  FROM (
    SELECT up.stack AS stack, f.id AS function, f.name AS name,
           CASE WHEN up.is_leaf = 1 AND n.position = 0 THEN 1 ELSE 0 END AS is_leaf
    FROM up
    JOIN stack s ON s.id = up.id
    JOIN line n ON n.location = s.location
    JOIN function f ON f.id = n.function
    WHERE f.name <> ''
    UNION ALL
    SELECT up.stack, f.id, f.name,
           CASE WHEN up.is_leaf = 1 AND NOT EXISTS (
             SELECT 1 FROM line n JOIN function g ON g.id = n.function
             WHERE n.location = l.id AND n.position = 0 AND g.name <> ''
           ) THEN 1 ELSE 0 END
    FROM up
    JOIN stack s ON s.id = up.id
    JOIN location l ON l.id = s.location
    JOIN function f ON f.id = l.function
    UNION ALL
    SELECT 0, f.id, f.name, 1 FROM function f WHERE f.name = '(empty stack)'
  ) frame
  GROUP BY stack, name;
CREATE VIEW function_total AS
  SELECT s.profile AS profile, s.type AS type, k.function AS function,
         sum(CASE WHEN k.is_leaf = 1 THEN s.value ELSE 0 END) AS flat, sum(s.value) AS cum,
         sum(CASE WHEN k.is_leaf = 1 THEN s.sampled END) AS samples,
         sum(CASE WHEN k.is_leaf = 1 THEN s.variance END) AS variance,
         sum(s.sampled) AS cum_samples, sum(s.variance) AS cum_variance
  FROM sample s
  JOIN stack_function k ON k.stack = s.stack
  GROUP BY s.profile, s.type, k.function;
CREATE VIEW function_report AS
  SELECT p.name AS profile, s.type AS sample_type, s.unit AS unit,
         f.name AS function, t.flat AS flat, t.cum AS cum,
         t.samples AS samples, t.cum_samples AS cum_samples,
         f.module AS module, f.is_library AS is_library
  FROM function_total t
  JOIN profile p ON p.id = t.profile
  JOIN sample_type s ON s.id = t.type
  JOIN function f ON f.id = t.function;
