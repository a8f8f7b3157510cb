"""Cases: a project, its input, and its expected output, as text."""
