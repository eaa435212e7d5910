"""What phases are, and how they follow one another: CRBM, k-means on its codes, and the graph."""
