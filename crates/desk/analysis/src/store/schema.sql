-- Version 1: makes the first tables and views. Never change this migration: append a new one in
-- schema.rs.
CREATE TABLE profile (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  time_nanos INTEGER NOT NULL,
  duration_nanos INTEGER NOT NULL,
  period_type TEXT NOT NULL,
  period_unit TEXT NOT NULL,
  period INTEGER NOT NULL,
  default_sample_type TEXT NOT NULL,
  drop_frames TEXT NOT NULL,
  keep_frames TEXT NOT NULL,
  doc_url TEXT NOT NULL,
  samples INTEGER NOT NULL
);
CREATE TABLE comment (
  profile INTEGER NOT NULL REFERENCES profile (id),
  position INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (profile, position)
) WITHOUT ROWID;
CREATE TABLE sample_type (
  id INTEGER PRIMARY KEY,
  type TEXT NOT NULL,
  unit TEXT NOT NULL,
  UNIQUE (type, unit)
);
CREATE TABLE profile_total (
  profile INTEGER NOT NULL REFERENCES profile (id),
  position INTEGER NOT NULL,
  type INTEGER NOT NULL REFERENCES sample_type (id),
  total INTEGER NOT NULL,
  net INTEGER NOT NULL,
  PRIMARY KEY (profile, position)
) WITHOUT ROWID;
CREATE TABLE mapping (
  id INTEGER PRIMARY KEY,
  memory_start INTEGER NOT NULL,
  memory_limit INTEGER NOT NULL,
  file_offset INTEGER NOT NULL,
  filename TEXT NOT NULL,
  build_id TEXT NOT NULL,
  has_functions INTEGER NOT NULL,
  has_filenames INTEGER NOT NULL,
  has_line_numbers INTEGER NOT NULL,
  has_inline_frames INTEGER NOT NULL
);
CREATE TABLE profile_mapping (
  profile INTEGER NOT NULL REFERENCES profile (id),
  position INTEGER NOT NULL,
  mapping INTEGER NOT NULL REFERENCES mapping (id),
  PRIMARY KEY (profile, position)
) WITHOUT ROWID;
CREATE TABLE function (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  system_name TEXT NOT NULL,
  filename TEXT NOT NULL,
  start_line INTEGER NOT NULL
);
CREATE TABLE location (
  id INTEGER PRIMARY KEY,
  mapping INTEGER REFERENCES mapping (id),
  address INTEGER NOT NULL,
  is_folded INTEGER NOT NULL
);
CREATE TABLE line (
  location INTEGER NOT NULL REFERENCES location (id),
  position INTEGER NOT NULL,
  function INTEGER NOT NULL REFERENCES function (id),
  line INTEGER NOT NULL,
  column INTEGER NOT NULL,
  PRIMARY KEY (location, position)
) WITHOUT ROWID;
CREATE TABLE label (
  label_set INTEGER NOT NULL,
  position INTEGER NOT NULL,
  key TEXT NOT NULL,
  str TEXT NOT NULL,
  num INTEGER NOT NULL,
  num_unit TEXT NOT NULL,
  PRIMARY KEY (label_set, position)
) WITHOUT ROWID;
CREATE TABLE stack (
  id INTEGER PRIMARY KEY,
  parent INTEGER NOT NULL,
  location INTEGER NOT NULL REFERENCES location (id)
);
CREATE TABLE sample (
  profile INTEGER NOT NULL REFERENCES profile (id),
  type INTEGER NOT NULL REFERENCES sample_type (id),
  stack INTEGER NOT NULL,
  label_set INTEGER NOT NULL,
  value INTEGER NOT NULL,
  PRIMARY KEY (profile, type, stack, label_set)
) WITHOUT ROWID;
CREATE TABLE function_total (
  profile INTEGER NOT NULL REFERENCES profile (id),
  type INTEGER NOT NULL REFERENCES sample_type (id),
  function INTEGER NOT NULL REFERENCES function (id),
  flat INTEGER NOT NULL,
  cum INTEGER NOT NULL,
  PRIMARY KEY (profile, type, function)
) WITHOUT ROWID;
CREATE VIEW profile_report AS
  SELECT p.name AS profile, s.type AS sample_type, s.unit AS unit, t.total AS total, t.net AS net
  FROM profile_total t
  JOIN profile p ON p.id = t.profile
  JOIN sample_type s ON s.id = t.type;
CREATE VIEW function_report AS
  SELECT p.name AS profile, s.type AS sample_type, s.unit AS unit,
         f.name AS function, t.flat AS flat, t.cum AS cum
  FROM function_total t
  JOIN profile p ON p.id = t.profile
  JOIN sample_type s ON s.id = t.type
  JOIN function f ON f.id = t.function;
