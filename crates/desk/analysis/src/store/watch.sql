-- Version 8: what watch has seen. Never change this migration.
CREATE TABLE watch (
  id INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  host TEXT NOT NULL,
  command TEXT NOT NULL,
  interval_ms INTEGER NOT NULL,
  began_ms INTEGER NOT NULL,
  ended_ms INTEGER,
  looks INTEGER NOT NULL,
  cost_us INTEGER NOT NULL
);
CREATE TABLE watch_process (
  watch INTEGER NOT NULL,
  process INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  parent INTEGER NOT NULL,
  name TEXT NOT NULL,
  command TEXT NOT NULL,
  began_ms INTEGER NOT NULL,
  ended_ms INTEGER,
  ending TEXT NOT NULL,
  PRIMARY KEY (watch, process)
);
CREATE TABLE watch_moment (
  watch INTEGER NOT NULL,
  process INTEGER NOT NULL,
  time_ms INTEGER NOT NULL,
  size INTEGER NOT NULL,
  rss INTEGER NOT NULL,
  shared INTEGER NOT NULL,
  data INTEGER NOT NULL,
  pss INTEGER,
  uss INTEGER,
  swap INTEGER,
  peak INTEGER,
  threads INTEGER NOT NULL,
  minor_faults INTEGER NOT NULL,
  major_faults INTEGER NOT NULL,
  worked_us INTEGER NOT NULL,
  PRIMARY KEY (watch, process, time_ms)
);
CREATE TABLE watch_event (
  watch INTEGER NOT NULL,
  number INTEGER NOT NULL,
  process INTEGER,
  time_ms INTEGER NOT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL,
  size INTEGER,
  rss INTEGER,
  shared INTEGER,
  code INTEGER,
  data INTEGER,
  PRIMARY KEY (watch, number)
);
