"""CPU shares of jobs that slow each other down (FlowCon, ours), and when jobs that share cores finish."""
