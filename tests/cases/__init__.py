"""Cases: a project, what comes in, and what must come out, as text."""
