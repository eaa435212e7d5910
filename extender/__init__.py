"""The kube-scheduler extender of Phasewise. It may import `recommender`, never the other way round."""
