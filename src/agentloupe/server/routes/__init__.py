"""Routes, by what they are about. Each answers from verbs and views; none decides anything itself."""
