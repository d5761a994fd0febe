"""Ways out: the formats that recordings are written in."""
