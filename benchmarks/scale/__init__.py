"""Parts of scripts/bench_recommender: a large cluster of objects, and metrics.k8s.io from recordings."""
