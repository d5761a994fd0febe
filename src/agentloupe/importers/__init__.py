"""Ways in: one reader for each foreign format; which one a file needs is seen from its content."""
