"""`phasewise web`: read-only pages of what is watched, decided and about to come."""
