-- Version 3: the bytes of each profile, for questions that need its stacks. Never change what stands here.
CREATE TABLE profile_part (
  profile INTEGER NOT NULL REFERENCES profile (id),
  position INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (profile, position)
);
