"""The kube-scheduler extender of Phasewise; it may build on `recommender`, never the other way round."""
