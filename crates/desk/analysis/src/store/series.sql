-- Version 10: what a profile is a moment of: its service, its host and so on. Never change this
-- migration.
CREATE TABLE profile_label (
  profile INTEGER NOT NULL REFERENCES profile (id),
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (profile, key)
) WITHOUT ROWID;
INSERT INTO profile_label
  SELECT profile, 'host', max(substr(text, 7)) FROM comment
  WHERE substr(text, 1, 6) = 'host: ' GROUP BY profile HAVING count(*) = 1;
INSERT INTO profile_label
  SELECT profile, 'service', max(substr(text, 10)) FROM comment
  WHERE substr(text, 1, 9) = 'program: ' GROUP BY profile HAVING count(*) = 1;
