"""One decision after the other: the question read, the nodes judged, what was advised kept and explained."""
