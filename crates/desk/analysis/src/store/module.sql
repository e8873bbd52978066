-- Version 5: says whose code a function is. The columns are NULL if an older heapprof stored it.
-- Never change this migration.
ALTER TABLE function ADD COLUMN module TEXT;
ALTER TABLE function ADD COLUMN is_library INTEGER;
DROP VIEW function_report;
CREATE VIEW function_report AS
  SELECT p.name AS profile, s.type AS sample_type, s.unit AS unit,
         f.name AS function, t.flat AS flat, t.cum AS cum,
         t.low AS low, t.high AS high, t.samples AS samples,
         t.cum_low AS cum_low, t.cum_high AS cum_high, t.cum_samples AS cum_samples,
         f.module AS module, f.is_library AS is_library
  FROM function_total t
  JOIN profile p ON p.id = t.profile
  JOIN sample_type s ON s.id = t.type
  JOIN function f ON f.id = t.function;
