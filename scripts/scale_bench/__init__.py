"""What scripts/bench_recommender is made of: a large cluster of records, and a metrics API that plays recordings."""
