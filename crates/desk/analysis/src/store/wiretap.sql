-- Version 6: what the wiretap collects. Never change this migration.
CREATE TABLE wiretap_code (
  kind TEXT NOT NULL,
  code TEXT NOT NULL,
  site TEXT NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  count INTEGER NOT NULL,
  us INTEGER NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  PRIMARY KEY (kind, code, site, host, pid, outcome)
);
CREATE TABLE wiretap_sender (
  sender TEXT NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  parent INTEGER NOT NULL,
  received INTEGER NOT NULL,
  lost INTEGER NOT NULL,
  state TEXT NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  PRIMARY KEY (sender)
);
CREATE TABLE wiretap_refused (
  why TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (why)
);
