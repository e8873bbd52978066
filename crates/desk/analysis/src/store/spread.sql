-- Version 4: says how sure estimates are. The columns are NULL if a value is exact. Never change
-- this migration.
ALTER TABLE sample ADD COLUMN sampled INTEGER;
ALTER TABLE sample ADD COLUMN variance REAL;
ALTER TABLE profile_total ADD COLUMN samples INTEGER;
ALTER TABLE profile_total ADD COLUMN variance REAL;
ALTER TABLE profile_total ADD COLUMN low INTEGER;
ALTER TABLE profile_total ADD COLUMN high INTEGER;
ALTER TABLE function_total ADD COLUMN samples INTEGER;
ALTER TABLE function_total ADD COLUMN variance REAL;
ALTER TABLE function_total ADD COLUMN low INTEGER;
ALTER TABLE function_total ADD COLUMN high INTEGER;
ALTER TABLE function_total ADD COLUMN cum_samples INTEGER;
ALTER TABLE function_total ADD COLUMN cum_variance REAL;
ALTER TABLE function_total ADD COLUMN cum_low INTEGER;
ALTER TABLE function_total ADD COLUMN cum_high INTEGER;
DROP VIEW profile_report;
CREATE VIEW profile_report AS
  SELECT p.name AS profile, s.type AS sample_type, s.unit AS unit, t.total AS total, t.net AS net,
         t.low AS low, t.high AS high, t.samples AS samples
  FROM profile_total t
  JOIN profile p ON p.id = t.profile
  JOIN sample_type s ON s.id = t.type;
DROP VIEW function_report;
CREATE VIEW function_report AS
  SELECT p.name AS profile, s.type AS sample_type, s.unit AS unit,
         f.name AS function, t.flat AS flat, t.cum AS cum,
         t.low AS low, t.high AS high, t.samples AS samples,
         t.cum_low AS cum_low, t.cum_high AS cum_high, t.cum_samples AS cum_samples
  FROM function_total t
  JOIN profile p ON p.id = t.profile
  JOIN sample_type s ON s.id = t.type
  JOIN function f ON f.id = t.function;
