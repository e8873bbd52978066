-- Version 3: stores the bytes of each profile, for questions that need its stacks. Never change
-- this migration.
CREATE TABLE profile_part (
  profile INTEGER NOT NULL REFERENCES profile (id),
  position INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (profile, position)
);
