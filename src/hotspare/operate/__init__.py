"""Operations on groups, snapshots and projects, each once as a function, for commands and programs: no options, nothing printed."""
